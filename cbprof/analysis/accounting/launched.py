"""May anything be said that rests on launches? Not where few are joined to their work, nor where clocks disagree.

::

    host    | launch |  synchronize |                the call returns, so the work that it waited for is over
    device                     | kernel |            by the device's clock it is not: that clock runs late

A launch is *joined* to the work that it caused by an id that both records carry. A profiler that cbprof does not know
well may use other ids, or none: then no host thread is known to drive the device, and who was late, what was hidden and
what was queued are unknown. Idle time rests on the device's records alone and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cbprof.analysis.accounting.intervals import Intervals
from cbprof.analysis.accounting.missing import missing_records
from cbprof.trace import NONE, Int64, Kind, Trace

LEAST_JOINED_PCT = 50
"""Of what a device ran, so much must be joined to its launch, or nothing that rests on launches is said of it."""

CLOCKS_AGREE_WITHIN_NS = 10_000
"""Host and device times that contradict each other by more were taken by clocks that disagree."""

ODD_FROM_PCT = 1
"""A contradiction in fewer of the records is a slip of the recorder, not a clock."""

_WAITS_FOR_ALL = re.compile(r"(cuda|cu|hip|musa|mu|mc)[A-Za-z]*(Device|Ctx|Stream)Synchronize")


class Joined(NamedTuple):
    """How many of the spans of a device are joined to the call that launched them."""

    n_joined: int
    n_spans: int

    @property
    def enough(self) -> bool:
        return 100 * self.n_joined >= LEAST_JOINED_PCT * self.n_spans


class Clocks(NamedTuple):
    """How the records contradict the order of cause and effect, each beyond :data:`CLOCKS_AGREE_WITHIN_NS`.

    ``n_early_starts`` of ``n_launched`` spans start before their launch; ``n_early_returns`` of ``n_waits`` calls
    return before the work that they waited for has ended. ``error_ns``: the clocks disagree by at least that.
    """

    n_early_starts: int
    n_launched: int
    n_early_returns: int
    n_waits: int
    error_ns: int

    @property
    def agree(self) -> bool:
        return not (_odd(self.n_early_starts, self.n_launched) or _odd(self.n_early_returns, self.n_waits))


def _odd(part: int, whole: int) -> bool:
    return part > 0 and 100 * part >= ODD_FROM_PCT * whole


class Known(NamedTuple):
    """What is known of launches. ``devices``: those of which something can be said that rests on them.

    ``clocks``: None but for the trace of a profiler. ``missing``: where records of a device are missing, by device.
    ``launch_of``: for each span the host span that launched it by what the records say, or -1.
    """

    devices: frozenset[int]
    clocks: Clocks | None
    missing: Mapping[int, Intervals]
    launch_of: Int64


def known(trace: Trace, launch_of: Int64) -> Known:
    """What is known; ``launch_of``: see :func:`cbprof.analysis.accounting.host.launches`.

    Only a profiler's launches can fail to be joined: those of our own traces are known by their step.
    """
    if not trace.is_profile:
        return Known(frozenset(trace.devices), None, {}, launch_of)
    agreement = clocks(trace, launch_of)
    devices = frozenset(device for device, each in joined(trace, launch_of).items() if each.enough and agreement.agree)
    missing = missing_records(trace, launch_of) if devices else {}
    of_devices = {device: missing[device] for device in missing.keys() & devices}
    return Known(devices, agreement, of_devices, launch_of)


def joined(trace: Trace, launch_of: Int64) -> dict[int, Joined]:
    """Of each device; ``launch_of``: see :func:`cbprof.analysis.accounting.host.launches`."""
    size = len(trace.lanes)
    n_spans = np.bincount(trace.lane_id, minlength=size)
    n_joined = np.bincount(trace.lane_id[launch_of != NONE], minlength=size)
    found = {}
    for device in trace.devices:
        lanes = [index for index, lane in enumerate(trace.lanes) if lane.device == device]
        found[device] = Joined(int(n_joined[lanes].sum()), int(n_spans[lanes].sum()))
    return found


def clocks(trace: Trace, launch_of: Int64) -> Clocks:
    """Whether effects follow their causes in the trace of a profiler.

    A call that waits for a stream, or for a whole device, says which in no column. So the streams are taken on which
    its thread has launched something by then: were the work on each of them still running when the call returned, the
    call returned too early, whichever it waited for. A call that waits for an event may leave later work running, and
    proves nothing.
    """
    rows = np.flatnonzero(launch_of != NONE)
    call = launch_of[rows]
    early = trace.start_ns[call] - trace.start_ns[rows]
    starts = early[early > CLOCKS_AGREE_WITHIN_NS]
    waits = np.flatnonzero(trace.kind == Kind.CPU_WAIT)
    waits = waits[np.isin(trace.name_id[waits], trace.ids_where(_WAITS_FOR_ALL.match, (Kind.CPU_WAIT,)))]
    excess = [
        _still_running(trace, waits[trace.lane_id[waits] == lane], rows[mine], call[mine])
        for lane in np.unique(trace.lane_id[waits])
        if (mine := trace.lane_id[call] == lane).any()
    ]
    late = np.concatenate([*excess, np.empty(0, dtype=np.int64)])
    returns = late[late > CLOCKS_AGREE_WITHIN_NS]
    error = max(int(starts.max(initial=0)), int(returns.max(initial=0)))
    return Clocks(len(starts), len(rows), len(returns), len(late), error)


def _still_running(trace: Trace, waits: Int64, work: Int64, call: Int64) -> Int64:
    """For each wait how long after its return the work still ran that its thread had launched: the least of any stream.

    Negative where the work was over. Waits with nothing launched before them are left out. ``call`` launched ``work``.
    """
    begin, finish = trace.start_ns[waits], trace.end_of(waits)
    least = np.full(len(waits), np.iinfo(np.int64).max)
    for stream in np.unique(trace.lane_id[work]):
        mine = trace.lane_id[work] == stream
        launched, ended = trace.end_of(call[mine]), trace.end_of(work[mine])
        order = np.argsort(launched, kind="stable")
        last_end = np.maximum.accumulate(ended[order])
        before = np.searchsorted(launched[order], begin, side="right") - 1
        some = before >= 0
        least[some] = np.minimum(least[some], last_end[before[some]] - finish[some])
    said: Int64 = least[least != np.iinfo(np.int64).max]
    return said
