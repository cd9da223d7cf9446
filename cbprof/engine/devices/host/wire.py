"""What the two processes of the host device share: the form of a command, the memory, and the set-up message.

A queue is a pipe. What was *sent* on it is counted by the parent, what was *done* of it by the child in shared memory,
so that an event is nothing but a pair (queue, count) and needs no message of its own: it has happened once ``done`` of
that queue has reached the count.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from dataclasses import dataclass
from math import prod
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cbprof.engine.devices.base import Program, StreamKind
from cbprof.engine.layout import SlotLayout

if TYPE_CHECKING:
    from cbprof.engine.model.spec import ModelSpec


COMMAND = Struct("<iiq")
"""``(index in PROGRAMS, slot, bucket)`` or ``(WAIT, queue, count)``; so short that a pipe never tears it apart."""

WAIT = -1
PROGRAMS: tuple[Program, ...] = ("h2d", "step", "d2h")
QUEUES: tuple[StreamKind, ...] = ("h2d", "compute", "d2h")
"""The id of a queue is its index here."""


@dataclass(frozen=True)
class Setup:
    """The first message to the child: what to build, and the numbers of the file descriptors that it inherited."""

    factory: str
    spec: ModelSpec
    layout: SlotLayout
    num_blocks: int
    slots: int
    ring: int
    memory: int
    pipes: tuple[int, ...]
    wake: int


@dataclass(frozen=True)
class SharedMemory:
    """Memory that both processes map: the "pinned" buffers of the slots, and how far each queue has come."""

    done: npt.NDArray[np.int64]
    """[queues] Commands finished, waits included."""
    executed: npt.NDArray[np.int64]
    """[queues] Operations (programs run) finished."""
    stamps: npt.NDArray[np.int64]
    """[queues, ring, 2] Start and end of each queue's last ``ring`` operations, in ns of the monotonic clock."""
    inputs: npt.NDArray[np.int32]
    """[slots, input_size]"""
    outputs: npt.NDArray[np.int32]
    """[slots, output_size]"""

    @classmethod
    def map(cls, descriptor: int, layout: SlotLayout, *, slots: int, ring: int) -> SharedMemory:
        """Lay the arrays over an anonymous file, which the first process to come finds empty and all zero."""
        queues = len(QUEUES)
        wide = {"done": (queues,), "executed": (queues,), "stamps": (queues, ring, 2)}
        narrow = {"inputs": (slots, layout.input_size), "outputs": (slots, layout.output_size)}
        size = 8 * sum(map(prod, wide.values())) + 4 * sum(map(prod, narrow.values()))
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        arrays, offset = {}, 0
        for shapes, dtype in ((wide, np.int64), (narrow, np.int32)):
            for name, shape in shapes.items():
                arrays[name] = np.ndarray(shape, dtype, buffer=memory, offset=offset)
                offset += arrays[name].nbytes
        return cls(**arrays)


def anonymous_file() -> int:
    """A descriptor of a file without a name: it is gone with the last process that has it, however that one ends."""
    if sys.platform == "linux":
        return os.memfd_create("cbprof")
    descriptor, path = tempfile.mkstemp(prefix="cbprof")
    os.unlink(path)
    return descriptor


class Cores:
    """The cores that the calling thread may use when this is made, and what it may use from then on.

    Threads and processes inherit the cores of the thread that starts them.
    """

    def __init__(self) -> None:
        self._all = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def leave_last(self) -> None:
        """Keep the calling thread off the last core."""
        self._use(self._all[:-1])

    def take_last(self) -> None:
        """Keep the calling thread on the last core."""
        self._use(self._all[-1:])

    def use_all(self) -> None:
        """Undo what was done to the calling thread."""
        self._use(self._all)

    def _use(self, cores: list[int]) -> None:
        if len(self._all) > 1:
            os.sched_setaffinity(0, cores)
