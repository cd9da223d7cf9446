"""What ``cbprof run`` records: a run of our engine, or of transformers' own continuous batching, and its file."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.devices.host.device import HostDevice
from cbprof.engine.engine import Engine, Outcome
from cbprof.engine.equality import Equality, what_must_be_equal
from cbprof.engine.hooks import NoHooks
from cbprof.engine.placement import rank_facts
from cbprof.engine.workload import Workload
from cbprof.formats import TraceWriter
from cbprof.meta import Meta, ProfiledSteps
from cbprof.record.attach import attach
from cbprof.record.clocks.base import DeviceClock
from cbprof.record.clocks.cuda import CudaClock
from cbprof.record.clocks.host import HostClock
from cbprof.record.cupti import CuptiWindow
from cbprof.record.engines.transformers.serve import TransformersEngine
from cbprof.record.recorder import Recorder
from cbprof.record.span_tracer import SpanTracer

if TYPE_CHECKING:
    from cbprof.engine.devices.cuda import CudaDevice

_NOTHING: Mapping[str, Any] = MappingProxyType({})

Watch = Callable[[Recorder], None]
"""Gets the recorder before the run starts, to show progress."""


@dataclass(frozen=True)
class RecordedRun:
    """Where the trace is, and what the run brought. ``outcome`` is None where the run was interrupted.

    ``equality``: what another run of the same requests must have in common with it.
    """

    path: Path
    outcome: Outcome | None
    equality: Equality

    @property
    def interrupted(self) -> bool:
        return self.outcome is None


def record(
    engine: Engine,
    workload: Workload,
    mode: Mode,
    path: Path,
    *,
    cupti: tuple[int, int] | None = None,
    watch: Watch | None = None,
    said: Mapping[str, Any] = _NOTHING,
) -> RecordedRun:
    """Serve ``workload`` in ``mode`` and write its trace to ``path`` while it runs.

    ``said``: what else the trace is to say of itself.
    ``cupti`` (first, last) puts those steps under torch.profiler as well, whose trace goes to ``NAME.cupti.json.gz``.
    Ctrl-C ends the run early and keeps the trace so far, with ``complete`` false; so does an error, which is then
    raised again.
    """
    workload = workload.ended_by(engine.end_tokens)
    requests = workload.make_requests(engine.vocab_size)
    origin_ns, base_time_ns = time.perf_counter_ns(), time.time_ns()
    meta = _metadata(engine, workload, mode, base_time_ns).changed(extra=said)
    writer = TraceWriter(path, meta)
    clock = _device_clock(engine.device)
    tracer = SpanTracer(writer, clock, device=engine.config.device_index, origin_ns=origin_ns).start()
    if watch is not None:
        watch(tracer)
    window = None if cupti is None else CuptiWindow(tracer, *cupti)
    outcome = None
    try:
        outcome = engine.serve(requests, mode, window or tracer, seed=workload.seed)
    except KeyboardInterrupt:
        if not tracer.token_count:
            raise
    finally:
        profiled = None if window is None else window.finish(path, tracer.origin_ns)
        _finish(writer, meta, tracer, outcome, profiled)
    preempted = outcome is not None and outcome.counters.preemptions > 0
    return RecordedRun(path, outcome, what_must_be_equal(engine.config.dtype, workload, preempted=preempted))


def _finish(
    writer: TraceWriter, meta: Meta, tracer: SpanTracer, outcome: Outcome | None, profiled: ProfiledSteps | None
) -> None:
    """Close the file, whatever has happened, unless it happened before the first token."""
    try:
        # The engine has waited for the device, and in vain where a run ends early and something is missing still.
        recorded = tracer.close() if outcome is not None else tracer.close(patience_s=0)
    except BaseException:
        writer.close(meta.changed(complete=False))
        raise
    if not recorded.tokens:
        writer.abandon()
        return
    final = replace(
        meta,
        complete=outcome is not None,
        tokens=recorded.tokens,
        clock_error_ns=recorded.clock_error_ns,
        device_error_ns=recorded.device_error_ns,
        edges=recorded.edges,
        threads=recorded.threads,
        cupti=profiled,
        extra={**meta.extra, **_outcome_facts(outcome)},
    )
    writer.close(final)


def _outcome_facts(outcome: Outcome | None) -> dict[str, int]:
    if outcome is None:
        return {}
    return {"dropped_tokens": outcome.counters.dropped, "preemptions": outcome.counters.preemptions}


def _device_clock(device: CudaDevice | HostDevice) -> DeviceClock:
    """The clock that knows when work ran on this device."""
    return HostClock(device) if isinstance(device, HostDevice) else CudaClock(device.index)


def _metadata(engine: Engine, workload: Workload, mode: Mode, base_time_ns: int) -> Meta:
    """What a reader of the trace wants to know about the run."""
    config = engine.config
    return Meta(
        evidence=engine.device.evidence,
        mode=mode,
        engine="cbprof reference",
        device=engine.device.name,
        cuda_graphs=config.device == "cuda",
        model=engine.device.facts.name,
        dtype=config.dtype,
        torch=version("torch"),
        transformers=version("transformers"),
        config=asdict(config),
        workload={"batch": config.max_batch, **workload.facts()},
        base_time_ns=base_time_ns,
    ).changed(**rank_facts(workload.rank, workload.world_size))


class Recordable(Protocol):
    """An engine that is open, with its model."""

    @property
    def config(self) -> EngineConfig: ...

    def record(
        self,
        workload: Workload,
        mode: Mode,
        path: Path,
        *,
        cupti: tuple[int, int] | None,
        watch: Watch | None,
        said: Mapping[str, Any] = _NOTHING,
    ) -> RecordedRun:
        """Serve ``workload`` and write its trace to ``path``; see :func:`cbprof.record.session.record`."""


def open_engine(name: str, config: EngineConfig, modes: Collection[Mode]) -> AbstractContextManager[Recordable]:
    """The engine ``cbprof`` or ``transformers``. Raises :class:`UsageError` for what it cannot do."""
    return _Transformers(config, modes) if name == "transformers" else _Own(config)


class _Own(Engine):
    def record(
        self,
        workload: Workload,
        mode: Mode,
        path: Path,
        *,
        cupti: tuple[int, int] | None,
        watch: Watch | None,
        said: Mapping[str, Any] = _NOTHING,
    ) -> RecordedRun:
        return record(self, workload, mode, path, cupti=cupti, watch=watch, said=said)


class _Transformers(TransformersEngine):
    def record(
        self,
        workload: Workload,
        mode: Mode,
        path: Path,
        *,
        cupti: tuple[int, int] | None,
        watch: Watch | None,
        said: Mapping[str, Any] = _NOTHING,
    ) -> RecordedRun:
        workload = workload.ended_by(self.end_tokens)
        requests = workload.make_requests(self.vocab_size)
        window = None if cupti is None else CuptiWindow(NoHooks(), *cupti)
        meta: dict[str, Any] = {
            "model": self.config.model,
            "workload": {"batch": self.config.max_batch, **workload.facts()},
            **rank_facts(workload.rank, workload.world_size),
            **said,
        }
        attachment = attach("transformers", path, meta=meta, step_begins=None if window is None else window.step_begins)
        outcome: Outcome | None = None
        with attachment:
            recorder = attachment.tracer.recorder
            if watch is not None and recorder is not None:
                watch(recorder)
            try:
                outcome = self.serve(requests, mode)
            except KeyboardInterrupt:
                if recorder is None or not recorder.token_count:
                    raise
                attachment.complete = False
            finally:
                if window is not None and recorder is not None and (facts := window.finish(path, recorder.origin_ns)):
                    attachment.tracer.meta["cupti"] = facts.to_json()
        if attachment.tracer.failure is not None:
            raise attachment.tracer.failure
        if workload.temperature:  # from one stream of random numbers, of which the warm-up of async uses more
            anew = Equality("nothing", "tokens are sampled anew in each run; give --temperature 0")
            return RecordedRun(path, outcome, anew)
        return RecordedRun(path, outcome, what_must_be_equal(self.config.dtype, workload, preempted=False))
