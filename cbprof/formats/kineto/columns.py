"""Gathers the spans of a Chrome trace in columns, a batch of events at a time.

What repeats is numbered: (category, name, and mark if any) as ``what``, (pid, tid, device, stream) as ``where``. The
rules of what an event means are then applied once to each of them, not to each span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cbprof.formats.kineto.events import (
    ANY_VALUES,
    FLOAT_TIMES,
    TEXT_TIMES,
    Args,
    Batch,
    TextEvent,
    decode_array,
    narrowed,
)
from cbprof.formats.kineto.scalars import BESIDE_IDS, MARKED, Arrow, Scalar, is_of_launch
from cbprof.trace import NONE, Int32, Int64

EXACT_BELOW_US = float(2**43)

# Times and durations beyond 146 years are not believed, so that an end never overflows int64.
MAX_NS = 1 << 62

NOT_A_TIME = np.iinfo(np.int64).min
"""Stands where a file has no time, or one that is not finite or beyond ``MAX_NS``."""


def from_floats(microseconds: npt.NDArray[np.float64]) -> Int64 | None:
    """The nanoseconds of each value; None where one is so large that only its text is exact."""
    exact = np.abs(microseconds) < EXACT_BELOW_US
    if exact.all():
        return _nanoseconds(microseconds)
    if (np.isfinite(microseconds) & ~exact).any():
        return None
    return np.where(exact, _nanoseconds(np.where(exact, microseconds, 0)), NOT_A_TIME)


def _nanoseconds(microseconds: npt.NDArray[np.float64]) -> Int64:
    whole = np.floor(microseconds)  # exact, and so is the difference
    ns = whole.astype(np.int64)
    ns *= 1000
    ns += np.rint((microseconds - whole) * 1000).astype(np.int64)
    return ns


def from_text(text: bytes) -> int:
    """The nanoseconds of a number, or of a string that holds one."""
    text = text.strip(b'" \t\r\n')
    whole, point, fraction = text.partition(b".")
    if whole.isdigit() and (fraction.isdigit() or not point) and len(whole) <= 16 and len(fraction) <= 3:
        ns = int(whole) * 1000 + int(fraction.ljust(3, b"0"))
        return ns if ns < MAX_NS else NOT_A_TIME
    try:
        value = Decimal(text.decode("ascii"))
        return round(value * 1000) if value.is_finite() and abs(value) < MAX_NS // 1000 else NOT_A_TIME
    except (ArithmeticError, ValueError):
        return NOT_A_TIME


Key = TypeVar("Key", bound=Hashable)
_What = tuple[str | None, str] | tuple[str | None, str, str]

_INTERNED_LINKS_FROM = 1 << 62
_ARROWS = frozenset({"s", "f"})
_AT_THE_END = 1 << 62  # the place of spans that come from two events
_NO_ARGS = Args()


class Numbers(dict[Key, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Key) -> int:
        number = self[key] = len(self)
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Columns of spans in the order of the file. Times may be ``NOT_A_TIME``, ``link`` -1; the rest are numbers."""

    start_ns: Int64
    dur_ns: Int64
    link: Int64
    what: Int32
    where: Int32

    def __len__(self) -> int:
        return len(self.start_ns)


class _Edge(NamedTuple):
    """The beginning (``B``) or the end (``E``) of a span."""

    begins: bool
    time_ns: int
    event: TextEvent


@dataclass(slots=True)
class Collector:
    """All spans so far, the names and labels of processes and the names of threads, and the arrows of launches.

    ``n_events`` counts the events of any phase. ``n_unmatched`` counts the ``B`` events without an end, once the spans
    have been taken. ``needs_text`` turns True at the first time that float64 cannot hold.
    """

    whats: Numbers[_What] = field(default_factory=Numbers)
    wheres: Numbers[tuple[Scalar, Scalar, Scalar, Scalar]] = field(default_factory=Numbers)
    thread_names: dict[tuple[Scalar, Scalar], str] = field(default_factory=dict)
    process_names: dict[Scalar, str] = field(default_factory=dict)
    process_labels: dict[Scalar, str] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    n_events: int = 0
    n_unmatched: int = 0
    has_phases: bool = False
    needs_text: bool = False
    _parts: list[tuple[int, Spans]] = field(default_factory=list)  # and the place of their batch
    _edges: list[_Edge] = field(default_factory=list)
    _large_links: Numbers[int | str] = field(default_factory=Numbers)

    def add(self, batch: Batch) -> None:
        """Take the spans of a batch."""
        events: Sequence[Any] = batch.events
        if batch.record == ANY_VALUES:
            events = [narrowed(event) for event in events]
        self.n_events += len(events)
        self.has_phases = self.has_phases or any(event.ph for event in events)
        spans = [event for event in events if event.ph == "X"]
        if batch.record == FLOAT_TIMES:
            floats = [event.ts for event in spans], [event.dur for event in spans]
            times = from_floats(np.array(floats, dtype=np.float64))
            if times is not None:
                self._add_spans(batch.place, spans, *times)
                self._add_others(events)
                return
            self.needs_text = True
            events, _ = decode_array(batch.text, TEXT_TIMES)
            spans = [event for event in events if event.ph == "X"]
        start = np.array([from_text(bytes(event.ts)) for event in spans], dtype=np.int64)
        dur = np.array([from_text(bytes(event.dur)) for event in spans], dtype=np.int64)
        self._add_spans(batch.place, spans, start, dur)
        self._add_others(events)

    def absorb(self, other: Collector) -> None:
        """Take everything that another one has collected of the same file."""
        what = np.array([self.whats[key] for key in other.whats], dtype=np.int32)
        where = np.array([self.wheres[key] for key in other.wheres], dtype=np.int32)
        large = np.array([_INTERNED_LINKS_FROM + self._large_links[key] for key in other._large_links], dtype=np.int64)
        for place, spans in other._parts:
            link = spans.link
            interned = link >= _INTERNED_LINKS_FROM
            if interned.any():
                link = np.where(interned, large[np.where(interned, link - _INTERNED_LINKS_FROM, 0)], link)
            self._parts.append((place, replace(spans, link=link, what=what[spans.what], where=where[spans.where])))
        self._edges += other._edges
        self.thread_names |= other.thread_names
        self.process_names |= other.process_names
        self.process_labels |= other.process_labels
        self.arrows += other.arrows
        self.n_events += other.n_events
        self.has_phases = self.has_phases or other.has_phases

    @property
    def n_spans(self) -> int:
        return sum(len(spans) for _, spans in self._parts) + len(self._edges)

    def spans(self) -> Spans:
        """All of them, with those whose beginning and end are events of their own at the end."""
        self._match_edges()
        parts = [_NOTHING, *(spans for _, spans in sorted(self._parts, key=lambda part: part[0]))]
        self._parts.clear()
        columns = zip(*((part.start_ns, part.dur_ns, part.link, part.what, part.where) for part in parts), strict=True)
        return Spans(*(np.concatenate(column) for column in columns))

    def _add_spans(self, place: int, events: Sequence[Any], start: Int64, dur: Int64) -> None:
        whats, wheres, args = self.whats, self.wheres, [event.args or _NO_ARGS for event in events]
        what = [
            whats[event.cat, event.name] if arg.name is None else whats[_marked(event)]
            for event, arg in zip(events, args, strict=True)
        ]
        where = [wheres[event.pid, event.tid, arg.device, arg.stream] for event, arg in zip(events, args, strict=True)]
        columns = (start, dur, self._links(args), np.array(what, dtype=np.int32), np.array(where, dtype=np.int32))
        self._parts.append((place, Spans(*columns)))

    def _links(self, args: Sequence[Args]) -> Int64:
        """Correlation ids as int64. Ids that do not fit are numbered from ``_INTERNED_LINKS_FROM`` up: none collide."""
        links: list[Any] = [arg.correlation_id if arg.correlation is None else arg.correlation for arg in args]
        try:
            column = np.array(links, dtype=np.int64) if links else np.empty(0, dtype=np.int64)
            if column.max(initial=0) < _INTERNED_LINKS_FROM and column.min(initial=0) >= NONE:
                return column
        except (OverflowError, ValueError):
            pass
        return np.array([self._link(link) for link in links], dtype=np.int64)

    def _link(self, link: int | str) -> int:
        try:
            number = int(link)
        except ValueError:
            return _INTERNED_LINKS_FROM + self._large_links[link]
        return number if NONE <= number < _INTERNED_LINKS_FROM else _INTERNED_LINKS_FROM + self._large_links[number]

    def _add_others(self, events: Sequence[Any]) -> None:
        """Take the names of processes and threads, the events that begin or end a span, and the arrows of launches."""
        for event in events:
            if event.ph == "X" or (event.cat in BESIDE_IDS and event.ph in _ARROWS):  # nearly all
                continue
            if event.ph == "M" and event.args and isinstance(event.args.name, str):
                if event.name == "thread_name":
                    self.thread_names[event.pid, event.tid] = event.args.name
                elif event.name == "process_name":
                    self.process_names[event.pid] = event.args.name
            elif event.ph == "M" and event.args and isinstance(event.args.labels, str):
                self.process_labels[event.pid] = event.args.labels
            elif event.ph in {"B", "E"}:
                self._edges.append(_Edge(event.ph == "B", _time_of(event), event))
            elif event.ph in _ARROWS and is_of_launch(event.name, event.cat):
                named = (event.cat, event.name, str(event.id))
                self.arrows.append(Arrow(event.ph == "s", named, event.pid, event.tid, _time_of(event)))

    def _match_edges(self) -> None:
        """An ``E`` ends the last ``B`` of its name that is open on its thread; without a name, the last one."""
        edges = sorted((edge for edge in self._edges if edge.time_ns != NOT_A_TIME), key=lambda edge: edge.time_ns)
        self.n_unmatched += sum(edge.begins for edge in self._edges)
        threads: dict[tuple[Scalar, Scalar], _Open] = {}
        matched: list[tuple[_Edge, _Edge]] = []
        for edge in edges:
            opened = threads.setdefault((edge.event.pid, edge.event.tid), _Open())
            if edge.begins:
                opened.add(edge)
            elif (begin := opened.end(edge.event.name)) is not None:
                matched.append((begin, edge))
        self.n_unmatched -= len(matched)
        self._edges.clear()
        if matched:
            start = np.array([begin.time_ns for begin, _ in matched], dtype=np.int64)
            end = np.array([end.time_ns for _, end in matched], dtype=np.int64)
            self._add_spans(_AT_THE_END, [begin.event for begin, _ in matched], start, end - start)


def _marked(event: Any) -> _What:
    """The key of a span whose arguments hold a name: a mark, where it is work of a device."""
    key = event.cat, event.name
    return (*key, event.args.name) if event.cat in MARKED and isinstance(event.args.name, str) else key


class _Open:
    """The ``B`` events of a thread that are open. Each is added once and taken away once, however many there are."""

    def __init__(self) -> None:
        self._stack: list[_Edge] = []
        self._n_of_name: Counter[str] = Counter()

    def add(self, edge: _Edge) -> None:
        self._stack.append(edge)
        self._n_of_name[edge.event.name] += 1

    def end(self, name: str) -> _Edge | None:
        """Take the last of this name (of any, if it is empty) and all that were opened in it. None if there is none."""
        if not (self._n_of_name[name] if name else self._stack):
            return None
        while True:
            edge = self._stack.pop()
            self._n_of_name[edge.event.name] -= 1
            if name in ("", edge.event.name):
                return edge


def _time_of(event: Any) -> int:
    """The start of one event, which is decoded in either way."""
    if isinstance(event.ts, float | None):
        ns = from_floats(np.array([event.ts], dtype=np.float64))
        return NOT_A_TIME if ns is None else int(ns[0])
    return from_text(bytes(event.ts))


_NOTHING = Spans(*(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.int64, np.int32, np.int32)))  # type: ignore[arg-type]
