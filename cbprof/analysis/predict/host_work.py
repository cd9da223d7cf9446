"""Which piece of host work belongs to which batch, and on which side of the wait for its results.

::

    measured  |schedule N|prepare N| (glue) |launch N| wait N   |update N|schedule N+1 ...
    side       <---------- before ---------------->    dropped   <-after->

The host's time is cut into pieces, each exclusive of what is nested in it. Time without a span counts as work of the
batch that it follows: the waits have spans. Where none has, time without a span while the device runs cannot be told
from waiting, and is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.blame import NO_REQUESTS
from cbprof.analysis.accounting.host import HostTimeline
from cbprof.analysis.accounting.intervals import sum_by, union_of
from cbprof.analysis.accounting.window import ONE_OFF, Window
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.trace import NONE, Int64, Kind, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """The batches that ran on one device, one row each, ascending by ``step``; times of the trace.

    ``launched``: the end of the last launch (the start of the first device span, where none is known). ``finished``:
    the end of the last device span. ``wait``: index of the span in which the host waited for the results, or -1. The
    host counts as waiting from ``idle_from`` to ``results``; its work from ``results`` on is "after". ``came``: when
    the host, out of work, got the request of the batch; -1 where it was not out of work. ``alone``: whether a host that
    runs ahead had nothing to launch until it had the results of the batch before.
    """

    step: Int64
    launched: Int64
    finished: Int64
    wait: Int64
    idle_from: Int64
    results: Int64
    came: Int64
    alone: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step)

    def row_of(self, step: npt.NDArray[np.integer]) -> Int64:
        """The row of each step, -1 for steps that are not here."""
        return _row_of(self.step, step)


def find_batches(trace: Trace, device: int, lane: int, host: HostTimeline) -> Batches:
    """The batches that have a compute span on ``device``, as driven by host lane ``lane``. There is at least one."""
    on_device = np.flatnonzero(trace.mask(device=device) & trace.on_device & (trace.step != NONE))
    step = np.unique(trace.step[on_device[trace.kind[on_device] == Kind.GPU_COMPUTE]]).astype(np.int64)
    size = len(step)

    row = _row_of(step, trace.step[on_device])
    on_device, row = on_device[row != NONE], row[row != NONE]
    started, finished = _least(row, trace.start_ns[on_device], size), _most(row, trace.end_ns[on_device], size)
    launch = host.launch_of[on_device]
    launched = _most(row[launch != NONE], trace.end_ns[launch[launch != NONE]], size)
    launched = np.where(launched == _LEAST, started, launched)

    waits = np.flatnonzero((trace.kind == Kind.CPU_WAIT) & (trace.lane_id == lane) & ~_named(trace, (NO_REQUESTS,)))
    row = _row_of(step, trace.step[waits])
    wait = np.full(size, NONE, dtype=np.int64)
    wait[row[row != NONE]] = waits[row != NONE]  # the last one, since rows are in the order of time

    # Without a wait, a sync host waits somewhere between the launch and the end of the device's work.
    results = np.maximum(np.where(wait == NONE, finished, _begins_to_wait(trace, lane, step, launched, wait)), launched)
    ahead = trace.mode in ("async", "multi")
    idle_from = np.where((wait == NONE) & (not ahead), launched, results)
    alone = np.zeros(size, dtype=bool)
    alone[1:] = ahead & (launched[1:] > results[:-1])
    if trace.mode == "multi":
        alone &= ~_after_a_full_burst(trace, on_device, step, alone)
    return Batches(step, launched, finished, wait, idle_from, results, _requests_came(trace, lane, step), alone)


def _after_a_full_burst(
    trace: Trace, on_device: Int64, step: Int64, begins: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Of the first batches of bursts (``begins``), those before which every slot was taken, so that the host looked."""
    slot = np.full(len(begins), NONE, dtype=np.int64)
    slot[_row_of(step, trace.step[on_device])] = trace.slot[on_device]
    first = np.flatnonzero(begins)
    full = np.zeros(len(begins), dtype=bool)
    full[first] = slot[first - 1] == slot.max()
    return full


def _requests_came(trace: Trace, lane: int, step: Int64) -> Int64:
    waits = np.flatnonzero((trace.kind == Kind.CPU_WAIT) & (trace.lane_id == lane) & _named(trace, (NO_REQUESTS,)))
    row = _row_of(step, trace.step[waits])
    came = np.full(len(step), NONE, dtype=np.int64)
    np.maximum.at(came, row[row != NONE], trace.end_ns[waits[row != NONE]])
    return came


def _begins_to_wait(trace: Trace, lane: int, step: Int64, launched: Int64, wait: Int64) -> Int64:
    """When the wait of each batch begins, or what encloses it and launches nothing, such as an update that waits first.

    Only rows with a wait have a meaning.
    """
    start, end = trace.start_ns[wait], trace.end_ns[wait]
    work = np.flatnonzero((trace.kind == Kind.CPU_WORK) & (trace.lane_id == lane))
    row = _row_of(step, trace.step[work])
    work, row = work[row != NONE], row[row != NONE]
    encloses = (
        (trace.start_ns[work] <= start[row]) & (trace.end_ns[work] >= end[row]) & (trace.end_ns[work] > start[row])
    )
    encloses &= trace.start_ns[work] >= launched[row]
    return np.minimum(start, _least(row[encloses], trace.start_ns[work[encloses]], len(step)))


def _row_of(known: Int64, step: npt.NDArray[np.integer]) -> Int64:
    position = np.minimum(np.searchsorted(known, step), len(known) - 1)
    return np.where(known[position] == step, position, NONE)


@dataclass(frozen=True, slots=True, eq=False)
class HostPieces:
    """Host work cut by batch and side, sorted by (group, start). Group 2r is before, 2r+1 after the wait of row r.

    ``span``: index of the innermost span, -1 for time without one. ``predicted_ns``: how long it takes in the what-if.
    """

    group: Int64
    start: Int64
    end: Int64
    span: Int64
    predicted_ns: Int64

    def sums(self, groups: int) -> Int64:
        """The predicted time of each group."""
        return sum_by(self.group, self.predicted_ns, groups)

    def first_start(self, group: Int64, default: Int64) -> Int64:
        """When the first piece of each group begins; ``default`` where it has none."""
        first = np.searchsorted(self.group, group)
        there = np.append(self.group, NONE)[first] == group
        return np.where(there, np.append(self.start, 0)[first], default)

    def before(self, group: Int64, time: Int64) -> Int64:
        """For each (group, time of the trace), the predicted nanoseconds of the group's pieces before that time.

        Inside a piece it grows linearly, rounded down. This is the map from measured to predicted time.
        """
        if not len(self.group):
            return np.zeros(len(group), dtype=np.int64)
        total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.predicted_ns)))
        in_time = np.sort(self.start)
        key = self.group * (len(in_time) + 1) + np.searchsorted(in_time, self.start, side="right")
        wanted = group * (len(in_time) + 1) + np.searchsorted(in_time, time, side="right")
        first = np.searchsorted(self.group, group)
        last = np.searchsorted(key, wanted, side="right") - 1  # the piece that had started last by then
        length, predicted = (self.end - self.start)[last], self.predicted_ns[last]
        elapsed = np.clip(time - self.start[last], 0, length)
        share = (predicted * (elapsed / length)).astype(np.int64)
        part = np.where(
            (elapsed == length) | (predicted == 0), predicted, np.where(predicted == length, elapsed, share)
        )
        return np.where(last >= first, total[last] - total[first] + part, 0)


def host_pieces(
    trace: Trace, device: int, lane: int, host: HostTimeline, window: Window, batches: Batches, what_if: WhatIf
) -> HostPieces:
    """The work of ``lane`` in the window, on the batches that ran."""
    here = host.select((host.lane == lane) & (host.end > window.start_ns) & (host.start < window.end_ns))
    start, end, span, work = here.start, here.end, here.span, here.working
    glue = here.covered().complement(window.start_ns, window.end_ns)
    if (batches.wait == NONE).all():
        glue = glue.subtract(union_of(trace, trace.mask(device=device) & trace.on_device))

    start, end = np.concatenate((start, glue.start)), np.concatenate((end, glue.end))
    span = np.concatenate((span, np.full(len(glue), NONE)))
    work = np.concatenate((work, np.ones(len(glue), dtype=bool)))
    order = np.argsort(start, kind="stable")
    start, end, span, work = start[order], end[order], span[order], work[order]

    # Whatever carries no step, or that of a batch that never ran, belongs to the batch of what it follows; at the
    # start, of what follows it.
    row = batches.row_of(np.append(trace.step, np.int32(NONE))[span])
    of_row = np.where(row != NONE, np.arange(len(row)), NONE)
    stated = np.maximum(np.maximum.accumulate(of_row), int((of_row != NONE).argmax()) if len(row) else 0)
    row = row[stated]
    kept = work & (row != NONE) & ((row > 0) | (start >= batches.came[0]))  # a run begins with its first request
    start, end, span, row = start[kept], end[kept], span[kept], row[kept]

    # What the host did on a batch before it ran out of requests comes at the end of the batch before; what it did
    # in vain while that one was out, before the wait for it.
    before = np.maximum(row - 1, 0)
    in_vain = batches.alone[row] & (start < batches.results[before])
    previous = (start < batches.came[row]) & (row > 0) & ~in_vain
    row = np.where(in_vain | previous, before, row)
    early = (in_vain | (start < batches.idle_from[row])) & ~previous
    late = (previous | (end > batches.results[row])) & ~in_vain
    group = np.concatenate((2 * row[early], 2 * row[late] + 1))
    cut_start = np.concatenate((start[early], np.maximum(start[late], batches.results[row[late]])))
    cut_end = np.concatenate((np.minimum(end[early], batches.idle_from[row[early]]), end[late]))
    span = np.concatenate((span[early], span[late]))
    order = np.lexsort((cut_start, group))
    group, start, end, span = group[order], cut_start[order], cut_end[order], span[order]
    one_off = np.flatnonzero(np.append(_named(trace, ONE_OFF), False)[span])
    return HostPieces(group, start, end, span, what_if.host_ns(trace, lane, start, end, one_off))


def _named(trace: Trace, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Mask of the spans of these names."""
    return np.isin(trace.name_id, trace.ids_of(*names))


_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def _least(group: Int64, value: Int64, size: int) -> Int64:
    least = np.full(size, _MOST)
    np.minimum.at(least, group, value)
    return least


def _most(group: Int64, value: Int64, size: int) -> Int64:
    most = np.full(size, _LEAST)
    np.maximum.at(most, group, value)
    return most
