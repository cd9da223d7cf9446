"""Host time by phase: how much each took, and how much of it the GPU had to wait through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.host import HostTimeline, counted_on_host, driving_lanes
from cbprof.analysis.accounting.intervals import Intervals, union_of
from cbprof.analysis.accounting.states import ACTIVITY_KINDS, Activity
from cbprof.analysis.accounting.window import Window
from cbprof.trace import NONE, Int32, Int64, Kind, Trace, one_of

Phases = npt.NDArray[np.integer[Any]]
"""Twice a name's number, and one more for a wait."""

FEW_NAMES = 2**14
"""Twice as many fit into 16 bits."""


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

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "total_ns": self.total_ns,
            "exposed_ns": self.exposed_ns,
            "count": self.count,
            "p50_ns": self.p50_ns,
            "p99_ns": self.p99_ns,
        }


def phase_times(
    trace: Trace, window: Window, host: HostTimeline, activity: Activity = "compute"
) -> tuple[PhaseTime, ...]:
    """The phases of the host lanes that drive a device, most exposed time first, then most time."""
    lanes = driving_lanes(trace, host, None)
    spans = _spans_within(trace, window, lanes)
    if not len(spans):
        return ()
    label_id = host.label_of[trace.name_id]
    phase = label_id[spans] * 2 + (trace.kind[spans] == Kind.CPU_WAIT)
    if len(host.labels) < FEW_NAMES:
        phase = phase.astype(np.int16)  # which numpy sorts in linear time

    # Exclusive time: of each span, and of each phase what of it no GPU covered.
    total = np.zeros(len(trace), dtype=np.int64)
    exposed = np.zeros(2 * len(host.labels), dtype=np.int64)
    for devices, alike in _by_devices(trace, host, lanes).items():
        idle = _active(trace, devices, activity).complement(window.start_ns, window.end_ns)
        for part in host.of_lanes(np.array(alike, dtype=np.int32)).in_parts():
            np.add.at(total, part.span, _clipped(part.end, window) - _clipped(part.start, window))
            of_phase = label_id[part.span] * 2 + (part.kind == Kind.CPU_WAIT)
            np.add.at(exposed, of_phase, idle.within(part.start, part.end))

    phase, time, count = _per_step(phase, trace.step[spans], total[spans])
    key, first = np.unique(phase, return_index=True)
    of_phase = np.diff(first, append=len(phase))
    columns = (
        key,
        np.add.reduceat(time, first),
        exposed[key],
        np.add.reduceat(count, first),
        time[first + _nearest(of_phase, 50)],
        time[first + _nearest(of_phase, 99)],
    )
    times = (
        PhaseTime(host.labels[name // 2], bool(name % 2), *figures)
        for name, *figures in zip(*(column.tolist() for column in columns), strict=True)
    )
    return tuple(sorted(times, key=lambda time: (-time.exposed_ns, -time.total_ns, time.name)))


def _clipped(time: Int64, window: Window) -> Int64:
    return np.clip(time, window.start_ns, window.end_ns)


def _per_step(phase: Phases, step: Int32, total: Int64) -> tuple[Phases, Int64, Int64]:
    """The phase of each step in which it occurs, how long it took there, in ascending order, and in how many spans.

    A span without a step is a step of its own.
    """
    order = np.argsort(phase, kind="stable")
    phase, step, total = phase[order], step[order], total[order]
    if ((step[1:] < step[:-1]) & (phase[1:] == phase[:-1])).any():  # in time, steps ascend: seldom
        order = np.lexsort((step, phase))
        phase, step, total = phase[order], step[order], total[order]
    new = (phase[1:] != phase[:-1]) | (step[1:] != step[:-1]) | (step[1:] == NONE)
    first = np.flatnonzero(np.concatenate(([True], new)))
    time, count = np.add.reduceat(total, first), np.diff(first, append=len(phase))
    order = np.lexsort((time, phase[first]))
    return phase[first][order], time[order], count[order]


def nearest_rank(ascending: Int64, percent: int) -> int:
    """The smallest value that at least ``percent`` of the values do not exceed. Needs at least one value."""
    return int(ascending[_nearest(len(ascending), percent)])


def _nearest(size: int | Int64, percent: int) -> Any:
    """Where, among so many ascending values, the nearest rank stands."""
    return np.maximum(-(-percent * size // 100) - 1, 0)


def _spans_within(trace: Trace, window: Window, lanes: Int32) -> Int64:
    """The host spans of these lanes that meet the window; an empty span does where it lies inside."""
    spans = np.flatnonzero(counted_on_host(trace) & one_of(trace.lane_id, lanes.tolist()))
    start = trace.start_ns[spans]
    if len(spans) and window.start_ns <= start[0] and start[-1] < window.end_ns:
        return spans
    end = start + trace.dur_ns[spans]
    meets = (start < window.end_ns) & ((end > window.start_ns) | ((end == start) & (start >= window.start_ns)))
    within: Int64 = spans[meets]
    return within


def _by_devices(trace: Trace, host: HostTimeline, lanes: Int32) -> dict[frozenset[int], list[int]]:
    """The lanes, by the devices that they launch work on."""
    of_lane: dict[int, set[int]] = {lane: set() for lane in lanes.tolist()}
    for lane, driven in host.launch_pairs[:, :2].tolist():
        of_lane.setdefault(lane, set()).add(trace.lanes[driven].device)
    found: dict[frozenset[int], list[int]] = {}
    for lane in lanes.tolist():
        found.setdefault(frozenset(of_lane[lane]), []).append(lane)
    return found


def _active(trace: Trace, devices: frozenset[int], activity: Activity) -> Intervals:
    """When any of these devices was active (any device at all, where no launch is known)."""
    active = trace.mask(kinds=ACTIVITY_KINDS[activity])
    if devices and devices != set(trace.devices):
        active &= one_of(trace.lane_id, [index for index, each in enumerate(trace.lanes) if each.device in devices])
    rows = np.flatnonzero(active)
    return union_of(trace, rows)
