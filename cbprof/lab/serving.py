"""The reference engine's two loops, recorded: what the experiments about whole steps run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cbprof.engine.config import Mode
from cbprof.engine.loops import LOOPS
from cbprof.engine.run import Run, prepare_run
from cbprof.engine.workload import Workload
from cbprof.lab.lab import Lab
from cbprof.trace import Trace


@dataclass(frozen=True)
class Served:
    """A run that is over: what was recorded, the tokens of each request, and the run itself with its books."""

    trace: Trace
    tokens: dict[int, list[int]]
    run: Run


def workload_of(lab: Lab, *, requests_per_seat: int = 1, new_tokens: int | None = None) -> Workload:
    """A batch full of requests that all generate equally many tokens; with more of them, some wait their turn."""
    server = lab.server
    count = new_tokens or server.new_tokens
    return Workload(requests=server.config.max_batch * requests_per_seat, prompt_len=(8, 24), new_tokens=(count, count))


def serve(lab: Lab, workload: Workload, mode: Mode, run_type: Callable[..., Run] = Run) -> Served:
    """Serve ``workload`` in one of the loops. ``run_type`` makes the run from the fields of :class:`Run`."""
    server = lab.server
    requests = workload.make_requests(server.vocab_size)
    recording = lab.recording(engine="cbprof reference", mode=mode, model=server.config.model)
    with recording as hooks:
        plain = prepare_run(server.config, server.device, requests, mode, seed=workload.seed, hooks=hooks)
        run = run_type(**vars(plain))
        LOOPS[mode](run)
        server.device.synchronize()
    return Served(recording.trace, {request.id: request.generated for request in requests}, run)
