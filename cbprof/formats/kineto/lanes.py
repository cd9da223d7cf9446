"""The lanes of an imported trace: streams of its devices, and threads of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.formats.columns import Index
from cbprof.formats.kineto.rules import as_number, device_of, host_of, rank_of, stream_of, tag_of
from cbprof.formats.kineto.scalars import Scalar, Where
from cbprof.trace import NONE, Int32, Lane


class Device(NamedTuple):
    """A device of a file: its id, and in a merged file the tag of the rank whose id that is."""

    tag: str
    id: int | str


class Lanes:
    """Lane ids of spans, by the row that each stands on.

    Devices first, in the order of device and stream, then threads as they are met. A device whose id is not a number
    from 0 up, or is that of another rank's device, gets a number that no other has; ``device_names`` says what the file
    calls it. ``tags``: of each row, which rank's it is, in a file that was merged of several (see :func:`tags_of`).
    """

    def __init__(
        self,
        wheres: Sequence[Where],
        tags: Sequence[str],
        thread_names: Mapping[tuple[Scalar, Scalar], str],
        rank: int,
    ) -> None:
        self._wheres = wheres
        self._tags = tags
        self._thread_names = {
            (as_number(pid), as_number(tid)): name.strip() for (pid, tid), name in thread_names.items()
        }
        self._rank = rank
        self._lanes = Index[Lane]()
        self.device_names: dict[int, str] = {}

    def of(self, where: Int32, on_device: npt.NDArray[np.bool_]) -> Int32:
        """The lane of each span; call it once, with all spans."""
        lanes = np.full((2, max(len(self._wheres), 1)), NONE, dtype=np.int32)
        rows = _found(where[on_device])
        found = [(Device(self._tags[row], device_of(self._wheres[row], self._tags[row])), row) for row in rows]
        numbers = self._number_devices({device for device, _ in found})
        streams = [(device, stream_of(self._wheres[row]), row) for device, row in found]
        for device, stream, row in sorted(streams, key=lambda each: (numbers[each[0]], *_in_order(each[1]))):
            name = f"stream {stream}" if isinstance(stream, int) else stream
            lane = Lane(name, device=numbers[device], rank=self._rank_of(row))
            lanes[1, row] = self._lanes.code(lane)
        taken: dict[Lane, tuple[Scalar, Scalar]] = {}
        for row in _found(where[~on_device]):
            pid, tid = host_of(self._wheres[row])
            lane = Lane(self._thread(pid, tid), rank=self._rank_of(row))
            if taken.setdefault(lane, (pid, tid)) != (pid, tid):
                lane = Lane(f"{lane.name} of process {pid}", rank=lane.rank)
            lanes[0, row] = self._lanes.code(lane)
        return lanes[on_device.astype(np.int8), where]

    def things(self) -> tuple[Lane, ...]:
        return self._lanes.things()

    def _thread(self, pid: Scalar, tid: Scalar) -> str:
        name = self._thread_names.get((pid, tid), "")
        return name if name.startswith(f"thread {tid}") else f"thread {tid}" + (f" ({name})" if name else "")

    def _rank_of(self, row: int) -> int:
        told = rank_of(self._tags[row])
        return self._rank if told == NONE else told

    def _number_devices(self, devices: set[Device]) -> dict[Device, int]:
        numbers: dict[Device, int] = {}
        for device in sorted(devices, key=lambda each: (each.tag, str(each.id))):
            if isinstance(device.id, int) and 0 <= device.id < 1 << 31 and device.id not in numbers.values():
                numbers[device] = device.id
        free = max(numbers.values(), default=NONE) + 1
        for device in sorted(devices - numbers.keys(), key=lambda each: (each.tag, str(each.id))):
            numbers[device] = free
            self.device_names[free] = f"{device.tag} {device.id}".strip()
            free += 1
        return numbers


def tags_of(wheres: Sequence[Where], on_device: Sequence[int], on_host: Sequence[int]) -> list[str]:
    """Which rank's each row is, by the tag before its pid: ``[TP01]``; ``""`` in a file of one rank.

    A tag counts where the rows of devices have no other tags than the rows of the host: what a merger wrote stands
    before both, but ``GPU 0`` is the name of a device.
    """
    tags = [tag_of(where) for where in wheres]
    merged = {tags[row] for row in on_device} <= {tags[row] for row in on_host}
    return tags if merged else [""] * len(wheres)


def _found(where: Int32) -> list[int]:
    """The rows that occur, in the order of their numbers: as they are met in the file."""
    found: list[int] = np.unique(where).tolist()
    return found


def _in_order(stream: int | str) -> tuple[bool, int, str]:
    return (isinstance(stream, str), stream if isinstance(stream, int) else 0, str(stream))
