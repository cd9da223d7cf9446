"""What the host did at each instant: the innermost span of each lane, and which lanes drive a device.

::

    schedule   ......[---------------------]............
      evict    ...........[-----]........................
    innermost        |sch | evi |  schedule |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cbprof.analysis.intervals import Intervals, sum_by, union
from cbprof.trace import NONE, Int8, Int32, Int64, Kind, Trace


@dataclass(frozen=True, slots=True, eq=False)
class HostTimeline:
    """The host's time cut into segments, each with the innermost span that covers it.

    Sorted by (lane, start); the segments of a lane are disjoint and may touch. Time without a span has no segment.
    Only ``cpu.work`` and ``cpu.wait`` spans count: annotations say nothing about whether the host was busy.

    ``span``: index of the innermost span. ``lane``, ``kind``: of that span. ``launch_of``: for each span of the trace
    (its whole length), the host span that launched it on its device, or -1.
    """

    start: Int64
    end: Int64
    span: Int64
    lane: Int32
    kind: Int8
    launch_of: Int64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length_ns(self) -> Int64:
        return self.end - self.start

    @property
    def working(self) -> npt.NDArray[np.bool_]:
        """Mask of the segments in which the host works rather than waits."""
        mask: npt.NDArray[np.bool_] = self.kind == Kind.CPU_WORK
        return mask

    @property
    def lanes(self) -> Int32:
        """The lanes that have a segment."""
        return np.unique(self.lane)

    def select(self, mask: npt.NDArray[np.bool_]) -> HostTimeline:
        """The segments where ``mask`` holds."""
        return HostTimeline(
            self.start[mask], self.end[mask], self.span[mask], self.lane[mask], self.kind[mask], self.launch_of
        )

    def of_lanes(self, lanes: Int32) -> HostTimeline:
        return self.select(np.isin(self.lane, lanes))

    def covered(self) -> Intervals:
        """The time that the segments cover together."""
        return union(self.start, self.end)


def host_timeline(trace: Trace) -> HostTimeline:
    """The segments of every host lane. O(n log n), without a Python loop where spans nest, as they should."""
    counted = (trace.kind == Kind.CPU_WORK) | (trace.kind == Kind.CPU_WAIT)
    host = np.flatnonzero(counted & (trace.dur_ns > 0))
    parts = []
    for lane in np.unique(trace.lane_id[host]):
        spans = host[trace.lane_id[host] == lane]
        start, end, innermost = _innermost(trace.start_ns[spans], trace.end_ns[spans])
        parts.append((start, end, spans[innermost]))
    empty = np.array([], dtype=np.int64)
    start, end, span = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (empty,) * 3
    return HostTimeline(start, end, span, trace.lane_id[span], trace.kind[span], launches(trace))


def _innermost(start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """(start, end, row) of the segments of one lane, from spans of at least 1 ns sorted by (start, longest first).

    The innermost span at an instant is the one that started last, among those the shortest: the last row that covers
    it. Where spans nest, a segment begins where a span starts (and is the span's) or ends (and is its parent's), and
    lasts until the next span starts or its own span ends.
    """
    end, parent = _nested(start, end)
    rows = np.arange(len(start))
    resumed = np.flatnonzero(parent != NONE)  # the rows after whose end the parent may go on
    begin = np.concatenate((start, end[resumed]))
    row = np.concatenate((rows, parent[resumed]))
    following = np.concatenate((rows + 1, np.searchsorted(start, end[resumed])))
    next_start = np.concatenate((start, [np.iinfo(np.int64).max]))[following]
    finish = np.minimum(end[row], next_start)
    kept = np.flatnonzero(finish > begin)
    kept = kept[np.argsort(begin[kept], kind="stable")]
    return begin[kept], finish[kept], row[kept]


def _nested(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """(end, parent) of each row, with ends that make the spans nest without changing which is innermost when.

    A span that outlives its parent (clock jitter, a recorder's mistake) hides the rest of the parent, so the parent
    may as well end where that span starts.
    """
    parent = _parents(start, end)
    if (end <= np.where(parent == NONE, end, end[parent])).all():
        return end, parent
    end, open_rows = end.copy(), list[int]()
    for row in range(len(start)):
        while open_rows and end[open_rows[-1]] <= start[row]:
            open_rows.pop()
        while open_rows and end[open_rows[-1]] < end[row]:
            end[open_rows.pop()] = start[row]
        open_rows.append(row)
    return end, _parents(start, end)


def _parents(start: Int64, end: Int64) -> Int64:
    """The row that directly encloses each row of properly nested spans, or -1.

    It is the last earlier row that is one level less deep. Where spans do not nest, the first row that outlives what
    encloses it still has the right parent, so that comparing their ends finds it.
    """
    rows = np.arange(len(start))
    depth = rows - np.searchsorted(np.sort(end), start, side="right")  # spans that are open when the row starts
    order = np.argsort(depth, kind="stable")
    key = depth[order] * len(start) + order
    parent = order[np.searchsorted(key, (depth - 1) * len(start) + rows) - 1]
    return np.where(depth > 0, parent, NONE)


def launches(trace: Trace) -> Int64:
    """For each span on a device, the index of the host span that launched it, or -1.

    By ``link``; else the span named ``launch`` (for a compute) or ``NAME.launch`` of the same step. Where several
    fit, the last one.
    """
    found = np.full(len(trace), NONE, dtype=np.int64)
    on_device, step, name = trace.on_device, trace.step.astype(np.int64), trace.name_id

    linked = np.flatnonzero(~on_device & (trace.link != NONE))
    rows = np.flatnonzero(on_device & (trace.link != NONE))
    found[rows] = _last_match(trace.link[linked], linked, trace.link[rows])

    launched = _launched_names(trace)
    stepped = np.flatnonzero(~on_device & (step != NONE) & (launched[name] != NONE))
    rows = np.flatnonzero(on_device & (step != NONE) & (found == NONE))
    size = len(trace.names)
    found[rows] = _last_match(step[stepped] * size + launched[name[stepped]], stepped, step[rows] * size + name[rows])

    plain = np.array([index for index, text in enumerate(trace.names) if text == "launch"], dtype=np.int32)
    stepped = np.flatnonzero(~on_device & (step != NONE) & np.isin(name, plain))
    rows = np.flatnonzero((trace.kind == Kind.GPU_COMPUTE) & (step != NONE) & (found == NONE))
    found[rows] = _last_match(step[stepped], stepped, step[rows])
    return found


def _launched_names(trace: Trace) -> Int64:
    """For each name ``NAME.launch`` the id of ``NAME``; -1 for all other names."""
    ids = {text: index for index, text in enumerate(trace.names)}
    names = (text.removesuffix(".launch") if text.endswith(".launch") else None for text in trace.names)
    return np.array([NONE if text is None else ids.get(text, NONE) for text in names], dtype=np.int64)


def _last_match(keys: Int64, values: Int64, wanted: Int64) -> Int64:
    """For each wanted key the value of its last occurrence in ``keys``, or -1."""
    if not len(keys):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys, wanted, side="right", sorter=order) - 1
    candidate = order[np.maximum(position, 0)]
    return np.where((position >= 0) & (keys[candidate] == wanted), values[candidate], NONE)


def main_lane(trace: Trace, host: HostTimeline, device: int) -> int:
    """The host lane that launches most on a device; where no launch is known, the one with most host time; or -1."""
    launch = host.launch_of[trace.mask(device=device) & trace.on_device]
    launches = np.bincount(trace.lane_id[launch[launch != NONE]], minlength=len(trace.lanes))
    weight = launches if launches.any() else sum_by(host.lane, host.length_ns, len(trace.lanes))
    return int(weight.argmax()) if weight.any() else NONE


def driving_lanes(trace: Trace, host: HostTimeline, device: int | None) -> Int32:
    """The host lanes that launch work on a device (any device, if None); all host lanes where no launch is known."""
    launch = host.launch_of[trace.mask(device=device) & trace.on_device]
    launch = launch[launch != NONE]
    return np.unique(trace.lane_id[launch]) if len(launch) else host.lanes
