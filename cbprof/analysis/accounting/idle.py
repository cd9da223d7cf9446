"""GPU idle: how much of a window a device had nothing to run. Every idle number of cbprof is made here.

::

    window    |........................|
    active      ####    ####  ######        idle = window - active = 24 - 14
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cbprof.analysis.accounting.intervals import union
from cbprof.analysis.accounting.states import ACTIVITY_KINDS, Activity
from cbprof.analysis.accounting.window import Window
from cbprof.trace import Trace


def idle_ns(trace: Trace, device: int, window: Window, activity: Activity = "compute") -> int | None:
    """Window - GPU active, in nanoseconds.

    None where the window holds no span of this activity: then nothing says that the device could have been active.
    """
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS[activity], device=device))
    start, end = trace.start_ns[rows], trace.end_of(rows)
    within = (start < window.end_ns) & ((end > window.start_ns) | (start >= window.start_ns))
    if not within.any():
        return None
    active = union(start[within], end[within]).clip(window.start_ns, window.end_ns)
    return window.length_ns - active.total_ns


def idle_pct(idle_ns: int | None, window_ns: int) -> float | None:
    """100 x idle / window. None where the idle time is unknown or the window is empty, never 0 or 100."""
    return None if idle_ns is None or not window_ns else 100 * idle_ns / window_ns


def most_idle(idle_ns: Sequence[int | None]) -> int:
    """The index of the device that waited longest: the one that tables and pictures show. Unknown idle comes last."""
    return max(range(len(idle_ns)), key=lambda index: -1 if (known := idle_ns[index]) is None else known)
