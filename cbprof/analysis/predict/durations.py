"""What each batch of a trace would cost in a what-if: the input of the replay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.host import HostTimeline, host_timeline, main_lane
from cbprof.analysis.accounting.intervals import sum_by, union_by
from cbprof.analysis.accounting.window import ONE_OFF, Window, run_window
from cbprof.analysis.predict.host_work import Batches, HostPieces, find_batches, host_pieces
from cbprof.analysis.predict.replay import Operation, StepDurations
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.errors import UsageError
from cbprof.trace import NONE, Int64, Kind, RequestEvent, Trace

CAPTURE = ONE_OFF[0]
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWork:
    """One kind of work that the batches do on the device, one row a batch.

    ``span``: its first span, -1 if there is none. ``launch``: the host span that queued it, -1 if unknown.
    ``queued_at``: when that was done: when the launch ended, or before, if the work had already started by then.
    ``start``, ``end``: of its first and its last span. ``length_ns``: what its spans cover.
    """

    span: Int64
    launch: Int64
    queued_at: Int64
    start: Int64
    end: Int64
    length_ns: Int64

    def latency_ns(self, *after: Int64) -> Int64:
        """How long it took to start once it was queued, the one before it on the stream over, and ``after`` reached."""
        before = np.concatenate(([_NEVER], np.maximum.accumulate(self.end)[:-1]))
        may_start = np.maximum.reduce([self.queued_at, before, *after])
        return np.where(self.span == NONE, 0, np.maximum(self.start - may_start, 0))


@dataclass(frozen=True, eq=False)
class Measured:
    """A run taken apart: its batches, the pieces of its host's work, and what its device did for each batch.

    ``capture_ns`` is how long a graph capture takes in each batch,
    those that are repeated for another slot (``repeated_ns``) included. ``steps`` counts both as work before the wait.
    """

    trace: Trace
    what_if: WhatIf
    window: Window
    device: int
    lane: int
    batches: Batches
    pieces: HostPieces
    h2d: DeviceWork
    compute: DeviceWork
    d2h: DeviceWork
    capture_ns: Int64
    repeated_ns: Int64

    @cached_property
    def steps(self) -> StepDurations:
        """What the batches cost in the what-if."""
        trace, batches, pieces, repeated = self.trace, self.batches, self.pieces, self.repeated_ns
        h2d, compute, d2h = self.h2d, self.compute, self.d2h
        before, after = pieces.sums(2 * len(batches)).reshape(-1, 2).T
        rows = 2 * np.arange(len(batches))
        wake, poll = _waking(trace, batches)
        return StepDurations(
            before_ns=before + repeated,
            after_ns=after,
            wake_ns=wake,
            poll_ns=poll,
            h2d=Operation(pieces.before(rows, h2d.queued_at), h2d.latency_ns(), h2d.length_ns),
            compute=Operation(
                pieces.before(rows, compute.queued_at) + repeated,
                compute.latency_ns(h2d.end),
                self.what_if.compute_ns(compute.length_ns),
            ),
            d2h=Operation(
                pieces.before(rows, d2h.queued_at) + np.where(d2h.queued_at > compute.queued_at, repeated, 0),
                d2h.latency_ns(compute.end),
                d2h.length_ns,
            ),
            arrived_ns=_arrived(trace, batches, pieces),
            not_before_ns=batches.came,
            alone=batches.alone,
        )


def measure(trace: Trace, what_if: WhatIf) -> Measured:
    """Take the run of the first device apart. Raises UsageError where batches or host work cannot be told."""
    window = run_window(trace)
    host = host_timeline(trace)
    if window is None or not ((trace.kind == Kind.GPU_COMPUTE) & (trace.step != NONE)).any():
        raise UsageError(
            "nothing to replay: no compute span says which step it is of; record with `cbprof run` or cbprof.Tracer"
        )
    on_device = trace.lane_id[(trace.kind == Kind.GPU_COMPUTE) & (trace.step != NONE)]
    device = min(trace.lanes[lane].device for lane in np.unique(on_device).tolist())
    lane = main_lane(trace, host, device)
    if lane == NONE:
        raise UsageError("nothing to replay: the trace has no host spans, so the cost of the host's work is unknown")
    what_if.check_phases(trace)

    batches = find_batches(trace, device, lane, host)
    pieces = host_pieces(trace, device, lane, host, window, batches, what_if)
    h2d, compute, d2h = (
        _device_work(trace, device, kind, host, batches) for kind in (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H)
    )
    compute = _after_captures(trace, lane, batches, compute)
    own = _captured(trace, batches, pieces)
    repeated = _repeated(own, what_if.slots - order_of(trace).slots)

    return Measured(trace, what_if, window, device, lane, batches, pieces, h2d, compute, d2h, own + repeated, repeated)


def _device_work(trace: Trace, device: int, kind: Kind, host: HostTimeline, batches: Batches) -> DeviceWork:
    spans = np.flatnonzero(trace.mask(kinds=(kind,), device=device))
    row = batches.row_of(trace.step[spans])
    spans, row = spans[row != NONE], row[row != NONE]
    first = np.full(len(batches), NONE)
    first[row[::-1]] = spans[::-1]
    launch = np.where(first == NONE, NONE, host.launch_of[first])
    queued = np.clip(trace.start_ns[first], trace.start_ns[launch], trace.end_ns[launch])
    queued = np.where(launch == NONE, batches.idle_from, queued)  # at the latest, once the host has done its part
    start, end = trace.start_ns[spans], trace.end_ns[spans]
    last = np.full(len(batches), _NEVER)
    np.maximum.at(last, row, end)
    return DeviceWork(
        span=first,
        launch=launch,
        queued_at=np.where(first == NONE, _NEVER, queued),
        start=trace.start_ns[first],
        end=last,
        length_ns=union_by(row, start, end, len(batches)),
    )


def _after_captures(trace: Trace, lane: int, batches: Batches, compute: DeviceWork) -> DeviceWork:
    """The compute without the captures inside it.

    Where a launch captures a graph first, the compute span already begins at the event before the capture::

        host     | launch [ capture ......... ] |
        compute    [ ........................ | compute ]
                                              queued here
    """
    queued, length = compute.queued_at.copy(), compute.length_ns.copy()
    computes = np.flatnonzero(trace.kind == Kind.GPU_COMPUTE)
    captures = np.flatnonzero(_is_capture(trace)[trace.name_id] & (trace.lane_id == lane))
    for capture, row in zip(captures.tolist(), batches.row_of(trace.step[captures]).tolist(), strict=True):
        start, end = int(trace.start_ns[capture]), int(trace.end_ns[capture])
        if row == NONE or start >= batches.launched[row]:
            continue
        mine = computes[trace.step[computes] == batches.step[row]]
        covered = np.minimum(trace.end_ns[mine], end) - np.maximum(trace.start_ns[mine], start)
        length[row] -= np.maximum(covered, 0).sum()
        queued[row] = max(int(queued[row]), end)
    return replace(compute, queued_at=queued, length_ns=np.maximum(length, 0))


def _captured(trace: Trace, batches: Batches, pieces: HostPieces) -> Int64:
    """The predicted time of the captures of each batch; only launches capture, so all of it lies before the wait."""
    mine = np.append(_is_capture(trace), False)[np.append(trace.name_id, len(trace.names))[pieces.span]]
    return sum_by(pieces.group[mine] // 2, pieces.predicted_ns[mine], len(batches))


def _repeated(captured: Int64, more_slots: int) -> Int64:
    """The captures that more slots add: each slot has graphs of its own.

    The slots take turns, so a shape that is new in one batch is new again in the next ones, one for each further slot,
    except where that batch brings a new shape itself. (The measured async run of transformers has just these.)
    """
    repeated = np.zeros(len(captured), dtype=np.int64)
    for row in np.flatnonzero(captured).tolist():
        repeated[row + 1 : row + 1 + max(0, more_slots)] = captured[row]
    repeated[captured > 0] = 0
    return repeated


def _waking(trace: Trace, batches: Batches) -> tuple[Int64, Int64]:
    """How long each wait lasts once the results are there: of a host that slept until then, and of one that came later.

    Measured of a batch is one of the two. The other is the median of the batches where that one was measured.
    """
    known = batches.wait != NONE
    start, end = trace.start_ns[batches.wait], trace.end_ns[batches.wait]
    slept = known & (start < batches.finished)
    earliest = -(trace.meta.clock_error_ns or 0)  # as far before the results as the clocks allow
    wake = np.maximum(end - batches.finished, earliest)
    return _or_median(wake, slept), _or_median(end - start, known & ~slept)


def _arrived(trace: Trace, batches: Batches, pieces: HostPieces) -> Int64:
    """When the host may begin each batch, so that it has come to the same point once the last new request arrives.

    A request is in the first batch that it rides in, or that its first token comes from, where no riders are known.
    """
    table, riders = trace.requests, trace.riders
    arrived = np.full(len(batches), _NEVER)
    arrives = table.event == RequestEvent.ARRIVE
    times = dict(zip(table.request[arrives].tolist(), table.time_ns[arrives].tolist(), strict=True))
    if len(riders):
        request, first = np.unique(riders.request, return_index=True)
        row = batches.row_of(riders.step[first])
    else:
        first = np.flatnonzero(table.event == RequestEvent.FIRST)
        request, row = table.request[first], np.searchsorted(batches.results, table.time_ns[first]) - 1
    time = np.array([times.get(each, _NEVER) for each in request.tolist()], dtype=np.int64)
    known = (row >= 0) & (time > batches.launched[0])
    row, time = row[known], time[known]
    np.maximum.at(arrived, row, time - pieces.before(2 * row, time))
    return arrived


def _or_median(values: Int64, known: npt.NDArray[np.bool_]) -> Int64:
    usual = int(np.median(values[known])) if known.any() else 0
    return np.where(known, values, usual)


def order_of(trace: Trace) -> WhatIf:
    """The order of the trace's own loop: one slot in sync; in the others as many as were seen, or else two."""
    if trace.mode not in ("async", "multi"):
        return WhatIf(slots=1)
    slots = int(trace.slot[trace.on_device].max(initial=NONE)) + 1 or 2
    return WhatIf(slots=slots, together=trace.mode == "multi" and slots > 1)


def _is_capture(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each name, whether it means a graph capture."""
    return np.array([name == CAPTURE for name in trace.names], dtype=bool)
