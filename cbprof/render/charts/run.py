"""Charts of a run as plotly figures: for notebooks, and for the report page.

Every figure has at most a few thousand marks, however long the run: what is too much to draw is added up in bins, never
left out. The timeline with every span is the viewer's (``timeline.py``), for which plotly is too slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.accounting.segments import over_context
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.summary import Summary, summarize
from cbprof.numbers import counted, duration, percent
from cbprof.render.charts.style import ROW_HEIGHT, area_of, as_text, bar_of, empty, figure, seconds
from cbprof.render.picture.coverage import coverage
from cbprof.render.picture.scene import Scene, scene
from cbprof.render.theme import STATES, drawn_states, phase_colors
from cbprof.trace import Int64, Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BINS = 400  # of a whole run
IDLE_BINS = 120
PER_DECADE = 10  # bins of gap lengths
MOST_CAUSES = 7
NO_DEVICE = "No span on a device: there is nothing to show"


def run_chart(trace: Trace, other: Trace | None = None) -> Figure:
    """The whole run as exact coverage; that of ``other`` below it, on the same axis of time."""
    import plotly.graph_objects as go

    scenes = [each for each in map(scene, filter(None, (trace, other))) if each.devices]
    if not scenes:
        return empty(NO_DEVICE)
    titles = [as_text(f"{each.trace.mode}: {each.title}" if each.trace.mode else each.title) for each in scenes]
    made = figure(len(scenes), titles=titles, spacing=0.2, shared_xaxes="all")
    drawn = drawn_states(untraced=any(len(each.most_idle.untraced) for each in scenes))
    for row, each in enumerate(scenes, start=1):
        window = each.window
        found = coverage(each.most_idle, window.start_ns, window.end_ns, BINS)
        x = seconds(found.edges - window.start_ns)
        for (state, style), share in zip(STATES.items(), found.shares, strict=True):
            if state not in drawn:
                continue
            y = [round(100 * value, 3) for value in (*share.tolist(), share[-1])]  # the last step needs its end
            shown = {"name": style.label, "legendgroup": state, "showlegend": row == 1, "stackgroup": f"run {row}"}
            area = go.Scatter(x=x, y=y, hovertemplate="%{y:.2f} %", **shown, **area_of(state))
            made.add_trace(area, row=row, col=1)
    made.update_yaxes(range=[0, 100], ticksuffix=" %", nticks=3)
    made.update_xaxes(range=[0, max(each.window.length_ns for each in scenes) / 1e9], ticksuffix=" s")
    made.update_layout(height=150 * len(scenes) + 100)
    return made


def gap_chart(source: Trace | Summary) -> Figure:
    """Idle time by the length of the gap it lies in, on a logarithmic axis, and by what the GPU waited for.

    The bars add up to all idle time of the device that waited longest: few long gaps and many short ones need different
    cures.
    """
    import plotly.graph_objects as go

    device = (summarize(source) if isinstance(source, Trace) else source).most_idle
    if device is None or not len(device.gaps):
        return empty(NO_DEVICE if device is None else "No gap: the GPU never waited")
    place = np.floor(np.log10(device.gaps.length_ns) * PER_DECADE).astype(np.int64)
    first, size = int(place.min()), int(np.ptp(place)) + 1
    edges = 10 ** ((first + np.arange(size + 1)) / PER_DECADE)
    names = [f"{duration(low)} to {duration(high)}" for low, high in pairwise(edges)]
    number = np.bincount(place - first, minlength=size).tolist()
    made = figure()
    causes = _idle_by_cause(device, place - first, size)
    for (name, ns), color in zip(causes.items(), phase_colors(causes), strict=True):
        text = [f"{duration(each)} in {counted(count, 'gap')}" for each, count in zip(ns.tolist(), number, strict=True)]
        bars = go.Bar(x=names, y=seconds(ns), name=as_text(name), customdata=text, hovertemplate="%{customdata}")
        made.add_trace(bars.update(marker={"color": color, "line": {"width": 0}}))
    decades = [index for index in range(size) if (first + index) % PER_DECADE == 0]
    made.update_xaxes(
        title={"text": "length of the gap"},
        tickvals=[names[index] for index in decades],
        ticktext=[duration(round(edges[index])) for index in decades],
    )
    made.update_yaxes(title={"text": "idle time in such gaps"}, ticksuffix="s", tickformat="~s")
    return made.update_layout(barmode="stack")


def _idle_by_cause(device: DeviceSummary, place: Int64, size: int) -> dict[str, Int64]:
    """What the device waited for in words, most first, with the nanoseconds in each bin; ``place``: of each gap."""
    parts, causes = device.blame.parts, device.causes
    of_part = causes.places(parts.cause, parts.span)
    by_cause = sum_by(of_part * size + place[parts.gap], parts.ns, len(causes.totals) * size).reshape(-1, size)
    found: dict[str, Int64] = {}
    for total, ns in zip(causes.totals, by_cause, strict=True):
        found[total.in_words] = found.get(total.in_words, np.zeros(size, dtype=np.int64)) + ns
    ordered = sorted(found.items(), key=lambda item: -int(item[1].sum()))
    if len(ordered) > MOST_CAUSES + 1:
        others = np.sum([ns for _, ns in ordered[MOST_CAUSES:]], axis=0)
        ordered = [*ordered[:MOST_CAUSES], (f"{len(ordered) - MOST_CAUSES} others", others)]
    return dict(ordered)


def idle_chart(trace: Trace) -> Figure:
    """Idle time as a share, over time, and over context length where the trace knows it."""
    import plotly.graph_objects as go

    each = scene(trace)
    if not each.devices:
        return empty(NO_DEVICE)
    by_context = _idle_over_context(each)
    titles = ["over time", *(["over context length, tokens a request"] if by_context else [])]
    made = figure(len(titles), titles=titles, spacing=0.28)
    color = STATES["cpu_only"].color
    line = {"line": {"color": color, "width": 1.5, "shape": "hv"}, "fill": "tozeroy", "fillcolor": f"{color}2e"}
    for states, share in zip(each.devices, each.idle_pct, strict=True):
        if share is None:
            continue
        window = states.window
        found = coverage(states, window.start_ns, window.end_ns, min(IDLE_BINS, window.length_ns))
        idle = [round(100 * value, 3) for value in found.idle_shares.tolist()]
        x, name = seconds(found.edges - window.start_ns), f"GPU {states.device}"
        made.add_trace(go.Scatter(x=x, y=[*idle, idle[-1]], name=name, hovertemplate="%{y:.2f} %", **line), 1, 1)
    if by_context:
        x, y = list(by_context), [round(value, 3) for value in by_context.values()]
        made.add_trace(go.Scatter(x=x, y=y, name="GPU idle", hovertemplate="%{y:.2f} %", **line), 2, 1)
    made.update_yaxes(ticksuffix=" %")
    made.update_xaxes(ticksuffix=" s", row=1, col=1)
    legend = len(each.devices) > 1
    return made.update_layout(
        showlegend=legend, margin={"t": 64 if legend else 26}, height=(ROW_HEIGHT - 20) * len(titles)
    )


def _idle_over_context(each: Scene) -> Mapping[int, float]:
    """The first context length of each bin, and the idle share of the steps in it, from compute to compute."""
    device = summarize(each.trace).most_idle
    if device is None or device.idle_ns is None:
        return {}
    found = over_context(each.most_idle, device.steps, IDLE_BINS)
    return {segment.start: segment.idle_pct for segment in found if segment.idle_pct is not None}


def states_chart(summaries: Mapping[str, Summary]) -> Figure:
    """The states of several summaries as bars of shares: levels of evidence of one run, or runs beside each other.

    There is no bar where the idle time is unknown.
    """
    import plotly.graph_objects as go

    known = {name: found.most_idle for name, found in summaries.items() if found.most_idle is not None}
    if not known:
        return empty(NO_DEVICE)
    names = [_bar_name(name, device) for name, device in known.items()]
    made = figure()
    for state in drawn_states(untraced=any(device.states.untraced for device in known.values())):
        style = STATES[state]
        shares = [
            100 * getattr(device.known_states, state, 0) / max(1, sum(device.states)) for device in known.values()
        ]
        bars = go.Bar(y=names, x=[round(share, 3) for share in shares], orientation="h", marker=bar_of(state))
        made.add_trace(bars.update(name=style.label, hovertemplate="%{x:.2f} %"))
    made.update_xaxes(range=[0, 100], ticksuffix=" %")
    made.update_yaxes(autorange="reversed", rangemode="normal", automargin=True)
    return made.update_layout(barmode="stack", hovermode="y unified", height=110 + 46 * len(known), bargap=0.3)


def _bar_name(name: str, device: DeviceSummary) -> str:
    return f"{as_text(name)}: GPU idle {percent(device.idle_pct)}"
