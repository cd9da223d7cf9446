"""Launches by flow events: an arrow leads from the span that launched to the span that was launched.

::

    host       | replay |                      s: starts at this span
                   \\______________
    stream                        | kernel | kernel |    f: ends at the first kernel, at its start
    graph                         |--- decoder -----|    the ranges of a graph cover all kernels of its replay

For files whose device events carry no id of their launch. Kineto draws such arrows too (``ac2g``), beside its ids;
those are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.formats.kineto.rows import Role, Rows
from cbprof.formats.kineto.scalars import Arrow, Scalar
from cbprof.trace import NONE, Int32, Int64


class End(NamedTuple):
    """One end of an arrow: ``id`` tells which, ``row`` is the number of its (pid, tid)."""

    begins: bool
    id: object
    row: int
    time_ns: int


def links_of_arrows(
    start: Int64,
    dur: Int64,
    where: Int32,
    on_device: npt.NDArray[np.bool_],
    rows: Rows,
    arrows: Sequence[Arrow],
) -> Int64:
    """A link for each span of a file, which a launch shares with what it launched; -1 for all others.

    ``where``: the row of each span, a number in ``rows``.
    """
    numbers: dict[tuple[Scalar, Scalar], int] = {}
    number = [numbers.setdefault((each.pid, each.tid), len(numbers)) for each in rows.wheres]
    ends = [
        End(arrow.begins, arrow.id, numbers[arrow.pid, arrow.tid], arrow.time_ns)
        for arrow in arrows
        if (arrow.pid, arrow.tid) in numbers
    ]
    link = links_by_flow(start, dur, np.array(number, dtype=np.int32)[where], on_device, ends)
    stream = [(each.pid, each.stream) for each in rows.wheres]
    for at, role in enumerate(rows.roles):
        if role is Role.RANGES:
            kernels = on_device & np.isin(where, [row for row, each in enumerate(stream) if each == stream[at]])
            link = within_replays(link, start, dur, np.flatnonzero(kernels), np.flatnonzero(where == at))
    return link


class _Row(NamedTuple):
    """The spans of one row, in the order of (start, longest first)."""

    spans: Int64
    start: Int64
    end: Int64

    def covering(self, time: int) -> int:
        """The span that started last by then, if it is not over; else -1."""
        at = int(np.searchsorted(self.start, time, side="right")) - 1
        return int(self.spans[at]) if at >= 0 and self.end[at] >= time else NONE


def links_by_flow(start: Int64, dur: Int64, row: Int32, on_device: npt.NDArray[np.bool_], ends: Sequence[End]) -> Int64:
    """A link for each span, which a launch shares with what it launched; -1 for all others.

    ``row``: the number of the (pid, tid) that each span stands on. An arrow is bound to the span of its row that
    started last by its time, the innermost.
    """
    link = np.full(len(start), NONE, dtype=np.int64)
    rows = {number: _row(start, dur, np.flatnonzero(row == number)) for number in {end.row for end in ends}}
    source: dict[object, int] = {}
    for end in ends:
        span = rows[end.row].covering(end.time_ns) if end.begins else NONE
        if span != NONE and not on_device[span]:
            source[end.id] = span
    for end in ends:
        span = NONE if end.begins else rows[end.row].covering(end.time_ns)
        if span != NONE and on_device[span] and end.id in source:
            link[span] = link[source[end.id]] = source[end.id]
    return link


def within_replays(link: Int64, start: Int64, dur: Int64, kernels: Int64, ranges: Int64) -> Int64:
    """The links with those of replays filled in: ``kernels`` of one stream, ``ranges`` of its graphs (rows of both).

    An exporter draws one arrow for a replay, to its first kernel. The kernels after that belong to it as long as ranges
    of the graph cover them, without a hole in between.
    """
    filled, last, until = link.copy(), NONE, NONE
    cover = _row(start, dur, ranges)
    finish = np.maximum.accumulate(cover.end) if len(ranges) else cover.end
    for kernel in _row(start, dur, kernels).spans.tolist():
        if link[kernel] != NONE:
            last, until = int(link[kernel]), _end_of_cover(cover.start, finish, int(start[kernel]))
        elif last != NONE and start[kernel] < until:
            filled[kernel] = last
    return filled


def _end_of_cover(start: Int64, finish: Int64, time: int) -> int:
    """Until when ranges cover, without a hole, what begins at ``time``; ``time`` where none does."""
    at = int(np.searchsorted(start, time, side="right")) - 1
    if at < 0 or finish[at] <= time:
        return time
    while at + 1 < len(start) and start[at + 1] < finish[at]:
        at += 1
    return int(finish[at])


def _row(start: Int64, dur: Int64, spans: Int64) -> _Row:
    spans = spans[np.lexsort((-dur[spans], start[spans]))]
    return _Row(spans, start[spans], start[spans] + dur[spans])
