"""A profile taken apart for the replay: what the host and the device do for each step, told by the blocking waits.

::

    host     | after N-1 | before N .............. | wait N      | after N | before N+1 ...
                           ^ first launch of N, or its mark
    device                 [copy]  [ kernel kernel  kernel ]                 [copy]  [ kernel ...
                           block          block, with its holes

The longest wait of each step is the one for its results; all other time of the host between two of those counts as
work. What the device does for a step falls into blocks: a block begins where the device had nothing to do until the
host launched it. The holes in a block are the device's own and stay, whatever the order of the host's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.host import HostTimeline, host_timeline, main_lane
from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.analysis.accounting.window import ONE_OFF
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.errors import UsageError
from cbprof.trace import NONE, Int64, Kind, Trace

_HOW = "record steps with `cbprof record -- COMMAND`, or with annotations around them (record_function, NVTX)"


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Device work in blocks, in the order of their starts. ``step``: row of their step.

    ``queued_ns``: how far into the host's work before the wait of that step it was launched, in the what-if.
    ``latency_ns``: from the launch until it began. ``start``, ``end``: as measured.
    """

    step: Int64
    queued_ns: Int64
    latency_ns: Int64
    start: Int64
    end: Int64


class Copies(NamedTuple):
    """Copies back, and those on streams that do nothing but copy: they run beside the blocks. Rows, and their steps."""

    row: Int64
    step: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The steps of a profile, one row each; nanoseconds.

    ``begin``: when the host began with it, a time of the trace.
    ``before_ns``, ``after_ns``: host work before and after the wait for its results, in the what-if.
    ``waits``: whether the host waits for its results at all.
    ``tail_ns``: from the end of its device work until a host that slept goes on, the copy back included.
    ``poll_ns``: what the wait takes if all is there.
    ``active``: when the device ran what is in the blocks. ``slots``: batches in flight as measured.
    ``gap_ns``: the usual hole between two kernels.
    """

    trace: Trace
    device: int
    lane: int
    begin: Int64
    before_ns: Int64
    after_ns: Int64
    waits: npt.NDArray[np.bool_]
    tail_ns: Int64
    poll_ns: Int64
    blocks: Blocks
    active: Intervals
    copies: Copies
    slots: int
    gap_ns: int

    def __len__(self) -> int:
        return len(self.begin)


def measure_profile(trace: Trace, what_if: WhatIf) -> Profile:
    """Take the first device's part of a profile apart. Raises UsageError that names what the file lacks."""
    host = host_timeline(trace)
    device = min(trace.devices, default=NONE)
    if device == NONE:
        raise UsageError("nothing to replay: the profile holds no device work; profile CUDA activities too")
    lane = main_lane(trace, host, device)
    launched = np.flatnonzero(trace.mask(device=device) & (host.launch_of != NONE))
    if lane == NONE or not len(launched):
        raise UsageError(
            "nothing to replay: the profile does not join launches with the work of the device; record the runtime's "
            "calls too (profile CPU activities, or nsys --trace cuda)"
        )
    what_if.check_phases(trace)
    begins = _step_begins(trace, lane)
    wait = _blocking_waits(trace, lane, begins)
    if (wait != NONE).sum() < 2:
        raise UsageError(
            "nothing to replay: the host never blocks for the results of a step, or its waits were not recorded; "
            "record the runtime's calls too"
        )
    return _taken_apart(trace, device, lane, host, launched, begins, wait, what_if)


def _step_begins(trace: Trace, lane: int) -> Int64:
    """When the host began with each step, ascending."""
    rows = np.flatnonzero((trace.lane_id == lane) & (trace.step != NONE) & ~trace.on_device)
    _, first = np.unique(trace.step[rows], return_index=True)
    if len(first) < 2:
        raise UsageError(f"nothing to replay: the profile does not say where a step begins; {_HOW}")
    return np.sort(trace.start_ns[rows[first]])


def _blocking_waits(trace: Trace, lane: int, begins: Int64) -> Int64:
    """The longest wait that starts in each step, -1 where there is none."""
    waits = np.flatnonzero((trace.kind == Kind.CPU_WAIT) & (trace.lane_id == lane))
    row = np.searchsorted(begins, trace.start_ns[waits], side="right") - 1
    waits, row = waits[row >= 0], row[row >= 0]
    order = np.lexsort((trace.dur_ns[waits], row))
    longest = np.full(len(begins), NONE, dtype=np.int64)
    longest[row[order]] = waits[order]  # the last of each row is its longest
    return longest


def _taken_apart(
    trace: Trace,
    device: int,
    lane: int,
    host: HostTimeline,
    launched: Int64,
    begins: Int64,
    wait: Int64,
    what_if: WhatIf,
) -> Profile:
    size, waits = len(wait), wait != NONE
    # What is launched once the results of a step are there belongs to the next step.
    cut = np.where(waits[:-1], trace.end_ns[wait[:-1]], begins[1:])
    launch = host.launch_of[launched]
    of_step = np.searchsorted(cut, trace.start_ns[launch], side="right")
    order = np.lexsort((trace.start_ns[launched], of_step))
    launched, launch, of_step = launched[order], launch[order], of_step[order]
    aside = (trace.kind[launched] == Kind.GPU_D2H) | ~np.isin(trace.lane_id[launched], _computing(trace))
    copies = Copies(launched[aside], of_step[aside])
    launched, launch, of_step = launched[~aside], launch[~aside], of_step[~aside]
    if not len(launched):
        raise UsageError("nothing to replay: the profile holds copies alone")
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, of_step, trace.start_ns[launch])
    begin = np.minimum(begins, first)
    end_of_run = max(int(trace.end_ns[wait[waits]].max()), int(begin[-1]))
    following = np.append(begin[1:], end_of_run)
    wait_start = np.where(waits, trace.start_ns[wait], following)
    wait_end = np.where(waits, trace.end_ns[wait], following)

    work = _HostWork(trace, lane, host, what_if)
    start, end = trace.start_ns[launched], trace.end_ns[launched]
    queued = np.clip(start, trace.start_ns[launch], trace.end_ns[launch])
    until = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    opens = (queued > until) | np.append(True, of_step[1:] != of_step[:-1])
    opening = np.flatnonzero(opens)
    holes = (start - until)[~opens]
    holes = holes[holes > 0]
    blocks = Blocks(
        step=of_step[opening],
        queued_ns=np.maximum(work.until(queued[opening]) - work.until(begin[of_step[opening]]), 0),
        latency_ns=np.maximum(start[opening] - np.maximum(queued, until)[opening], 0),
        start=start[opening],
        end=np.maximum.reduceat(end, opening),
    )

    over = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(over, of_step, end)
    over = np.maximum.accumulate(over)
    slots = 2 if np.median((wait_end < over)[waits]) else 1
    landed = np.minimum(
        np.arange(size) + slots - 1, size - 1
    )  # the step in which the host waits for the results of each
    known = waits[landed] & (np.arange(size) + slots <= size)
    slept = known & (wait_start[landed] < over)
    came_later = known & ~slept & np.isin(np.arange(size), of_step)
    lasted = (wait_end - wait_start)[landed]
    return Profile(
        trace=trace,
        device=device,
        lane=lane,
        begin=begin,
        before_ns=np.maximum(work.until(wait_start) - work.until(begin), 0),
        after_ns=np.where(known, np.maximum(work.until(following) - work.until(wait_end), 0)[landed], 0),
        waits=known | (np.arange(size) + slots > size),
        tail_ns=_or_median(np.maximum(wait_end[landed] - over, 0), slept),
        poll_ns=np.where(known & ~slept, lasted, _or_median(lasted, came_later)),
        blocks=blocks,
        active=union(start, end),
        copies=copies,
        slots=slots,
        gap_ns=int(np.median(holes)) if len(holes) else 0,
    )


def _computing(trace: Trace) -> Int64:
    """The streams that compute."""
    computing: Int64 = np.unique(trace.lane_id[trace.kind == Kind.GPU_COMPUTE]).astype(np.int64)
    return computing


def _or_median(values: Int64, known: npt.NDArray[np.bool_]) -> Int64:
    usual = int(np.median(values[known])) if known.any() else 0
    return np.where(known, values, usual)


class _HostWork:
    """How much the host has worked, in the what-if, until a time of the trace. Only differences have a meaning."""

    def __init__(self, trace: Trace, lane: int, host: HostTimeline, what_if: WhatIf) -> None:
        mine = host.select(host.lane == lane)
        one_off = np.flatnonzero(np.isin(trace.name_id[mine.span], trace.ids_of(*ONE_OFF)))
        saved = mine.length_ns - what_if.host_ns(trace, lane, mine.start, mine.end, one_off)
        self._edges = np.stack((mine.start, mine.end), axis=1).ravel()
        self._saved = np.stack((np.cumsum(saved) - saved, np.cumsum(saved)), axis=1).ravel()

    def until(self, time: Int64) -> Int64:
        base = int(self._edges[0]) if len(self._edges) else 0
        saved = np.interp((time - base).astype(float), (self._edges - base).astype(float), self._saved.astype(float))
        spared: Int64 = np.rint(saved).astype(np.int64)
        return time - spared
