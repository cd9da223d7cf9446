"""How long the thread that launches a device's compute sat in a blocking wait while the device was active.

::

    device    | compute N           |   | compute N+1
    launches  | launch | wait .......... | launch
    blocked            ==============              within the device's active time, so never more than that
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbprof.analysis.accounting.host import HostTimeline, driving_lanes
from cbprof.analysis.accounting.intervals import sum_by, union
from cbprof.analysis.accounting.states import States
from cbprof.trace import NONE, Int32, Kind, Trace


class Blocked(NamedTuple):
    """``name``: of the wait in which most of the time passed; None where the host has no wait."""

    ns: int
    name: str | None


def blocked(trace: Trace, states: States, host: HostTimeline) -> Blocked:
    """The waits of the threads that launch compute. One that only fetches results may wait: it holds up no launch."""
    mine = host.of_lanes(_launching_lanes(trace, states.device, host))
    waits = mine.select(~mine.working)
    if not len(waits):
        return Blocked(0, None)
    while_active = waits.within(states.gpu)
    names = trace.name_id[while_active.span]
    if not len(names):
        return Blocked(0, trace.names[trace.name_id[waits.span[0]]])
    longest = int(sum_by(names, while_active.length_ns, len(trace.names)).argmax())
    time = while_active.covered()
    if len(mine.lanes) > 1:  # on a thread of its own nothing works while it waits
        time = time.subtract(union(mine.start[mine.working], mine.end[mine.working]))
    return Blocked(time.total_ns, trace.names[longest])


def _launching_lanes(trace: Trace, device: int, host: HostTimeline) -> Int32:
    """The host lanes that launch compute on a device; all that drive it, where no such launch is known."""
    launched_by = host.launch_of[trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device)]
    lanes = np.unique(trace.lane_id[launched_by[launched_by != NONE]])
    return lanes if len(lanes) else driving_lanes(trace, host, device)
