"""CUPTI evidence: a window of steps under torch.profiler, beside the events.

Event pairs bound what a step runs and are blind to holes inside; CUPTI records every kernel, and costs: under it a
graph launch takes about a millisecond. So the profiled steps are marked, and stay out of the headline figures.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.engine.hooks import Hooks
from cbprof.engine.placement import Placement
from cbprof.meta import ProfiledSteps

if TYPE_CHECKING:
    from torch.profiler import profile

    from cbprof.engine.devices.base import Stream


class CuptiWindow:
    """Hooks that pass everything on to ``inner``, and profile the steps from ``first`` up to, not including, ``last``.

    The profiler starts and stops where the ``schedule`` phase of those steps begins, on the engine's thread, which it
    blocks. While it runs, the phases stand in its trace as annotations such as ``launch 17``. ``started_ns`` and
    ``stopped_ns`` are stamps of ``now``, from before the start to after the stop; None if the run did not get so far.
    ``produced`` counts the tokens in between.
    """

    def __init__(self, inner: Hooks, first: int, last: int, *, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self.first, self.last = first, last
        self.started_ns: int | None = None
        self.stopped_ns: int | None = None
        self._inner = inner
        self._now = now
        self._profiler: profile | None = None
        self.produced = 0
        self.batch, self.arrived, self.recorded, self.waited = inner.batch, inner.arrived, inner.recorded, inner.waited

    @property
    def running(self) -> bool:
        return self.started_ns is not None and self.stopped_ns is None

    def phase(
        self, name: str, step: int, *, slot: int = -1, stream: Stream | None = None
    ) -> AbstractContextManager[None]:
        if name == "schedule":
            self.step_begins(step)
        phase = self._inner.phase(name, step, slot=slot, stream=stream)
        return _annotated(f"{name} {step}", phase) if self.running else phase

    def wait(self, name: str, step: int, *, slot: int = -1) -> AbstractContextManager[None]:
        wait = self._inner.wait(name, step, slot=slot)
        return _annotated(f"{name} {step}", wait) if self.running else wait

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        if self.running:
            self.produced += len(produced)
        self._inner.tokens(produced, finished)

    def step_begins(self, step: int) -> None:
        """Start or stop, where it is time; called before the first phase of a step, on the engine's thread."""
        if step >= self.last:
            self.stop()
        elif step >= self.first and self.started_ns is None:
            self._start()

    def _start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.started_ns = self._now()
        self._profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        self._profiler.start()
        say_rank(self._profiler)

    def stop(self) -> None:
        """Stop the profiler, if it runs."""
        if self._profiler is not None and self.running:
            self._profiler.stop()
            self.stopped_ns = self._now()

    def finish(self, trace: Path, origin_ns: int) -> ProfiledSteps | None:
        """Stop, write what was profiled beside ``trace``, and say where it is and when it was taken.

        None if the run did not get so far. Times count from ``origin_ns``, as those in the trace do.
        """
        self.stop()
        if self._profiler is None or self.started_ns is None or self.stopped_ns is None:
            return None
        path = cupti_path(trace)
        self._profiler.export_chrome_trace(str(path))
        return ProfiledSteps(
            file=path.name,
            steps=(self.first, self.last),
            start_ns=self.started_ns - origin_ns,
            end_ns=self.stopped_ns - origin_ns,
            tokens=self.produced,
        )


def say_rank(profiler: profile) -> None:
    """Let the file say which rank it is, as torch.profiler does where torch.distributed is in use.

    The profiler must be running.
    """
    import torch.distributed

    placement = Placement.from_environment(os.environ)
    alone = placement.world_size == 1
    if not alone and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        profiler.add_metadata_json(
            "distributedInfo", json.dumps({"rank": placement.rank, "world_size": placement.world_size})
        )


def cupti_path(path: Path) -> Path:
    """``trace.json`` has its CUPTI window in ``trace.cupti.json.gz``, beside it."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".json") + ".cupti.json.gz")


@contextmanager
def _annotated(name: str, phase: AbstractContextManager[None]) -> Iterator[None]:
    from torch.profiler import record_function

    with record_function(name), phase:
        yield
