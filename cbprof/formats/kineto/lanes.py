"""The lanes of an imported trace: streams of its devices, and threads of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cbprof.formats.columns import Index
from cbprof.formats.kineto.columns import Scalar, Where
from cbprof.formats.kineto.rules import device_of, host_of, plain, stream_of
from cbprof.trace import NONE, Int32, Lane


class Lanes:
    """Lane ids of spans, by the row that each stands on.

    Devices first, in the order of device and stream, then threads as they are met. A device whose id is not a number
    from 0 up gets a number that no other has; ``device_names`` says what the file calls it.
    """

    def __init__(self, wheres: Sequence[Where], thread_names: Mapping[tuple[Scalar, Scalar], str], rank: int) -> None:
        self._wheres = wheres
        self._thread_names = {(plain(pid), plain(tid)): name.strip() for (pid, tid), name in thread_names.items()}
        self._rank = rank
        self._lanes = Index[Lane]()
        self.device_names: dict[str, str] = {}

    def of(self, where: Int32, on_device: npt.NDArray[np.bool_]) -> Int32:
        """The lane of each span; call it once, with all spans."""
        lanes = np.full((2, max(len(self._wheres), 1)), NONE, dtype=np.int32)
        rows = _found(where[on_device])
        streams = [(device_of(self._wheres[row]), stream_of(self._wheres[row]), row) for row in rows]
        numbers = self._number_devices({device for device, _, _ in streams})
        for device, stream, row in sorted(streams, key=lambda each: (numbers[each[0]], *_in_order(each[1]))):
            name = f"stream {stream}" if isinstance(stream, int) else stream
            lanes[1, row] = self._lanes.code(Lane(name, device=numbers[device], rank=self._rank))
        taken: dict[Lane, tuple[Scalar, Scalar]] = {}
        for row in _found(where[~on_device]):
            pid, tid = host_of(self._wheres[row])
            lane = Lane(self._thread(pid, tid), rank=self._rank)
            if taken.setdefault(lane, (pid, tid)) != (pid, tid):
                lane = Lane(f"{lane.name} of process {pid}", rank=self._rank)
            lanes[0, row] = self._lanes.code(lane)
        return lanes[on_device.astype(np.int8), where]

    def things(self) -> tuple[Lane, ...]:
        return self._lanes.things()

    def _thread(self, pid: Scalar, tid: Scalar) -> str:
        name = self._thread_names.get((pid, tid), "")
        return name if name.startswith(f"thread {tid}") else f"thread {tid}" + (f" ({name})" if name else "")

    def _number_devices(self, devices: set[int | str]) -> dict[int | str, int]:
        numbers: dict[int | str, int] = {
            device: int(device) for device in devices if isinstance(device, int) and 0 <= device < 1 << 31
        }
        free = max(numbers.values(), default=NONE) + 1
        for device in sorted(devices - numbers.keys(), key=str):
            numbers[device] = free
            self.device_names[str(free)] = str(device)
            free += 1
        return numbers


def _found(where: Int32) -> list[int]:
    """The rows that occur, in the order of their numbers: as they are met in the file."""
    found: list[int] = np.unique(where).tolist()
    return found


def _in_order(stream: int | str) -> tuple[bool, int, str]:
    return (isinstance(stream, str), stream if isinstance(stream, int) else 0, str(stream))
