"""Cutting a stretch of time out of a trace, such as the steps that ran under a profiler.

::

    before   |  a  |  b ....|....... b |  c  |         [start, end) is the part marked with dots
    after    |  a  |  b | b |  c  |                    what lay across an edge is joined there
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cbprof.riders import RiderTable
from cbprof.trace import Int64, RequestEvent, RequestTable, StepTable, Trace

Table = TypeVar("Table", StepTable, RiderTable)


def cut_out(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    """``trace`` without the time from ``start_ns`` to ``end_ns``: later times move up, spans inside are dropped.

    A span that reaches into the stretch keeps what lies outside. The facts of steps and requests are kept; moments
    inside the stretch move to its place.
    """
    start, end = _moved(trace.start_ns, start_ns, end_ns), _moved(trace.end_ns, start_ns, end_ns)
    inside = (trace.start_ns >= start_ns) & (trace.end_ns <= end_ns)
    order = np.flatnonzero(~inside)
    order = order[np.lexsort((start[order] - end[order], start[order]))]
    position = {int(old): new for new, old in enumerate(order)} if trace.extra else {}
    requests = trace.requests
    return replace(
        trace,
        start_ns=start[order],
        dur_ns=(end - start)[order],
        link=trace.link[order],
        name_id=trace.name_id[order],
        step=trace.step[order],
        lane_id=trace.lane_id[order],
        kind=trace.kind[order],
        slot=trace.slot[order],
        requests=RequestTable(_moved(requests.time_ns, start_ns, end_ns), requests.request, requests.event),
        extra={position[index]: args for index, args in trace.extra.items() if index in position},
    )


def only(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    """``trace`` from ``start_ns`` to ``end_ns`` alone: its spans, the steps that they belong to, and what happened to
    requests. ``meta.tokens`` are those that came in it, if the trace holds every token."""
    first = int(min(trace.start_ns.min(initial=start_ns), start_ns))
    last = int(max(trace.end_ns.max(initial=end_ns), end_ns)) + 1
    within = cut_out(cut_out(trace, end_ns, last), first, start_ns)
    events, steps = trace.requests, trace.steps
    kept = (events.time_ns >= start_ns) & (events.time_ns <= end_ns)
    requests = RequestTable(events.time_ns[kept] - (start_ns - first), events.request[kept], events.event[kept])
    is_token = np.isin(requests.event, (RequestEvent.FIRST, RequestEvent.TOKEN))
    n_tokens = int(is_token.sum()) if (requests.event == RequestEvent.TOKEN).any() else None
    return replace(
        within,
        requests=requests,
        steps=_rows(steps, np.isin(steps.step, within.step)),
        riders=_rows(trace.riders, np.isin(trace.riders.step, within.step)),
        meta=trace.meta.changed(tokens=n_tokens),
    )


def _rows(table: Table, chosen: npt.NDArray[np.bool_]) -> Table:
    return replace(table, **{field.name: getattr(table, field.name)[chosen] for field in fields(table)})


def without_profiled_steps(trace: Trace) -> Trace:
    """``trace`` without its CUPTI window, which slows the steps in it down; the trace itself if it has none.

    The tokens that the window brought are taken off ``meta.tokens``.
    """
    window, tokens = trace.meta.cupti, trace.meta.tokens
    if window is None or window.start_ns is None or window.end_ns is None:
        return trace
    # Without its times the window is known to be gone: cutting again changes nothing.
    meta = trace.meta.changed(
        cupti=replace(window, start_ns=None, end_ns=None),
        tokens=None if tokens is None else tokens - (window.tokens or 0),
    )
    return cut_out(replace(trace, meta=meta), window.start_ns, window.end_ns)


def _moved(times: Int64, start_ns: int, end_ns: int) -> Int64:
    """Where each time lies once [start, end) is gone."""
    return times - np.clip(times - start_ns, 0, end_ns - start_ns)
