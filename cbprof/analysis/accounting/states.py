"""Overlap, GPU only, CPU only, neither: the four states that partition a window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from cbprof.analysis.accounting.host import HostTimeline, driving_lanes, frames, host_timeline
from cbprof.analysis.accounting.intervals import Intervals, union, union_of
from cbprof.analysis.accounting.window import Window
from cbprof.trace import COPY_KINDS, Kind, Trace

Activity = Literal["compute", "busy"]
"""What makes a GPU active: ``compute`` spans alone, or ``busy`` with anything (copies, sets, collectives) as well."""

ACTIVITY_KINDS: dict[Activity, tuple[Kind, ...]] = {
    "compute": (Kind.GPU_COMPUTE,),
    "busy": (Kind.GPU_COMPUTE, Kind.GPU_COMM, *COPY_KINDS),
}


class StateTotals(NamedTuple):
    """Nanoseconds in each state; their sum is the length of the window."""

    overlap: int
    gpu_only: int
    cpu_only: int
    neither: int


MOST_UNTRACED_PCT = 5
"""Above this share of untraced host time nothing is said about whether the host was active."""


class TracedStates(NamedTuple):
    """The states without the time of which no record says what the host did; None where that is much of the window.

    All of them and ``untraced_ns`` sum to the window.
    """

    states: StateTotals | None
    untraced_ns: int

    def to_json(self) -> dict[str, int | None]:
        states: dict[str, int | None] = dict.fromkeys(StateTotals._fields)
        return states | (self.states._asdict() if self.states else {}) | {"untraced": self.untraced_ns}


def traced(totals: StateTotals, active_ns: int = 0, idle_ns: int = 0) -> TracedStates:
    """``active_ns``, ``idle_ns``: untraced time in which the GPU was active, or idle."""
    untraced = active_ns + idle_ns
    if 100 * untraced > MOST_UNTRACED_PCT * sum(totals):
        return TracedStates(None, untraced)
    known = totals._replace(gpu_only=totals.gpu_only - active_ns, neither=totals.neither - idle_ns)
    return TracedStates(known, untraced)


@dataclass(frozen=True, eq=False)
class States:
    """When the GPU and the CPU were active in a window. Both sets are clipped to it.

    ==============  ============  =============
    \\               CPU active    CPU idle
    ==============  ============  =============
    **GPU active**  overlap       GPU only
    **GPU idle**    CPU only      neither
    ==============  ============  =============
    """

    window: Window
    device: int
    gpu: Intervals
    cpu: Intervals

    @cached_property
    def overlap(self) -> Intervals:
        return self.gpu.intersect(self.cpu)

    @property
    def gpu_only(self) -> Intervals:
        return self.gpu.subtract(self.cpu)

    @property
    def cpu_only(self) -> Intervals:
        return self.cpu.subtract(self.gpu)

    @property
    def neither(self) -> Intervals:
        return self.gaps.subtract(self.cpu)

    @property
    def parts(self) -> tuple[Intervals, Intervals, Intervals, Intervals]:
        """The four states in the order of :class:`StateTotals`; they partition the window."""
        return (self.overlap, self.gpu_only, self.cpu_only, self.neither)

    @property
    def gaps(self) -> Intervals:
        """The maximal stretches of the window without GPU activity."""
        return self.gpu.complement(self.window.start_ns, self.window.end_ns)

    def within(self, window: Window) -> States:
        """The same in a shorter window."""
        a, b = window.start_ns, window.end_ns
        return States(window, self.device, self.gpu.clip(a, b), self.cpu.clip(a, b))

    def totals(self) -> StateTotals:
        both = self.overlap.total_ns
        gpu, cpu = self.gpu.total_ns, self.cpu.total_ns
        return StateTotals(both, gpu - both, cpu - both, self.window.length_ns - gpu - cpu + both)


def gpu_active(trace: Trace, device: int, activity: Activity = "compute") -> Intervals:
    """The time in which a device runs a span of this activity, over the whole trace."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS[activity], device=device))
    return union_of(trace, rows)


def cpu_active(trace: Trace, device: int | None = None, host: HostTimeline | None = None) -> Intervals:
    """The time in which a host lane that drives ``device`` (any device, if None) works, over the whole trace.

    On each lane the innermost span decides: a wait inside work is idle, work inside a wait is active.
    """
    host = host_timeline(trace) if host is None else host
    driving = host.of_lanes(driving_lanes(trace, host, device))
    working = driving.working
    if trace.is_profile:
        working &= ~frames(trace)[driving.span]
    return union(driving.start[working], driving.end[working])


def states(
    trace: Trace, window: Window, device: int, activity: Activity = "compute", host: HostTimeline | None = None
) -> States:
    """The states of one device. Pass ``host``, if it is at hand, to save computing it again."""
    everywhere = States(window, device, gpu_active(trace, device, activity), cpu_active(trace, device, host))
    return everywhere.within(window)
