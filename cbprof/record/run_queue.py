"""How long the threads that record had a core, and how long they stood in line for one, as the kernel accounts it.

Read once when a thread is first seen, and then on the drain's thread: an engine's thread pays for one read, ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from cbprof.meta import ThreadTime

PERIOD_S = 1.0
"""Between two readings of all threads, each some 8 us of the drain's thread. One that ends loses no more than this."""


class SchedStat(NamedTuple):
    """Since the thread began, in nanoseconds: on a core, and ready for one but not on it."""

    run_ns: int
    wait_ns: int


def schedstat(thread: int) -> SchedStat | None:
    """Of a thread of this process, by its native id. None where it has ended or the kernel keeps no account."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            run, wait, *_ = file.read().split()
            return SchedStat(int(run), int(wait))
    except (OSError, ValueError):
        return None


class _Thread:
    __slots__ = ("first", "lane", "last")

    def __init__(self, lane: str, first: SchedStat) -> None:
        self.lane, self.first, self.last = lane, first, first


class RunQueue:
    """:meth:`joins` is called on each thread that records, :meth:`sample` on any, now and then and at the end."""

    def __init__(self, read: Callable[[int], SchedStat | None] = schedstat) -> None:
        self._read = read
        self._threads: dict[int, _Thread] = {}  # those that have not ended, as far as we know
        self._ended: list[_Thread] = []
        self._this = threading.local()
        self._due_s = 0.0

    def joins(self, lane: str) -> None:
        """The calling thread records on ``lane`` from now on."""
        known: _Thread | None = getattr(self._this, "thread", None)
        if known is not None:
            known.lane = lane
            return
        number = threading.get_native_id()
        if (first := self._read(number)) is not None:
            self._leaves(number)  # the kernel gives the numbers of threads that ended to new ones
            self._this.thread = self._threads[number] = _Thread(lane, first)

    def sample_if_due(self, now_s: float) -> None:
        """:meth:`sample`, but not more often than every :data:`PERIOD_S`, however often the drain is woken."""
        if now_s >= self._due_s:
            self._due_s = now_s + PERIOD_S
            self.sample()

    def sample(self) -> None:
        """Read the account of every thread anew. One that ends keeps what was read last."""
        for number, thread in tuple(self._threads.items()):
            now = self._read(number)
            if now is None or now.run_ns < thread.last.run_ns:
                self._leaves(number)
            else:
                thread.last = now

    def times(self) -> tuple[ThreadTime, ...]:
        """Up to the last sample, by thread; without those that, by the kernel's account, never ran."""
        every = (*self._ended, *self._threads.values())
        times = (
            ThreadTime(each.lane, each.last.run_ns - each.first.run_ns, each.last.wait_ns - each.first.wait_ns)
            for each in every
        )
        return tuple(time for time in times if time.run_ns)

    def _leaves(self, number: int) -> None:
        with suppress(KeyError):
            self._ended.append(self._threads.pop(number))
