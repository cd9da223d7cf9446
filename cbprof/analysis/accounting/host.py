"""What the host did at each instant: the innermost span of each lane, and which lanes drive a device.

::

    schedule   ......[---------------------]............
      evict    ...........[-----]........................
    innermost        |sch | evi |  schedule |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.intervals import Intervals, overlaps, sum_by, union
from cbprof.analysis.accounting.launched import Known, known
from cbprof.analysis.accounting.lookup import last_match
from cbprof.names import naming, waits
from cbprof.trace import NONE, Int8, Int32, Int64, Kind, Trace, one_of, take_or

PART = 1 << 18
"""Segments that are looked at in one go where a column of all would be large."""

_MANY_LEVELS = 1 << 15  # of nested spans: fewer fit into 16 bits, which numpy sorts in linear time

WAITING_SHARE = 0.95
"""Of its time a thread waits that does nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class HostTimeline:
    """The host's time cut into segments, each with the innermost span that covers it.

    Sorted by (lane, start); the segments of a lane are disjoint and may touch. Time without a span has no segment.
    Only ``cpu.work`` and ``cpu.wait`` spans count: annotations say nothing about whether the host was busy. In the
    trace of a profiler they do count, since there an annotation is often all that is known of what the host did.

    ``span``: index of the innermost span. ``lane``, ``kind``: of that span. ``launch_of``: for each span of the trace
    (its whole length), the host span that launched it on its device, or -1. ``launch_pairs``: [pairs, 3], a host lane,
    a lane that it launched spans of, and how many. ``parent``: for each span of the host, the one directly around it,
    or -1. ``label_of``: for each name of the trace an index of ``labels``, where names of one thing are one. ``known``:
    of launches (see :mod:`cbprof.analysis.accounting.launched`); what other devices than its own ran counts as
    launched by nobody.
    """

    start: Int64
    end: Int64
    span: Int64
    lane: Int32
    kind: Int8
    launch_of: Int64
    launch_pairs: Int64
    parent: Int32
    label_of: Int32
    labels: tuple[str, ...]
    known: Known

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length_ns(self) -> Int64:
        return self.end - self.start

    @property
    def understood(self) -> frozenset[int]:
        """The devices of which something can be said that rests on launches."""
        return self.known.devices

    @property
    def working(self) -> npt.NDArray[np.bool_]:
        """Mask of the segments in which the host works rather than waits."""
        mask: npt.NDArray[np.bool_] = self.kind != Kind.CPU_WAIT
        return mask

    @property
    def lanes(self) -> Int32:
        """The lanes that have a segment."""
        return distinct(self.lane)

    def select(self, mask: npt.NDArray[np.bool_]) -> HostTimeline:
        """The segments where ``mask`` holds."""
        if mask.all():
            return self
        return self._segments(self.start[mask], self.end[mask], mask)

    def _segments(self, start: Int64, end: Int64, rows: npt.NDArray[Any] | slice) -> HostTimeline:
        """Segments from these rows, with other bounds."""
        return replace(self, start=start, end=end, span=self.span[rows], lane=self.lane[rows], kind=self.kind[rows])

    def in_parts(self) -> Iterator[HostTimeline]:
        """The same, so many segments at a time that a column of them is small: there are more of them than spans."""
        for first in range(0, len(self), PART):
            part = slice(first, first + PART)
            yield self._segments(self.start[part], self.end[part], part)

    def within(self, zone: Intervals) -> HostTimeline:
        """The parts of the segments that lie in a set of time."""
        if not len(self):
            return self
        edges = [0, *(np.flatnonzero(np.diff(self.lane)) + 1).tolist(), len(self)]
        parts = []
        for first, last in pairwise(edges):  # one lane after the other
            start, end = self.start[first:last], self.end[first:last]
            near = slice(*np.searchsorted(zone.end, start[:1], "right"), *np.searchsorted(zone.start, end[-1:]))
            met = overlaps(start, end, zone.start[near], zone.end[near])
            parts.append((met.start, met.end, met.a + first))
        start, end, rows = map(_joined, zip(*parts, strict=True))
        return self._segments(start, end, rows)

    def outside(self, zone: Intervals) -> HostTimeline:
        """The parts of the segments that do not."""
        if not len(self):
            return self
        return self.within(zone.complement(int(self.start.min()), int(self.end.max())))

    def of_lanes(self, lanes: Int32) -> HostTimeline:
        return self.select(one_of(self.lane, lanes.tolist()))

    def covered(self) -> Intervals:
        """The time that the segments cover together."""
        return union(self.start, self.end)


def host_timeline(trace: Trace) -> HostTimeline:
    """The segments of every host lane. O(n log n), without a Python loop where spans nest, as they should."""
    host = np.flatnonzero(counted_on_host(trace) & (trace.dur_ns > 0))
    lane_of = trace.lane_id[host]
    parts = []
    around = np.full(len(trace), NONE, dtype=np.int32)
    by_lane = host[np.argsort(lane_of, kind="stable")]
    edges = np.flatnonzero(np.diff(trace.lane_id[by_lane])) + 1
    for of_lane in np.split(by_lane, edges) if len(host) else []:
        spans = of_lane
        start = trace.start_ns[spans]
        end = start + trace.dur_ns[spans]
        if (start[1:] < end[:-1]).any():  # some nest
            start, end, innermost, parent = _innermost(start, end)
            around[spans] = take_or(spans, parent, NONE)
            spans = spans[innermost]
        parts.append((start, end, spans))
    nothing = np.array([], dtype=np.int64)
    start, end, span = map(_joined, zip(*parts, strict=True)) if parts else (nothing,) * 3
    launch_of = launches(trace)
    what = known(trace, launch_of)
    for device in set(trace.devices) - what.devices:
        launch_of = launch_of.copy() if launch_of is what.launch_of else launch_of
        launch_of[trace.mask(device=device)] = NONE
    label_of, labels = naming(trace.names)
    return HostTimeline(
        start=start,
        end=end,
        span=span,
        lane=trace.lane_id[span],
        kind=trace.kind[span],
        launch_of=launch_of,
        launch_pairs=_launch_pairs(trace, launch_of),
        parent=around,
        label_of=np.array(label_of, dtype=np.int32),
        labels=labels,
        known=what,
    )


def _joined(columns: tuple[Int64, ...]) -> Int64:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def counted_on_host(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the spans that say what the host did."""
    if trace.is_profile:
        return ~trace.on_device
    mask: npt.NDArray[np.bool_] = (trace.kind == Kind.CPU_WORK) | (trace.kind == Kind.CPU_WAIT)
    return mask


def frames(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the annotations that only frame a step (``ProfilerStep#3``) and say nothing about what happened in it."""
    ids = trace.ids_of(*trace.meta.step_frames)
    mask: npt.NDArray[np.bool_] = (trace.kind == Kind.CPU_ANNOTATION) & np.isin(trace.name_id, ids)
    return mask


def _innermost(start: Int64, end: Int64) -> tuple[Int64, Int64, Int32, Int32]:
    """(start, end, row) of the segments of one lane, from spans of at least 1 ns sorted by (start, longest first).

    The innermost span at an instant is the one that started last, among those the shortest: the last row that covers
    it. Where spans nest, a segment begins where a span starts (and is the span's) or ends (and is its parent's), and
    lasts until the next span starts or its own span ends. The last column is the parent of each span.
    """
    end, after, parent = _nested(start, end)
    resumed = np.flatnonzero(parent != NONE)  # the rows after whose end the parent may go on
    rows = np.arange(len(start), dtype=np.int32)
    begin = np.concatenate((start, end[resumed]))
    row = np.concatenate((rows, parent[resumed]))
    following = np.concatenate((rows + 1, after[resumed]))
    finish = np.append(start, np.iinfo(np.int64).max)[following]  # when the next span starts
    del resumed, rows, following, after  # a large trace needs the room
    np.minimum(finish, end[row], out=finish)
    kept = np.flatnonzero(finish > begin)
    kept = kept[np.argsort(begin[kept], kind="stable")]
    return begin[kept], finish[kept], row[kept], parent


def _nested(start: Int64, end: Int64) -> tuple[Int64, Int32, Int32]:
    """(end, after, parent) of each row, with ends that make the spans nest without changing which is innermost when.

    ``after``: the first row that does not start before the end. A span that outlives one that it starts in (clock
    jitter, a recorder's mistake) hides the rest of that one, which may as well end where the span starts. Once all are
    cut so, they nest: where q starts in p and is not cut in it, whatever cuts p starts in q, and outlives q as well.
    """
    after = np.searchsorted(start, end).astype(np.int32)
    parent = _parents(after)
    if (end <= np.where(parent == NONE, end, end[parent])).all():
        return end, after, parent
    holders = np.flatnonzero(after > np.arange(len(start)) + 1)
    bounds = np.stack((holders + 1, after[holders].astype(np.int64)), axis=1).ravel()
    longest = np.maximum.reduceat(np.append(end, np.iinfo(np.int64).min), bounds)[::2]
    cut = holders[longest > end[holders]]
    by = [
        row + 1 + int((end[row + 1 : last] > end[row]).argmax())
        for row, last in zip(cut.tolist(), after[cut].tolist(), strict=True)
    ]
    nested = end.copy()
    nested[cut], after[cut] = start[by], by  # the first of the rows that start there, being the longest
    return nested, after, _parents(after)


def _parents(after: Int32) -> Int32:
    """The row that directly encloses each row of properly nested spans, or -1; ``after``: see :func:`_nested`.

    It is the last earlier row that is one level less deep. Where spans do not nest, the first row that outlives what
    encloses it still has the right parent, so that comparing their ends finds it.
    """
    size = len(after)
    depth = np.arange(size) - np.cumsum(np.bincount(after, minlength=size)[:size])  # less the spans that are over
    levels = np.cumsum(np.bincount(depth)).tolist()
    order = np.argsort(depth.astype(np.int16) if len(levels) < _MANY_LEVELS else depth, kind="stable")
    parent = np.full(size, NONE, dtype=np.int32)
    for first, own, last in zip((0, *levels), levels, levels[1:], strict=False):
        above, mine = order[first:own], order[own:last]
        parent[mine] = above[np.searchsorted(above, mine) - 1]
    return parent


def launches(trace: Trace) -> Int64:
    """For each span on a device, the index of the host span that launched it, or -1.

    By ``link``; else, but for the trace of a profiler, the span named ``launch`` (for a compute) or ``NAME.launch`` of
    the same step. Where several fit, the last one.
    """
    found = np.full(len(trace), NONE, dtype=np.int64)
    on_device, has_link = trace.on_device, trace.link != NONE

    linked = np.flatnonzero(~on_device & has_link)
    rows = np.flatnonzero(on_device & has_link)
    found[rows] = last_match(trace.link[linked], linked, trace.link[rows])
    if trace.is_profile:
        return found

    rows = np.flatnonzero(on_device & (found == NONE))
    if not len(rows):
        return found
    step, name = trace.step.astype(np.int64), trace.name_id
    launched = _launched_names(trace)
    stepped = np.flatnonzero(~on_device & (step != NONE) & (launched[name] != NONE))
    rows = rows[step[rows] != NONE]
    size = len(trace.names)
    found[rows] = last_match(step[stepped] * size + launched[name[stepped]], stepped, step[rows] * size + name[rows])

    plain = trace.ids_of("launch")
    stepped = np.flatnonzero(~on_device & (step != NONE) & np.isin(name, plain))
    rows = np.flatnonzero((trace.kind == Kind.GPU_COMPUTE) & (step != NONE) & (found == NONE))
    found[rows] = last_match(step[stepped], stepped, step[rows])
    return found


def _launch_pairs(trace: Trace, launch_of: Int64) -> Int64:
    size = np.int64(len(trace.lanes))
    rows = np.flatnonzero(launch_of != NONE)
    pairs, counts = np.unique(trace.lane_id[launch_of[rows]] * size + trace.lane_id[rows], return_counts=True)
    return np.stack((pairs // max(size, 1), pairs % max(size, 1), counts), axis=1)


def _launched_names(trace: Trace) -> Int64:
    """For each name ``NAME.launch`` the id of ``NAME``; -1 for all other names."""
    ids = {text: index for index, text in enumerate(trace.names)}
    names = (text.removesuffix(".launch") if text.endswith(".launch") else None for text in trace.names)
    return np.array([NONE if text is None else ids.get(text, NONE) for text in names], dtype=np.int64)


def distinct(ids: Int32) -> Int32:
    """The distinct values of a column of small ids from 0 upwards, ascending."""
    return np.flatnonzero(np.bincount(ids)).astype(np.int32)


def main_lane(trace: Trace, host: HostTimeline, device: int) -> int:
    """The host lane that launches most on a device; where no launch is known, the one with most host time; or -1."""
    launching, _, counts = _pairs_of(trace, host, device).T
    weight = sum_by(launching, counts, len(trace.lanes))
    weight = weight if weight.any() else sum_by(host.lane, host.length_ns, len(trace.lanes))
    return int(weight.argmax()) if weight.any() else NONE


def waiting_lanes(trace: Trace, host: HostTimeline) -> Int32:
    """The host lanes that launch nothing and wait for :data:`WAITING_SHARE` of their time, or more, ascending.

    A profiler does not say which Python functions wait; their names do.
    """
    size = len(trace.lanes)
    names = np.array([waits(name) for name in trace.names], dtype=bool)
    waiting = ~host.working | names[trace.name_id[host.span]]
    time = sum_by(host.lane, host.length_ns, size)
    waited = sum_by(host.lane[waiting], host.length_ns[waiting], size)
    found = (time > 0) & (waited >= WAITING_SHARE * time)
    found[host.launch_pairs[:, 0]] = False
    return np.flatnonzero(found).astype(np.int32)


def driving_lanes(trace: Trace, host: HostTimeline, device: int | None) -> Int32:
    """The host lanes that launch work on a device (any device, if None).

    All host lanes where no launch is known; none in the trace of a profiler, which has launches, but not understood.
    """
    launching = np.unique(_pairs_of(trace, host, device)[:, 0]).astype(np.int32)
    if trace.is_profile and any(lane.on_device for lane in trace.lanes):
        return launching
    return launching if len(launching) else host.lanes


def _pairs_of(trace: Trace, host: HostTimeline, device: int | None) -> Int64:
    """Those of ``launch_pairs`` whose second lane is of a device (of any, if None)."""
    is_of_device = np.zeros(len(trace.lanes), dtype=bool)
    is_of_device[_lanes_of(trace, device)] = True
    pairs: Int64 = host.launch_pairs[is_of_device[host.launch_pairs[:, 1]]]
    return pairs


def _lanes_of(trace: Trace, device: int | None) -> list[int]:
    """The streams of a device; all streams, if None."""
    return [
        index for index, lane in enumerate(trace.lanes) if lane.on_device and (device is None or lane.device == device)
    ]
