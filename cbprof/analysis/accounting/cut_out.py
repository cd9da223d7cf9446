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

    The tokens that the window brought are taken off ``meta["tokens"]``.
    """
    window = trace.meta.get("cupti")
    if not isinstance(window, dict) or not {"start_ns", "end_ns"} <= window.keys():
        return trace
    # Without its times the window is known to be gone: cutting again changes nothing.
    meta = {**trace.meta, "cupti": {key: window[key] for key in window if key not in ("start_ns", "end_ns")}}
    if "tokens" in meta:
        meta["tokens"] -= window.get("tokens", 0)
    return cut_out(replace(trace, meta=meta), int(window["start_ns"]), int(window["end_ns"]))


def _moved(times: Int64, start_ns: int, end_ns: int) -> Int64:
    """Where each time lies once [start, end) is gone."""
    return times - np.clip(times - start_ns, 0, end_ns - start_ns)
