"""The trace of a run that never happened: measured spans moved to where the replay puts them.

Each host span is mapped from measured to predicted time through the pieces of its batch. One that encloses the wait
falls into two, since other batches' work comes between its halves. Waits are new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbprof.analysis.accounting.blame import NO_REQUESTS
from cbprof.analysis.predict.durations import CAPTURE, DeviceWork, Measured
from cbprof.analysis.predict.replay import Schedule
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.meta import Meta
from cbprof.trace import NONE, Int64, Kind, RequestEvent, RequestTable, Trace


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


def predicted_trace(measured: Measured, schedule: Schedule, what_if: WhatIf, meta: Meta) -> Trace:
    """The replayed run as a trace on the time axis of the measured one, with the same start."""
    source, steps = measured.trace, measured.steps
    names = dict.fromkeys((*source.names, "wait", NO_REQUESTS, CAPTURE))
    name_id = {name: index for index, name in enumerate(names)}
    mapped = _TimeMap(measured, schedule)

    def on_host(row: Int64, start: Int64, end: Int64, kind: Kind, name: str, slot: Int64) -> _Rows:
        kept = end > start
        row, start, end, slot = row[kept], start[kept], end[kept], slot[kept]
        columns = (NONE, name_id[name], row, measured.lane, kind, slot)
        return _Rows(
            start, end, *(np.broadcast_to(np.asarray(column, dtype=np.int64), row.shape) for column in columns)
        )

    def on_device(work: DeviceWork, start: Int64, length: Int64) -> _Rows:
        row = np.flatnonzero(work.span != NONE)
        span, start, end = work.span[row], start[row], (start + length)[row]
        name, lane, kind = (column[span].astype(np.int64) for column in (source.name_id, source.lane_id, source.kind))
        return _Rows(start, end, work.launch[row], name, row, lane, kind, row % what_if.slots)

    every = np.arange(len(steps))
    slot, no_slot = every % what_if.slots, np.full(len(every), NONE)
    again = schedule.before_start + steps.compute.queued
    starved_until = np.where(schedule.starved_from == NONE, NONE, schedule.before_start)
    parts = (
        _host_spans(measured, mapped, what_if),
        on_host(every, again - measured.repeated_ns, again, Kind.CPU_WORK, CAPTURE, slot),
        on_host(every, schedule.wait_start, schedule.after_start, Kind.CPU_WAIT, "wait", slot),
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
        step=measured.batches.step[row[order]].astype(np.int32),
        lane_id=lane[order].astype(np.int32),
        kind=kind[order].astype(np.int8),
        slot=slots[order].astype(np.int8),
        names=tuple(names),
        lanes=source.lanes,
        steps=source.steps,
        riders=source.riders,
        requests=_requests(measured, mapped),
        meta=meta,
    )


class _TimeMap:
    """From a time of the measured run, taken as work on one side of a batch, to the predicted run."""

    def __init__(self, measured: Measured, schedule: Schedule) -> None:
        self._measured = measured
        self._origin = np.stack((schedule.before_start, schedule.after_start), axis=1).ravel()

    def __call__(self, group: Int64, time: Int64) -> Int64:
        row, before = group // 2, group % 2 == 0
        measured = self._measured
        repeated = np.where(before & (time > measured.compute.queued_at[row]), measured.repeated_ns[row], 0)
        return self._origin[group] + measured.pieces.before(group, time) + repeated


def _host_spans(measured: Measured, mapped: _TimeMap, what_if: WhatIf) -> _Rows:
    """The spans of the host's work, moved. Those that take no time any more are left out, except launches."""
    trace, batches = measured.trace, measured.batches
    spans = np.flatnonzero((trace.kind == Kind.CPU_WORK) & (trace.lane_id == measured.lane))
    spans = spans[
        (trace.start_ns[spans] >= measured.window.start_ns) & (trace.start_ns[spans] < measured.window.end_ns)
    ]
    row = np.where(
        trace.step[spans] == NONE, _row_at(measured, trace.start_ns[spans]), batches.row_of(trace.step[spans])
    )
    spans, row = spans[row != NONE], row[row != NONE]
    launches = np.concatenate([work.launch for work in (measured.h2d, measured.compute, measured.d2h)])
    is_launch = np.isin(spans, launches)

    start, end, results = trace.start_ns[spans], trace.end_ns[spans], batches.results[row]
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
                link=np.where(linked[kept], span, NONE),
                name=trace.name_id[span].astype(np.int64),
                row=of_row,
                lane=trace.lane_id[span].astype(np.int64),
                kind=trace.kind[span].astype(np.int64),
                slot=slot,
            )
        )
    return _Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


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
