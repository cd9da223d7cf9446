"""The clock of the device process: it stamps its operations on the machine's monotonic clock, which is ours too."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from typing import NamedTuple, Protocol

from cbprof.record.clocks.base import ClockErrors, Times


class CountingStream(Protocol):
    """A stream that numbers what is queued: operation ``submitted`` of ``queue`` is the next one."""

    @property
    def queue(self) -> int: ...

    @property
    def submitted(self) -> int: ...


class StampingDevice(Protocol):
    """A device that remembers when it ran which operation."""

    def stamps(self, queue: int, first: int, last: int) -> tuple[int, int] | None:
        """Start of operation ``first`` and end of ``last`` (inclusive), nanoseconds; None until both are known."""


class Operations(NamedTuple):
    """Operations ``first`` to ``last``, inclusive, of one queue."""

    queue: int
    first: int
    last: int


class HostClock:
    """Times of the device process. Host and device share one clock, so both errors are its resolution."""

    def __init__(self, device: StampingDevice) -> None:
        self._device = device
        resolution_ns = ceil(time.get_clock_info("perf_counter").resolution * 1e9)
        self.errors = ClockErrors(resolution_ns, resolution_ns)

    def begin(self, stream: CountingStream) -> int:
        return stream.submitted

    def end(self, stream: CountingStream, handle: int) -> Operations | None:
        last = stream.submitted - 1
        return Operations(stream.queue, handle, last) if last >= handle else None

    def resolve(self, handle: Operations) -> Times | None:
        stamps = self._device.stamps(*handle)
        return None if stamps is None else Times(*stamps)

    def anchor(self, *, final: bool = False) -> None:
        pass

    def paused(self) -> AbstractContextManager[object]:
        return nullcontext()

    def close(self) -> None:
        pass
