"""The trace of a run that never happened: measured spans moved to where the replay puts them.

Each host span is mapped from measured to predicted time through the pieces of its batch. One that encloses the wait
falls into two, since other batches' work comes between its halves. Waits are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cbprof.analysis.accounting.blame import NO_REQUESTS
from cbprof.analysis.predict.durations import CAPTURE, DeviceWork, Measured
from cbprof.analysis.predict.replay import Schedule, StepDurations
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.meta import Meta
from cbprof.riders import RiderTable
from cbprof.trace import NONE, Int64, Kind, RequestEvent, RequestTable, StepTable, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """When the batches of a replay run, and what they are: one row a batch.

    ``steps``: what they cost. ``step``: their numbers. ``donor``: the measured batch that each has its spans from,
    stretched where it costs more or less. ``repeated_ns``: graph captures that the donor does not have.
    ``requests``: None if the moments of the measured run move along with its spans.
    """

    schedule: Schedule
    steps: StepDurations
    step: Int64
    donor: Int64
    repeated_ns: Int64
    table: StepTable
    riders: RiderTable
    requests: RequestTable | None = None

    @property
    def turns(self) -> Int64:
        """For each batch, how many before it have the same donor: so often its spans, and their links, came already."""
        order = np.argsort(self.donor, kind="stable")
        donor = self.donor[order]
        turns = np.empty(len(order), dtype=np.int64)
        turns[order] = np.arange(len(order)) - np.searchsorted(donor, donor)
        return turns


def in_measured_batches(measured: Measured, schedule: Schedule) -> Replayed:
    """The replay of the batches that were measured."""
    source, every = measured.trace, np.arange(len(measured.batches))
    return Replayed(
        schedule, measured.steps, measured.batches.step, every, measured.repeated_ns, source.steps, source.riders
    )


class _Rows(NamedTuple):
    """Spans to come, one array a column."""

    start: Int64
    end: Int64
    link: Int64
    name: Int64
    row: Int64
    lane: Int64
    kind: Int64
    slot: Int64


def predicted_trace(measured: Measured, replayed: Replayed, what_if: WhatIf, meta: Meta) -> Trace:
    """The replayed run as a trace on the time axis of the measured one, with the same start."""
    source, steps, schedule, donor = measured.trace, replayed.steps, replayed.schedule, replayed.donor
    names = dict.fromkeys((*source.names, "wait", NO_REQUESTS, CAPTURE))
    name_id = {name: index for index, name in enumerate(names)}
    mapped = _TimeMap(measured, replayed)

    def on_host(row: Int64, start: Int64, end: Int64, kind: Kind, name: str, slot: Int64) -> _Rows:
        kept = end > start
        row, start, end, slot = row[kept], start[kept], end[kept], slot[kept]
        columns = (NONE, name_id[name], row, measured.lane, kind, slot)
        return _Rows(
            start, end, *(np.broadcast_to(np.asarray(column, dtype=np.int64), row.shape) for column in columns)
        )

    def on_device(work: DeviceWork, start: Int64, length: Int64) -> _Rows:
        row = np.flatnonzero(work.span[donor] != NONE)
        span, launch, start, end = work.span[donor[row]], work.launch[donor[row]], start[row], (start + length)[row]
        name, lane, kind = (column[span].astype(np.int64) for column in (source.name_id, source.lane_id, source.kind))
        link = np.where(launch == NONE, NONE, launch + replayed.turns[row] * len(source))
        return _Rows(start, end, link, name, row, lane, kind, row % what_if.slots)

    every = np.arange(len(steps))
    slot, no_slot = every % what_if.slots, np.full(len(every), NONE)
    again = schedule.before_start + steps.compute.queued
    starved_until = np.where(schedule.starved_from == NONE, NONE, schedule.before_start)
    parts = (
        _host_spans(measured, replayed, mapped, what_if),
        on_host(every, again - replayed.repeated_ns, again, Kind.CPU_WORK, CAPTURE, slot),
        on_host(every, schedule.wait_start, schedule.wait_end, Kind.CPU_WAIT, "wait", slot),
        on_host(every, schedule.starved_from, starved_until, Kind.CPU_WAIT, NO_REQUESTS, no_slot),
        on_device(measured.h2d, schedule.h2d_start, steps.h2d.length),
        on_device(measured.compute, schedule.compute_start, steps.compute.length),
        on_device(measured.d2h, schedule.d2h_start, steps.d2h.length),
    )
    start, end, link, name, row, lane, kind, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((start - end, start))
    return Trace(
        start_ns=start[order],
        dur_ns=(end - start)[order],
        link=link[order],
        name_id=name[order].astype(np.int32),
        step=replayed.step[row[order]].astype(np.int32),
        lane_id=lane[order].astype(np.int32),
        kind=kind[order].astype(np.int8),
        slot=slots[order].astype(np.int8),
        names=tuple(names),
        lanes=source.lanes,
        steps=replayed.table,
        riders=replayed.riders,
        requests=_requests(measured, mapped) if replayed.requests is None else replayed.requests,
        meta=meta,
    )


class _TimeMap:
    """From a time of the measured run, taken as work on one side of a batch, to the predicted run.

    Group 2m is before the wait of batch m of the replay, 2m+1 after it.
    """

    def __init__(self, measured: Measured, replayed: Replayed) -> None:
        self._measured, self._donor, self._repeated = measured, replayed.donor, replayed.repeated_ns
        self._origin = np.stack((replayed.schedule.before_start, replayed.schedule.after_start), axis=1).ravel()
        self._lasts = np.stack((replayed.steps.before_ns - self._repeated, replayed.steps.after_ns), axis=1).ravel()
        self._donated = measured.pieces.sums(2 * len(measured.batches))

    def __call__(self, group: Int64, time: Int64) -> Int64:
        measured, row, before = self._measured, group // 2, group % 2 == 0
        donor = self._donor[row]
        capture_over = before & (time > measured.compute.queued_at[donor])
        of_donor = 2 * donor + group % 2
        elapsed = measured.pieces.before(of_donor, time)
        lasts, donated = self._lasts[group], self._donated[of_donor]
        stretched = np.rint(elapsed * (lasts / np.maximum(donated, 1))).astype(np.int64)
        elapsed = np.where(lasts == donated, elapsed, stretched)
        return self._origin[group] + elapsed + np.where(capture_over, self._repeated[row], 0)


def _host_spans(measured: Measured, replayed: Replayed, mapped: _TimeMap, what_if: WhatIf) -> _Rows:
    """The spans of the host's work, moved. Those that take no time any more are left out, except launches."""
    trace, batches = measured.trace, measured.batches
    spans = np.flatnonzero((trace.kind == Kind.CPU_WORK) & (trace.lane_id == measured.lane))
    spans = spans[
        (trace.start_ns[spans] >= measured.window.start_ns) & (trace.start_ns[spans] < measured.window.end_ns)
    ]
    of_donor = np.where(
        trace.step[spans] == NONE, _row_at(measured, trace.start_ns[spans]), batches.row_of(trace.step[spans])
    )
    spans, row = _donated(spans, of_donor, replayed.donor)
    launches = np.concatenate([work.launch for work in (measured.h2d, measured.compute, measured.d2h)])
    is_launch = np.isin(spans, launches)

    start, end, results = trace.start_ns[spans], trace.end_ns[spans], batches.results[replayed.donor[row]]
    early, late = start < results, end > results
    halves = (
        (early, 2 * row, start, np.minimum(end, results)),
        (late, 2 * row + 1, np.maximum(start, results), end),
    )
    parts = []
    for side, group, begin, finish in halves:
        moved_start, moved_end = (mapped(group[side], time[side]) for time in (begin, finish))
        linked = is_launch[side] & (group[side] % 2 == 0)
        kept = (moved_end > moved_start) | linked
        span, of_row = spans[side][kept], row[side][kept]
        slot = np.where((trace.slot[span] != NONE) | linked[kept], of_row % what_if.slots, NONE)
        parts.append(
            _Rows(
                start=moved_start[kept],
                end=moved_end[kept],
                link=np.where(linked[kept], span + replayed.turns[of_row] * len(trace), NONE),
                name=trace.name_id[span].astype(np.int64),
                row=of_row,
                lane=trace.lane_id[span].astype(np.int64),
                kind=trace.kind[span].astype(np.int64),
                slot=slot,
            )
        )
    return _Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _donated(spans: Int64, of_donor: Int64, donor: Int64) -> tuple[Int64, Int64]:
    """The spans of every batch of the replay, and its row: those of its donor, which may have several takers."""
    order = np.argsort(of_donor, kind="stable")
    first, last = (np.searchsorted(of_donor[order], donor, side=side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(donor)), last - first)
    within = np.arange(len(row)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
    return spans[order][first[row] + within], row


def _row_at(measured: Measured, time: Int64) -> Int64:
    """The batch that the host worked on at each time of the measured run; -1 before the first."""
    return _group_at(measured, time) // 2  # -1 // 2 is -1


def _group_at(measured: Measured, time: Int64) -> Int64:
    """The batch and side that the host last began to work on by each time; -1 before the first."""
    order = np.argsort(measured.pieces.start, kind="stable")
    position = np.searchsorted(measured.pieces.start[order], time, side="right") - 1
    return np.append(measured.pieces.group[order], NONE)[position]  # position -1 reads the appended one


def _requests(measured: Measured, mapped: _TimeMap) -> RequestTable:
    """Requests arrive when they did; their tokens move with the work in which they were noted."""
    table = measured.trace.requests
    group = _group_at(measured, table.time_ns - 1)  # what ends at that instant, not what begins
    moves = (table.event != RequestEvent.ARRIVE) & (group != NONE)
    time = table.time_ns.copy()
    time[moves] = mapped(group[moves], table.time_ns[moves])
    order = np.argsort(time, kind="stable")
    return RequestTable(time[order], table.request[order], table.event[order])
