"""Overlap, GPU only, CPU only, neither, and host not recorded: the five states that partition a window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from cbprof.analysis.accounting.host import HostTimeline, driving_lanes, frames, host_timeline
from cbprof.analysis.accounting.intervals import EMPTY, Intervals, union, union_of
from cbprof.analysis.accounting.window import Window
from cbprof.trace import COPY_KINDS, Kind, Trace

Activity = Literal["compute", "busy"]
"""What makes a GPU active: ``compute`` spans alone, or ``busy`` with anything (copies, sets, collectives) as well."""

ACTIVITY_KINDS: dict[Activity, tuple[Kind, ...]] = {
    "compute": (Kind.GPU_COMPUTE,),
    "busy": (Kind.GPU_COMPUTE, Kind.GPU_COMM, *COPY_KINDS),
}


class StateTotals(NamedTuple):
    """Nanoseconds in each state; their sum is the length of the window. In the order in which pictures stack them.

    The fifth state, *host not recorded*, is known by its half: the GPU was active, or idle.
    """

    overlap: int
    gpu_only: int
    untraced_active: int
    untraced_idle: int
    cpu_only: int
    neither: int

    @property
    def gpu(self) -> int:
        """While the GPU was active, whatever the host did."""
        return sum(getattr(self, state) for state in GPU_ACTIVE)

    @property
    def cpu(self) -> int:
        """While the host is known to have worked."""
        return self.overlap + self.cpu_only

    @property
    def untraced(self) -> int:
        """While no record says what the host did."""
        return self.untraced_active + self.untraced_idle

    @property
    def host_known(self) -> bool:
        """Whether so little of the host's time lacks a record that figures of the host may rest on the rest."""
        return 100 * self.untraced <= MOST_UNTRACED_PCT * sum(self)

    def to_json(self, understood: bool = True) -> dict[str, int | None]:
        """Five states, which sum to the window; ``untraced`` is host not recorded.

        The others are None where launches are not ``understood``: then nothing is said of the host.
        """
        known = {name: getattr(self, name) for name in ("overlap", "gpu_only", "cpu_only", "neither")}
        return (known if understood else dict.fromkeys(known)) | {"untraced": self.untraced}


GPU_ACTIVE = ("overlap", "gpu_only", "untraced_active")
"""The states in which the GPU is active. They come first, so that a picture has one border of active and idle."""

MOST_UNTRACED_PCT = 5
"""Above this share of the window without a record of the host, no figure that rests on the host's work is given."""


@dataclass(frozen=True, eq=False)
class States:
    """When the GPU and the CPU were active in a window, and when no record says what the host did. Clipped to it.

    ==============  ============  =============  ===================
    \\               CPU active    CPU idle       host not recorded
    ==============  ============  =============  ===================
    **GPU active**  overlap       GPU only       untraced, active
    **GPU idle**    CPU only      neither        untraced, idle
    ==============  ============  =============  ===================

    The CPU is nowhere active in ``untraced``, which is empty but in the trace of a profiler.
    """

    window: Window
    device: int
    gpu: Intervals
    cpu: Intervals
    untraced: Intervals = EMPTY

    @cached_property
    def overlap(self) -> Intervals:
        return self.gpu.intersect(self.cpu)

    @property
    def gpu_only(self) -> Intervals:
        return self.gpu.subtract(self.cpu).subtract(self.untraced)

    @property
    def untraced_active(self) -> Intervals:
        return self.untraced.intersect(self.gpu)

    @property
    def untraced_idle(self) -> Intervals:
        return self.untraced.subtract(self.gpu)

    @property
    def cpu_only(self) -> Intervals:
        return self.cpu.subtract(self.gpu)

    @property
    def neither(self) -> Intervals:
        return self.gaps.subtract(self.cpu).subtract(self.untraced)

    @property
    def parts(self) -> tuple[Intervals, ...]:
        """The states in the order of :class:`StateTotals`; they partition the window."""
        return tuple(getattr(self, name) for name in StateTotals._fields)

    @property
    def gaps(self) -> Intervals:
        """The maximal stretches of the window without GPU activity."""
        return self.gpu.complement(self.window.start_ns, self.window.end_ns)

    def within(self, window: Window) -> States:
        """The same in a shorter window."""
        a, b = window.start_ns, window.end_ns
        return States(window, self.device, self.gpu.clip(a, b), self.cpu.clip(a, b), self.untraced.clip(a, b))

    def totals(self) -> StateTotals:
        both, active = self.overlap.total_ns, self.untraced_active.total_ns
        idle = self.untraced.total_ns - active
        gpu, cpu = self.gpu.total_ns, self.cpu.total_ns
        neither = self.window.length_ns - gpu - cpu + both
        return StateTotals(both, gpu - both - active, active, idle, cpu - both, neither - idle)


def gpu_active(trace: Trace, device: int, activity: Activity = "compute") -> Intervals:
    """The time in which a device runs a span of this activity, over the whole trace."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS[activity], device=device))
    return union_of(trace, rows)


def cpu_active(trace: Trace, device: int | None = None, host: HostTimeline | None = None) -> Intervals:
    """The time in which a host lane that drives ``device`` (any device, if None) works, over the whole trace.

    On each lane the innermost span decides: a wait inside work is idle, work inside a wait is active.
    """
    host = host_timeline(trace) if host is None else host
    return _worked(_told(trace, host, device))


def _worked(driving: HostTimeline) -> Intervals:
    working = driving.working
    return union(driving.start[working], driving.end[working])


def _told(trace: Trace, host: HostTimeline, device: int | None) -> HostTimeline:
    """What is known of the lanes that drive a device. The frame of a step does not tell what happened in it."""
    driving = host.of_lanes(driving_lanes(trace, host, device))
    return driving.select(~frames(trace)[driving.span]) if trace.is_profile else driving


def _untraced(trace: Trace, window: Window, driving: HostTimeline) -> Intervals:
    """That of the window of which no record says what the host lanes did that drive a device.

    Only a profiler records the host call by call, so that time without a record is not known to be idle. An engine's
    own spans cover all that it does: what they leave out is idle.
    """
    if not trace.is_profile:
        return EMPTY
    return driving.covered().complement(window.start_ns, window.end_ns)


def states(
    trace: Trace, window: Window, device: int, activity: Activity = "compute", host: HostTimeline | None = None
) -> States:
    """The states of one device. Pass ``host``, if it is at hand, to save computing it again."""
    host = host_timeline(trace) if host is None else host
    driving = _told(trace, host, device)
    gpu = gpu_active(trace, device, activity)
    return States(window, device, gpu, _worked(driving), _untraced(trace, window, driving)).within(window)
