"""The devices that somebody's streams belong to: a clock each, found or made when their first span is taken."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Literal, NamedTuple

from cbprof.record.clocks.base import DeviceClock
from cbprof.record.clocks.choice import ClockOf
from cbprof.record.drain import DeviceLane, Drain, TimedDevice
from cbprof.trace import Kind, Lane

StreamUse = Literal["compute", "h2d", "d2h", "copy", "comm"]
"""What is queued on a stream: the category of the span, and the name of its lane."""

KINDS: Mapping[StreamUse, Kind] = {
    "compute": Kind.GPU_COMPUTE,
    "h2d": Kind.GPU_H2D,
    "d2h": Kind.GPU_D2H,
    "copy": Kind.GPU_COPY,
    "comm": Kind.GPU_COMM,
}


class _Queue(NamedTuple):
    """A stream of a device, and what it is used for."""

    device: int
    stream: Hashable
    use: StreamUse


class Devices:
    """The devices met so far.

    A stream is anything hashable with a ``device_index`` (0, where it has none) and, if two objects may mean one
    stream, a ``cuda_stream`` that tells: as ``torch.cuda.Stream`` has.
    """

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._devices: dict[int, TimedDevice] = {}
        self._lanes: dict[_Queue, Lane] = {}
        self._places: dict[tuple[_Queue, str], DeviceLane] = {}
        self._used_alike: Counter[tuple[int, StreamUse]] = Counter()
        self._lock = threading.Lock()

    def place(self, stream: Any, use: StreamUse, name: str, clock_of: ClockOf) -> DeviceLane:
        """Where spans ``name`` go that ``stream`` runs. The lane of a device's second stream of a use is ``USE 2``.

        The first call for a device makes its clock, which takes some 10 ms with CUDA.
        """
        queue = _Queue(_index(stream), getattr(stream, "cuda_stream", stream), use)
        return self._places.get((queue, name)) or self._add(queue, name, clock_of)

    def warm_up(self, stream: Any, clock_of: ClockOf) -> None:
        """Make the clock of the stream's device, if there is none yet."""
        with self._lock:
            self._device(_index(stream), clock_of)

    def clocks(self) -> list[DeviceClock]:
        """The clocks made so far."""
        return [device.clock for device in self._devices.values()]

    def _add(self, queue: _Queue, name: str, clock_of: ClockOf) -> DeviceLane:
        with self._lock:
            index, use = queue.device, queue.use
            device = self._device(index, clock_of)
            if queue not in self._lanes:
                self._used_alike[index, use] += 1
                number = self._used_alike[index, use]
                self._lanes[queue] = Lane(use if number == 1 else f"{use} {number}", index)
            place = DeviceLane(device, self._lanes[queue], KINDS[use], name)
            return self._places.setdefault((queue, name), place)

    def _device(self, index: int, clock_of: ClockOf) -> TimedDevice:
        if index not in self._devices:
            self._devices[index] = self._drain.add_device(index, clock_of(index))
        return self._devices[index]


def _index(stream: Any) -> int:
    return int(getattr(stream, "device_index", 0))
