"""Sets of time: disjoint, sorted, half-open intervals in integer nanoseconds.

Every figure of cbprof is the length of such a set, so a union is always taken before a sum. All operations are
vectorised and exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.trace import Int64, Trace


class Overlaps(NamedTuple):
    """The pieces where an interval ``a`` meets an interval ``b``, in the order of time, one row a piece.

    ``a`` and ``b`` index the intervals that meet; ``start`` and ``end`` bound the common time (end > start).
    """

    a: Int64
    b: Int64
    start: Int64
    end: Int64


def overlaps(a_start: Int64, a_end: Int64, b_start: Int64, b_end: Int64) -> Overlaps:
    """Where two tables of intervals meet. Within each table they are sorted and disjoint; they may touch."""
    if len(a_start) > len(b_start):
        a, b, start, end = overlaps(b_start, b_end, a_start, a_end)
        return Overlaps(b, a, start, end)
    first = np.searchsorted(b_end, a_start, side="right")
    count = np.maximum(np.searchsorted(b_start, a_end, side="left") - first, 0)
    a = np.repeat(np.arange(len(a_start)), count)
    # Row k of the j-th interval of `a` meets b[first[j] + k].
    first -= np.cumsum(count) - count
    b = first[a]
    b += np.arange(len(a))
    start = a_start[a]
    np.maximum(start, b_start[b], out=start)
    end = a_end[a]
    np.minimum(end, b_end[b], out=end)
    met = end > start
    if met.all():  # as it is unless some interval is empty; a large trace needs the room of a copy
        return Overlaps(a, b, start, end)
    return Overlaps(a[met], b[met], start[met], end[met])


_FEW_TURNS = 1000


def count_until(ascending: Int64, time: Int64) -> Int64:
    """For each instant, how many of the ascending values are not after it.

    A binary search of each instant among the values. Where the instants ascend too, as they do lane by lane, and
    outnumber the values, it searches each value among the instants instead, which is several times as fast.
    """
    if not len(time):
        return np.zeros(0, dtype=np.int64)
    turns = np.flatnonzero(time[1:] < time[:-1]) + 1
    if len(turns) > _FEW_TURNS:
        return np.searchsorted(ascending, time, side="right")
    if len(turns):
        return np.concatenate([count_until(ascending, part) for part in np.split(time, turns)])
    first, last = np.searchsorted(ascending, time[[0, -1]], side="right")
    if len(time) <= last - first:
        return np.asarray(first + np.searchsorted(ascending[first:last], time, side="right"))
    first_at = np.searchsorted(time, ascending[first:last], side="left")  # the first instant that a value is not after
    return np.asarray(first + np.cumsum(np.bincount(first_at, minlength=len(time))))


Groups = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of instants as disjoint, sorted, non-touching intervals [start, end) of at least 1 ns.

    Build one with :func:`union`, which brings arbitrary spans into this form.
    """

    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length_ns(self) -> Int64:
        """The length of each interval."""
        length: Int64 = self.end - self.start
        return length

    @property
    def total_ns(self) -> int:
        """The measure of the set."""
        return int(self.length_ns.sum())

    def before(self, time: Int64) -> Int64:
        """How many nanoseconds of the set lie before each instant: a running sum, looked up."""
        begin, so_far = self._running
        position = count_until(self.end, time)
        into = begin[position]
        measure: Int64 = np.maximum(time, into)  # first, since a negative time less the end of time overflows
        measure -= into
        measure += so_far[position]
        return measure

    @cached_property
    def _running(self) -> tuple[Int64, Int64]:
        """Where each interval begins, and the measure of the set before that; one more row for the end of time."""
        so_far = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.length_ns, out=so_far[1:])
        return np.append(self.start, np.iinfo(np.int64).max), so_far

    def within(self, start: Int64, end: Int64) -> Int64:
        """For each span [start, end), how many of its nanoseconds the set covers. The spans may overlap."""
        return self.before(end) - self.before(start)

    def clip(self, a: int, b: int) -> Intervals:
        """What lies within [a, b)."""
        if not len(self) or (a <= self.start[0] and self.end[-1] <= b):
            return self
        start, end = np.maximum(self.start, a), np.minimum(self.end, b)
        kept = end > start
        return Intervals(start[kept], end[kept])

    def intersect(self, other: Intervals) -> Intervals:
        """What lies in both. Pieces cannot touch, since neither operand has touching intervals."""
        both = overlaps(self.start, self.end, other.start, other.end)
        return Intervals(both.start, both.end)

    def complement(self, a: int, b: int) -> Intervals:
        """What of [a, b) is not in the set."""
        within = self.clip(a, b)
        start = np.concatenate((np.array([a], dtype=np.int64), within.end))
        end = np.concatenate((within.start, np.array([b], dtype=np.int64)))
        kept = end > start
        return Intervals(start[kept], end[kept])

    def subtract(self, other: Intervals) -> Intervals:
        """What lies in this set and not in ``other``."""
        if not len(self) or not len(other):
            return self
        return self.intersect(other.complement(int(self.start[0]), int(self.end[-1])))


EMPTY = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
"""The set without an instant."""


def union(start: Int64, end: Int64) -> Intervals:
    """The set that the spans [start, end) cover, in any order, nested or overlapping. Empty spans add nothing."""
    kept = end > start
    if not kept.all():
        start, end = start[kept], end[kept]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)  # how far the spans so far extend
    opens = np.flatnonzero(start[1:] > reach[:-1]) + 1
    return Intervals(start[np.concatenate(([0], opens))], reach[np.concatenate((opens - 1, [len(reach) - 1]))])


def unions_by(group: Groups, start: Int64, end: Int64) -> tuple[Groups, Int64, Int64]:
    """The set that the spans of each group cover, all at once: group, start and end of every interval, in this order.

    The intervals of a group are as :func:`union` makes them.
    """
    order = np.lexsort((start, group))
    order = order[end[order] > start[order]]
    group, start, end = group[order], start[order], end[order]
    if not len(order):
        return group, start, end
    # How far the spans of a group so far extend: a running maximum of the ranks of ends, a group above the one before.
    new = np.concatenate(([True], group[1:] != group[:-1]))
    floor = (np.cumsum(new) - 1) * len(order)
    by_end = np.argsort(end, kind="stable")
    rank = np.empty_like(by_end)
    rank[by_end] = np.arange(len(order))
    reach = end[by_end[np.maximum.accumulate(rank + floor) - floor]]
    opens = np.flatnonzero(new | np.concatenate(([True], start[1:] > reach[:-1])))
    return group[opens], start[opens], reach[np.concatenate((opens[1:] - 1, [len(order) - 1]))]


def union_of(trace: Trace, rows: Int64 | npt.NDArray[np.bool_]) -> Intervals:
    """The set that some spans of a trace cover, by their rows or a mask."""
    return union(trace.start_ns[rows], trace.end_of(rows))


def sum_by(group: Groups, value: Int64, size: int) -> Int64:
    """The sum of the values of each group 0..size-1, in exact integers."""
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, group, value)
    return total


def union_by(group: Groups, start: Int64, end: Int64, size: int) -> Int64:
    """The nanoseconds that the spans of each group 0..size-1 cover together."""
    if not len(start):
        return np.zeros(size, dtype=np.int64)
    apart = (group[1:] > group[:-1]) | ((group[1:] == group[:-1]) & (start[1:] >= end[:-1]))
    if apart.all():  # one after the other, group by group: the union is the sum
        return sum_by(group, np.maximum(end - start, 0), size)
    group, start, end = unions_by(group, start, end)
    return sum_by(group, end - start, size)
