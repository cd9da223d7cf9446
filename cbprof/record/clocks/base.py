"""The clock of a device: when did the work between two points of a stream run, in the host's nanoseconds?

One small contract and four answers: :class:`NoClock` and :class:`BlockingClock` here, :mod:`cbprof.record.clocks.host`
for the device process, :mod:`cbprof.record.clocks.cuda` for CUDA events. ``begin`` and ``end`` are called on the
engine's thread and must cost next to nothing; the other methods are called on the tracer's own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Protocol

Handle = Any
"""A pair of points on a stream, in whatever form its clock likes; nobody else looks inside."""


class Times(NamedTuple):
    """When device work started and ended, in nanoseconds of the host's clock."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class ClockErrors:
    """How far a stated time can be from the truth, in nanoseconds.

    ``clock_error_ns``: between a time of the host and a time of the device. ``device_error_ns``: between two
    neighbouring times of one device. None where there are no device times to be wrong about.
    """

    clock_error_ns: int | None
    device_error_ns: int | None


class DeviceClock(Protocol):
    """Marks points in the work of its device's streams, and tells later when they were passed."""

    def begin(self, stream: Any) -> Handle:
        """Mark the point before the work that is about to be queued."""

    def end(self, stream: Any, handle: Handle) -> Handle | None:
        """Mark the point behind it. None if there is no device work to time."""

    def resolve(self, handle: Handle) -> Times | None:
        """The times of what ``end`` returned, or None while they are not known. Not asked again once answered."""

    def anchor(self, *, final: bool = False) -> None:
        """Compare the clocks of host and device, if that is due; in any case if ``final``."""

    def paused(self) -> AbstractContextManager[object]:
        """A context in which other threads leave the device alone, as the capture of a graph demands."""

    @property
    def errors(self) -> ClockErrors:
        """The error bounds of all times given so far."""

    def close(self) -> None:
        """Give everything back."""


class SharedClock:
    """The device's times are read on the host's own clock: nothing to compare, and both errors are its resolution."""

    def __init__(self) -> None:
        resolution_ns = ceil(time.get_clock_info("perf_counter").resolution * 1e9)
        self.errors = ClockErrors(resolution_ns, resolution_ns)

    def anchor(self, *, final: bool = False) -> None:
        pass

    def paused(self) -> AbstractContextManager[object]:
        return nullcontext()

    def close(self) -> None:
        pass


class NoClock(SharedClock):
    """No device times: the device has no time, as in a simulation, or only spans of the host are wanted."""

    def __init__(self) -> None:
        self.errors = ClockErrors(None, None)

    def begin(self, stream: Any) -> Handle:
        return None

    def end(self, stream: Any, handle: Handle) -> Handle | None:
        return None

    def resolve(self, handle: Handle) -> Times | None:
        return None


class BlockingClock(SharedClock):
    """The calling thread does the device's work itself, as torch does on a CPU: it is done when ``end`` is called."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__()
        self._now = now

    def begin(self, stream: Any) -> int:
        return self._now()

    def end(self, stream: Any, handle: int) -> Times:
        return Times(handle, self._now())

    def resolve(self, handle: Times) -> Times:
        return handle
