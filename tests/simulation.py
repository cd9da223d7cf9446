"""Shared by the tests of the loops: serving on the simulated device, and what the tokens must be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from simulated_device import SimulatedDevice, next_token

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.hooks import Hooks
from cbprof.engine.loops import LOOPS
from cbprof.engine.noise import noise_keys
from cbprof.engine.request import Request
from cbprof.engine.run import Run, prepare_run


@dataclass
class StepClock:
    """Time passes by one nanosecond a look."""

    time: int = 0

    def now(self) -> int:
        self.time += 1
        return self.time

    def sleep_until(self, time_ns: int) -> None:
        self.time = max(self.time, time_ns)


def serve(
    config: EngineConfig,
    requests: list[Request],
    mode: Mode,
    *,
    seed: int,
    vocab_size: int,
    eagerness: float = 0.5,
    broken: tuple[str, ...] = (),
    hooks: Hooks | None = None,
    clock: StepClock | None = None,
    shared_slot: bool = False,
) -> Run:
    """Serve ``requests`` on a simulated device whose order is drawn from ``seed``.

    ``shared_slot``: a planted fault, all batches in flight use the first slot.
    """
    device = SimulatedDevice(
        config.layout,
        num_blocks=config.cache_blocks,
        buckets=config.buckets,
        seed=seed,
        slots=config.slots,
        vocab_size=vocab_size,
        eagerness=eagerness,
        broken=broken,
    )
    run = prepare_run(config, device, requests, mode, hooks=hooks, clock=clock or StepClock())
    if shared_slot:
        run.slots = [run.slots[0]] * len(run.slots)
    LOOPS[mode](run)
    return run


def alone(request: Request, vocab_size: int) -> list[int]:
    """What the simulated model generates for a request that is served on its own, token by token."""
    ids = request.ids[: request.prompt_length].tolist()
    while True:
        key = noise_keys(0, np.array([request.id]), np.array([len(ids)]))[0]
        ids.append(next_token(np.array(ids, np.int32), int(key), vocab_size))
        if ids[-1] in request.stop_tokens or len(ids) == request.max_length:
            return ids[request.prompt_length :]


def everything_is_given_back(run: Run) -> bool:
    """No block, seat or request is left behind."""
    scheduler = run.scheduler
    left = len(scheduler.running) + len(scheduler.waiting) + len(scheduler.future)
    blocks = scheduler.blocks
    return not left and blocks.free_blocks == blocks.num_blocks and blocks.free_seats == scheduler.config.max_batch
