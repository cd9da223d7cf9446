"""The clock of the device process: it stamps its operations on the machine's monotonic clock, which is ours too."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cbprof.record.clocks.base import SharedClock, Times


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


class HostClock(SharedClock):
    """Times of the device process, which shares the host's clock."""

    def __init__(self, device: StampingDevice) -> None:
        super().__init__()
        self._device = device

    def begin(self, stream: CountingStream) -> int:
        return stream.submitted

    def end(self, stream: CountingStream, handle: int) -> Operations | None:
        last = stream.submitted - 1
        return Operations(stream.queue, handle, last) if last >= handle else None

    def resolve(self, handle: Operations) -> Times | None:
        stamps = self._device.stamps(*handle)
        return None if stamps is None else Times(*stamps)
