"""What a device ran in a window, and for how long."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.analysis.accounting.states import ACTIVITY_KINDS
from cbprof.analysis.accounting.window import Window
from cbprof.trace import CALL_KINDS, GRAPH_REPLAY, Kind, Trace, one_of

KERNELS = (Kind.GPU_COMPUTE, Kind.GPU_COMM)


class DeviceTime(NamedTuple):
    """Nanoseconds of each sort of work, as unions: see :class:`cbprof.analysis.device.DeviceSummary`."""

    active_ns: int
    busy_ns: int
    kernel_busy_ns: int
    comm_busy_ns: int
    exposed_comm: Intervals
    n_events: int
    n_streams: int


def device_time(trace: Trace, device: int, window: Window) -> DeviceTime:
    """The work of one device in a window."""
    own = np.flatnonzero(trace.mask(device=device) & trace.on_device)
    kind, lane = trace.kind[own], trace.lane_id[own]
    start, end = trace.start_ns[own], trace.start_ns[own] + trace.dur_ns[own]
    one_by_one = ~graph_replays(trace)[own]  # not a whole graph that was recorded as one

    def union_of(*kinds: Kind, of_kernels: bool = False) -> Intervals:
        rows = one_of(kind, kinds)
        if of_kernels:
            rows &= one_by_one
        return union(start[rows], end[rows]).clip(window.start_ns, window.end_ns)

    within = (start < window.end_ns) & ((end > window.start_ns) | (start >= window.start_ns))
    # Most traces have no collectives and no whole graphs: what would be the same union is not made again.
    computing = union_of(Kind.GPU_COMPUTE, of_kernels=True)
    active = computing if one_by_one.all() else union_of(Kind.GPU_COMPUTE)
    comm = union_of(Kind.GPU_COMM)
    kernels = union_of(*KERNELS, of_kernels=True) if len(comm) else computing
    return DeviceTime(
        active_ns=active.total_ns,
        busy_ns=union_of(*ACTIVITY_KINDS["busy"]).total_ns,
        kernel_busy_ns=kernels.total_ns,
        comm_busy_ns=comm.total_ns,
        exposed_comm=kernels.subtract(computing),
        n_events=int(within.sum()),
        n_streams=len(np.unique(lane[within])),
    )


def graph_replays(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the spans that are whole graph replays, without the kernels in them: they keep a device busy."""
    ids = trace.ids_where(lambda name: name.startswith(GRAPH_REPLAY), (Kind.GPU_COMPUTE,))
    mask: npt.NDArray[np.bool_] = np.isin(trace.name_id, ids) & (trace.kind == Kind.GPU_COMPUTE)
    return mask


def graph_launches(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the calls of cudaGraphLaunch and its kin."""
    ids = trace.ids_where(lambda name: "graphlaunch" in name.lower(), CALL_KINDS)
    return trace.mask(kinds=CALL_KINDS) & np.isin(trace.name_id, ids)
