"""Where were records of a device left out? Where work stood at the head of its stream, and nothing ran.

::

    host     | launch K |
    device   ####          . . . . . . . . . . . . . .| K      nothing runs, and yet K does not begin
                        |<-------- missing ---------->|

A stream begins what is at its head within microseconds, unless something that runs keeps it back: a kernel on another
stream, say, whose record the file does not have. That is so where a trace was cut out of a longer one, or where graphs
that were launched before the recording began leave no records of their kernels. The stretch shows as idle and is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.trace import NONE, Int64, Trace

MISSING_FROM_NS = 1_000_000
"""An idle device begins what is launched within some microseconds: 12 at most in 500,000 launches on five kinds of GPU.

Where it takes longer than this, something was running of which there is no record.
"""


def missing_records(trace: Trace, launch_of: Int64) -> Mapping[int, Intervals]:
    """The stretches of each device in which records are missing, over the whole trace of a profiler.

    ``launch_of``: see :func:`cbprof.analysis.accounting.host.launches`. Work of another device of the same rank may
    keep a stream waiting, so all of them must be idle.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    device_of = np.array([lane.device for lane in trace.lanes], dtype=np.int64)
    rank_of = np.array([lane.rank for lane in trace.lanes], dtype=np.int64)
    ran = np.flatnonzero(trace.on_device & (trace.dur_ns > 0))
    for rank in np.unique(rank_of[trace.lane_id[ran]]):
        rows = ran[rank_of[trace.lane_id[ran]] == rank]  # by their start
        start = trace.start_ns[rows]
        busy = union(start, trace.end_of(rows))
        idle_from, idle_to = busy.end[:-1], busy.start[1:]
        long = idle_to - idle_from >= MISSING_FROM_NS
        for since, until in zip(idle_from[long].tolist(), idle_to[long].tolist(), strict=True):
            first, last = np.searchsorted(start, (until, until + 1))
            for row in rows[first:last].tolist():
                call = launch_of[row]
                head = until if call == NONE else max(since, int(trace.start_ns[call] + trace.dur_ns[call]))
                if until - head >= MISSING_FROM_NS:
                    found.setdefault(int(device_of[trace.lane_id[row]]), []).append((head, until))
    pairs = {device: np.array(each, dtype=np.int64) for device, each in found.items()}
    return {device: union(each[:, 0], each[:, 1]) for device, each in pairs.items()}
