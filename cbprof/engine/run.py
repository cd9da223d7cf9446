"""A run of requests: the scheduler, slots, streams and hooks that the loops work with."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cbprof.engine.batch import Batch
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.devices.base import Device, Streams
from cbprof.engine.hooks import Hooks, NoHooks
from cbprof.engine.request import Request
from cbprof.engine.scheduler import Scheduler
from cbprof.engine.slots import Slot


class Clock(Protocol):
    """The engine's sense of time, for arrivals. Nanoseconds."""

    def now(self) -> int: ...

    def sleep_until(self, time_ns: int) -> None: ...


class WallClock:
    """The machine's monotonic clock."""

    def now(self) -> int:
        return time.perf_counter_ns()

    def sleep_until(self, time_ns: int) -> None:
        time.sleep(max(0, time_ns - time.perf_counter_ns()) / 1e9)


@dataclass
class Run:
    """A scheduler with its requests, the device's slots and streams, and the profiler's hooks.

    Arrival times of the requests count from ``origin_ns`` on ``clock``.
    """

    scheduler: Scheduler
    slots: Sequence[Slot]
    streams: Streams
    hooks: Hooks
    clock: Clock
    origin_ns: int

    def schedule(self, step: int) -> Batch | None:
        """Admit the requests that have arrived, and make the next batch; None if there is no work."""
        for request in self.scheduler.arrive(self.clock.now() - self.origin_ns):
            self.hooks.arrived(request.id, self.origin_ns + request.arrival_ns)
        batch = self.scheduler.schedule(step)
        if batch is not None:
            self.hooks.batch(batch)
        return batch

    def update(self, batch: Batch, slot: Slot) -> None:
        """Read back a batch whose output is on the host."""
        update = self.scheduler.update(batch, slot.output)
        self.hooks.tokens(update.produced, update.finished)

    def sleep_until_arrival(self) -> None:
        """Sleep until the next request arrives."""
        self.clock.sleep_until(self.origin_ns + self.scheduler.future[-1].arrival_ns)


def prepare_run(
    config: EngineConfig,
    device: Device,
    requests: Iterable[Request],
    mode: Mode,
    *,
    seed: int = 0,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
) -> Run:
    """Set up a run of ``requests`` on ``device``. Raises :class:`UsageError` if one can never fit the cache.

    ``mode`` chooses the streams: sync queues everything on one, the others on three. ``seed`` is the sampling seed.
    """
    scheduler = Scheduler(config, requests)
    slots = [Slot(index, device, scheduler.blocks, seed) for index in range(len(device.slots))]
    clock = clock or WallClock()
    return Run(
        scheduler=scheduler,
        slots=slots,
        streams=device.streams(separate=mode != "sync"),
        hooks=hooks or NoHooks(),
        clock=clock,
        origin_ns=clock.now(),
    )
