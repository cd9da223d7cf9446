"""Which host lane a span belongs to: one for each thread, and one for each asyncio task that is under way.

The spans of a thread nest, since its calls do. Those of two tasks on one thread do not: while one waits inside its
phase, another opens and closes its own. So a task has a lane of its own, which the next task takes over once it is
done: there are as many as tasks were ever under way at once, not as many as there were tasks.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio.events import _get_running_loop as running_loop  # asyncio.current_task() raises where there is none
from collections.abc import Callable, Iterator
from itertools import count
from weakref import WeakKeyDictionary

from cbprof.trace import Lane

Task = asyncio.Task[object]

MAIN = "main"


class HostLanes:
    """The lanes of the threads and tasks that ask for theirs.

    ``joins`` is called on each thread with the name of its lane, when it asks for the first time or is renamed.
    """

    def __init__(self, joins: Callable[[str], object] = lambda name: None) -> None:
        self._joins = joins
        self._of_thread = threading.local()
        self._of_task: WeakKeyDictionary[Task, Lane] = WeakKeyDictionary()
        self._taken: set[str] = set()
        self._lock = threading.Lock()
        self.in_use = False
        """Whether any thread or task has a lane."""

    def current(self) -> Lane:
        """The lane of the calling thread or task. After the first call some 0.2 us."""
        if (loop := running_loop()) is not None and (task := asyncio.current_task(loop)) is not None:
            return self._of_task.get(task) or self._new_task(task)
        try:
            lane: Lane = self._of_thread.lane
        except AttributeError:
            lane = self._of_thread.lane = self._take(_numbered(_thread_name()))
            self._joins(lane.name)
        return lane

    def known(self) -> Lane | None:
        """The same if there is one already; takes no lock."""
        if (loop := running_loop()) is not None and (task := asyncio.current_task(loop)) is not None:
            return self._of_task.get(task)
        return getattr(self._of_thread, "lane", None)

    def rename(self, name: str) -> None:
        """From now on the calling thread or task has a lane of this name, which it may share with others."""
        self.in_use = True
        task = None if (loop := running_loop()) is None else asyncio.current_task(loop)
        if task is None:
            self._of_thread.lane = Lane(name)
            self._joins(name)
        else:
            self._of_task[task] = Lane(name)

    def _new_task(self, task: Task) -> Lane:
        thread = _thread_name()
        lane = self._of_task[task] = self._take(f"{thread} task {number}" for number in count(1))
        task.add_done_callback(lambda _: self._taken.discard(lane.name))
        return lane

    def _take(self, names: Iterator[str]) -> Lane:
        """The first of the names that is free."""
        with self._lock:
            name = next(name for name in names if name not in self._taken)
            self._taken.add(name)
            self.in_use = True
        return Lane(name)


def _thread_name() -> str:
    thread = threading.current_thread()
    return MAIN if thread is threading.main_thread() else thread.name


def _numbered(name: str) -> Iterator[str]:
    """NAME, NAME 2, NAME 3, ..."""
    yield name
    yield from (f"{name} {number}" for number in count(2))
