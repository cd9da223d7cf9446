"""What only a profiler's records tell of a device: gaps in its own record, overhead, and figures by kind of kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.device_time import graph_replays
from cbprof.analysis.accounting.gaps import WhichGaps
from cbprof.analysis.accounting.host import HostTimeline, frames
from cbprof.analysis.accounting.idle import idle_pct
from cbprof.analysis.accounting.intervals import Intervals, sum_by, union, union_of, unions_by
from cbprof.analysis.accounting.states import ACTIVITY_KINDS, States
from cbprof.analysis.profiles.kernel_times import KernelTime, kernel_times
from cbprof.trace import NONE, Int32, Int64, Kind, Trace

CLIP_TO_NEXT_START = "clip_to_next_start"
"""The policy that lets an event end where the next one of its stream starts, for those that seem to run away."""

# ROCm runs copies and fills as kernels of these names.
_ROCCLR = re.compile(r"rocclr", re.IGNORECASE)
_FILL = re.compile(r"fill", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rocclr:
    """Copies and fills that ROCm runs as kernels."""

    kernel_busy_excl_ns: int
    copy_ns: int
    fill_ns: int

    def to_json(self) -> dict[str, int]:
        return {
            "kernel_busy_excl_rocclr_ns": self.kernel_busy_excl_ns,
            "rocclr_copy_ns": self.copy_ns,
            "rocclr_fill_ns": self.fill_ns,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One device in one window, in nanoseconds.

    ``kernels``: its work by name, most time first. ``compute_busy_ns``: kernels that are no
    collectives. ``overhead_ns``: the profiler's own, ``idle_outside_ns`` the idle time outside it.
    ``hidden_ns``: by name of an annotation, how long the device was active in it. ``clipped``: the device's activity
    under :data:`CLIP_TO_NEXT_START`, where that differs.
    """

    kernels: tuple[KernelTime, ...]
    compute_busy_ns: int
    overhead_ns: int
    idle_outside_ns: int
    hidden_ns: Mapping[str, int]
    rocclr: Rocclr | None
    clipped: Clipped | None

    @property
    def sum_gpu_ns(self) -> int:
        """Durations added up, which counts what overlaps twice."""
        return sum(kernel.ns for kernel in self.kernels)

    def to_json(self, not_computing_pct: float | None, gaps: WhichGaps) -> dict[str, Any]:
        """``not_computing_pct``: the share of the window without a kernel, collectives apart."""
        found: dict[str, Any] = {
            "sum_gpu_ns": self.sum_gpu_ns,
            "compute_excl_comm_busy_ns": self.compute_busy_ns,
            "not_computing_pct": not_computing_pct,
            "overhead_ns": self.overhead_ns,
            "host_overlap_ns": dict(self.hidden_ns),
        }
        found |= self.rocclr.to_json() if self.rocclr else {}
        return found | ({CLIP_TO_NEXT_START: self.clipped.to_json(gaps)} if self.clipped else {})


@dataclass(frozen=True, slots=True, eq=False)
class Clipped:
    """What the figures are where no event outlasts the start of the next on its stream. ``window``: first to last."""

    window: Intervals
    busy: Intervals
    kernel_busy_ns: int
    sum_gpu_ns: int

    @property
    def gaps(self) -> Intervals:
        return self.window.subtract(self.busy)

    def to_json(self, gaps: WhichGaps) -> dict[str, Any]:
        """Its gaps in the order of time where all are asked for, and none otherwise."""
        holes, idle_ns = self.gaps, self.gaps.total_ns
        pairs = zip(holes.start.tolist(), holes.end.tolist(), strict=True)
        return {
            "window_ns": [int(self.window.start[0]), int(self.window.end[0])],
            "busy_ns": self.busy.total_ns,
            "kernel_busy_ns": self.kernel_busy_ns,
            "sum_gpu_ns": self.sum_gpu_ns,
            "idle_ns": idle_ns,
            "idle_pct": idle_pct(idle_ns, self.window.total_ns),
            "n_gaps": len(holes),
            "longest_gap_ns": int(holes.length_ns.max(initial=0)),
            "gaps": [{"start_ns": start, "end_ns": end} for start, end in pairs] if gaps == "all" else [],
        }


def profile(trace: Trace, states: States, host: HostTimeline) -> Profile:
    """The figures of the device and the window of ``states``."""
    start_ns, end_ns = states.window.start_ns, states.window.end_ns
    device = states.device

    def covered(mask: npt.NDArray[np.bool_]) -> Intervals:
        return union_of(trace, mask).clip(start_ns, end_ns)

    computing = trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device) & ~graph_replays(trace)
    overhead = covered(trace.mask(kinds=(Kind.CPU_OVERHEAD,)))
    return Profile(
        kernels=kernel_times(trace, device, states.window),
        compute_busy_ns=covered(computing).total_ns,
        overhead_ns=overhead.total_ns,
        idle_outside_ns=states.gaps.subtract(overhead).total_ns,
        hidden_ns=_hidden(trace, states, host),
        rocclr=_rocclr(trace, states),
        clipped=_clipped(trace, device),
    )


def _hidden(trace: Trace, states: States, host: HostTimeline) -> dict[str, int]:
    rows = np.flatnonzero(trace.mask(kinds=(Kind.CPU_ANNOTATION,)) & ~frames(trace))
    start, end = trace.start_ns[rows], trace.start_ns[rows] + trace.dur_ns[rows]
    inside = (start < states.window.end_ns) & (end > states.window.start_ns)
    ids, which = np.unique(host.label_of[trace.name_id[rows]][inside], return_inverse=True)
    group, start, end = unions_by(which, start[inside], end[inside])
    hidden = sum_by(group, states.gpu.within(start, end), len(ids))
    return {host.labels[label]: ns for label, ns in zip(ids.tolist(), hidden.tolist(), strict=True)}


def _rocclr(trace: Trace, states: States) -> Rocclr | None:
    ids = trace.ids_where(_ROCCLR.search, (Kind.GPU_COMPUTE, Kind.GPU_COMM))
    fills = [index for index in ids if _FILL.search(trace.names[index])]
    kernels = trace.mask(kinds=(Kind.GPU_COMPUTE, Kind.GPU_COMM), device=states.device)
    named = kernels & np.isin(trace.name_id, ids)
    if not named.any():
        return None

    def measure(mask: npt.NDArray[np.bool_]) -> int:
        covered = union_of(trace, mask)
        return covered.clip(states.window.start_ns, states.window.end_ns).total_ns

    filling = named & np.isin(trace.name_id, fills)
    return Rocclr(measure(kernels & ~named), measure(named & ~filling), measure(filling))


def _clipped(trace: Trace, device: int) -> Clipped | None:
    """Over the whole trace, since the window itself may end with an event that runs away."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS["busy"], device=device))
    start = trace.start_ns[rows]
    end = start + trace.dur_ns[rows]
    clipped = clip_to_next_start(start, end, trace.lane_id[rows])
    if not len(rows) or (clipped == end).all():
        return None
    kernels = np.isin(trace.kind[rows], (Kind.GPU_COMPUTE, Kind.GPU_COMM))
    window = union(start.min(keepdims=True), clipped.max(keepdims=True))
    return Clipped(
        window=window,
        busy=union(start, clipped),
        kernel_busy_ns=union(start[kernels], clipped[kernels]).total_ns,
        sum_gpu_ns=int((clipped - start).sum()),
    )


def clip_to_next_start(start: Int64, end: Int64, lane: Int32) -> Int64:
    """Ends, none of them after the next later start on the same lane. Empty events clip nothing. Starts must ascend."""
    clipped = end.copy()
    for each in range(int(lane.max(initial=NONE)) + 1):
        rows = np.flatnonzero((lane == each) & (end > start))
        starts = start[rows]
        following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, starts, side="right")]
        clipped[rows] = np.minimum(end[rows], following)
    return clipped
