"""Garbage collections, recorded as work of the thread that they stop: a cause of idle time that no phase names."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

from cbprof.record.lanes import HostLanes
from cbprof.trace import Lane

GARBAGE_COLLECTION = "garbage collection"

LEAST_NS = 100_000
"""Shorter ones stay in the phase that they hit: young generations are collected thousands of times a second."""

ELSEWHERE = Lane("other threads")
"""For collections on a thread that no phase was seen on: they stop the others too, which need the GIL."""

Note = Callable[[Lane, int, int, Mapping[str, Any]], None]


class GarbageCollections:
    """Calls ``note`` with the lane, the times and the facts of each collection, between :meth:`begin` and :meth:`end`.

    A collection begins wherever an object is made, in a lock of this very thread too: so nothing here takes one.
    """

    def __init__(self, lanes: HostLanes, now: Callable[[], int], note: Note) -> None:
        self._lanes, self._now, self._note = lanes, now, note
        self._start_ns = 0

    def begin(self) -> None:
        gc.callbacks.append(self._collecting)

    def end(self) -> None:
        """Safe to call twice."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        now_ns = self._now()
        if phase == "start":
            self._start_ns = now_ns
        elif now_ns - self._start_ns >= LEAST_NS and self._start_ns:
            facts = {"generation": info["generation"], "collected": info["collected"]}
            lane = self._lanes.known() or (ELSEWHERE if self._lanes.in_use else None)
            if lane is not None:  # before the first phase there is nobody to stop
                self._note(lane, self._start_ns, now_ns, facts)
