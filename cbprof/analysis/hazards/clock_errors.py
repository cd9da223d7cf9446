"""How far two times of a trace can be off against each other: as the file states it, else as its own times betray it.

::

    host     ........|launch N .......        a device span cannot start before its launch does:
    device   ......|compute N ...             the clocks of host and device are off by at least this much
                   <-> clock error

    compute  |compute N ......|               an in-order stream cannot overlap itself:
    compute                 |compute N+1      times of the device are off by at least this much
                            <-> device error
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.host import launches
from cbprof.trace import NONE, Trace

EVENT_PAIR_NS = 1000
"""The least error between two times of a device where a file states none: CUDA events resolve about 0.5 us each."""


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """A bound in nanoseconds. ``stated``: by the file; else derived from ``impossible`` orders among its times."""

    ns: int
    stated: bool
    impossible: int = 0


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """``clock``: between a time of the host and one of the device. ``device``: between two times of one device."""

    clock: ErrorBound
    device: ErrorBound


def clock_bounds(trace: Trace) -> ClockBounds:
    """The error bounds of a trace. What the file states is taken as it is."""
    device = _stated(trace.meta.device_error_ns) or _overlaps(trace)
    return ClockBounds(_stated(trace.meta.clock_error_ns) or _early_starts(trace, device.ns), device)


def _stated(bound_ns: int | None) -> ErrorBound | None:
    return None if bound_ns is None else ErrorBound(bound_ns, stated=True)


def _overlaps(trace: Trace) -> ErrorBound:
    """The largest overlap of two spans of one stream."""
    worst, count = 0, 0
    for lane in np.unique(trace.lane_id[trace.on_device]).tolist():
        rows = np.flatnonzero((trace.lane_id == lane) & trace.on_device)
        reach = np.maximum.accumulate(trace.end_ns[rows])[:-1]
        overlap = reach - trace.start_ns[rows][1:]
        worst, count = max(worst, int(overlap.max(initial=0))), count + int((overlap > 0).sum())
    return ErrorBound(max(worst, EVENT_PAIR_NS), stated=False, impossible=count)


def _early_starts(trace: Trace, device_error_ns: int) -> ErrorBound:
    """The most that a device span starts before its launch; at least as much as two times of the device are off."""
    launch = launches(trace)
    rows = np.flatnonzero(launch != NONE)
    early = trace.start_ns[launch[rows]] - trace.start_ns[rows]
    worst = max(int(early.max(initial=0)), device_error_ns)
    return ErrorBound(worst, stated=False, impossible=int((early > 0).sum()))
