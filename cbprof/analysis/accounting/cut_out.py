"""Cutting a stretch of time out of a trace, such as the steps that ran under a profiler.

::

    before   |  a  |  b ....|....... b |  c  |         [start, end) is the part marked with dots
    after    |  a  |  b | b |  c  |                    what lay across an edge is joined there
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbprof.trace import Int64, RequestTable, Trace


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
