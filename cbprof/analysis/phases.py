"""Host time by phase: how much each took, and how much of it the GPU had to wait through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.analysis.host import HostTimeline, driving_lanes
from cbprof.analysis.intervals import Intervals, sum_by, union
from cbprof.analysis.states import ACTIVITY_KINDS, Activity
from cbprof.analysis.window import Window
from cbprof.trace import NONE, Int32, Int64, Kind, Trace


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The host time of one phase in a window, exclusive of what is nested in it, so that phases sum to host time.

    ``waiting``: the host was blocked in it. ``exposed_ns``: while no GPU that the lane drives was active. ``count``:
    its spans. ``p50_ns``, ``p99_ns``: of the time it took per step (per span, where spans carry no step), nearest rank.
    """

    name: str
    waiting: bool
    total_ns: int
    exposed_ns: int
    count: int
    p50_ns: int
    p99_ns: int


def phase_times(
    trace: Trace, window: Window, host: HostTimeline, activity: Activity = "compute"
) -> tuple[PhaseTime, ...]:
    """The phases of the host lanes that drive a device, most exposed time first, then most time."""
    lanes = driving_lanes(trace, host, None)
    spans = _spans_within(trace, window, lanes)
    if not len(spans):
        return ()
    phase = trace.name_id[spans].astype(np.int64) * 2 + (trace.kind[spans] == Kind.CPU_WAIT)
    unit = np.where(trace.step[spans] == NONE, -1 - spans, trace.step[spans])  # a step, or else the span itself

    # Exclusive time of each span in the window: all of it, and what of it no GPU covered.
    total = np.zeros(len(trace), dtype=np.int64)
    exposed = np.zeros(len(trace), dtype=np.int64)
    for lane in lanes.tolist():
        segments = host.select(host.lane == lane)
        start = np.clip(segments.start, window.start_ns, window.end_ns)
        end = np.clip(segments.end, window.start_ns, window.end_ns)
        np.add.at(total, segments.span, end - start)
        np.add.at(exposed, segments.span, end - start - _driven(trace, host, lane, activity).within(start, end))
    total, exposed = total[spans], exposed[spans]

    times = []
    for key in np.unique(phase).tolist():
        mine = phase == key
        units, unit_of = np.unique(unit[mine], return_inverse=True)
        per_unit = np.sort(sum_by(unit_of, total[mine], len(units)))
        times.append(
            PhaseTime(
                name=trace.names[key // 2],
                waiting=bool(key % 2),
                total_ns=int(total[mine].sum()),
                exposed_ns=int(exposed[mine].sum()),
                count=int(mine.sum()),
                p50_ns=nearest_rank(per_unit, 50),
                p99_ns=nearest_rank(per_unit, 99),
            )
        )
    return tuple(sorted(times, key=lambda time: (-time.exposed_ns, -time.total_ns, time.name)))


def nearest_rank(ascending: Int64, percent: int) -> int:
    """The smallest value that at least ``percent`` of the values do not exceed. Needs at least one value."""
    return int(ascending[max(0, -(-percent * len(ascending) // 100) - 1)])


def _spans_within(trace: Trace, window: Window, lanes: Int32) -> Int64:
    """The host spans of these lanes that meet the window; an empty span does where it lies inside."""
    start, end = trace.start_ns, trace.end_ns
    counted = (trace.kind == Kind.CPU_WORK) | (trace.kind == Kind.CPU_WAIT)
    meets = (start < window.end_ns) & ((end > window.start_ns) | ((end == start) & (start >= window.start_ns)))
    return np.flatnonzero(counted & meets & np.isin(trace.lane_id, lanes))


def _driven(trace: Trace, host: HostTimeline, lane: int, activity: Activity) -> Intervals:
    """When any device was active that this lane launches work on (any device at all, where no launch is known)."""
    rows = trace.mask(kinds=ACTIVITY_KINDS[activity])
    device_of_lane = np.array([each.device for each in trace.lanes], dtype=np.int64)
    launched = np.flatnonzero(host.launch_of != NONE)
    launched = launched[trace.lane_id[host.launch_of[launched]] == lane]
    if len(launched):
        driven = np.unique(device_of_lane[trace.lane_id[launched]])
        rows &= np.isin(device_of_lane[trace.lane_id], driven)
    return union(trace.start_ns[rows], trace.end_ns[rows])
