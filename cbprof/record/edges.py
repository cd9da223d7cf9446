"""Which stream waits for which: the orderings of a run as it was queued, whatever the timing then was.

A race that timing hid leaves no trace in the spans. But an ordering event that was never recorded, or never waited
for, is missing here, in every run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from cbprof.meta import Edge

if TYPE_CHECKING:
    from cbprof.engine.devices.base import Event, Stream, StreamKind

Waiter = Literal["h2d", "compute", "d2h", "host"]


class _Record(NamedTuple):
    """The latest record of an event. Holding the event keeps its id from being used again."""

    event: Event
    stream: StreamKind
    step: int


class EdgeCounter:
    """Counts the distinct edges among the records and waits of a run, given in the order of their calls."""

    def __init__(self) -> None:
        self._latest: dict[int, _Record] = {}
        self._counts: Counter[tuple[str, StreamKind | None, Waiter, int | None]] = Counter()

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        self._latest[id(event)] = _Record(event, stream.kind, step)

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        record = self._latest.get(id(event))
        who: Waiter = "host" if waiter is None else waiter.kind
        if record is None:
            self._counts[event.name, None, who, None] += 1
        else:
            self._counts[event.name, record.stream, who, step - record.step] += 1

    def edges(self) -> list[Edge]:
        """The edges so far, in the order in which they were first seen."""
        return [Edge(*edge, count) for edge, count in self._counts.items()]
