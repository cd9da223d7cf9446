"""Charts over the steps of a run: what each cost the host and the device, and what was predicted of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cbprof.analysis.accounting.host import driving_lanes, host_timeline
from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.analysis.predict.predict import Prediction
from cbprof.analysis.summary import summarize
from cbprof.names import short
from cbprof.numbers import counted, duration, percent, ratio
from cbprof.render.charts.style import LINES, as_text, empty, figure, milliseconds
from cbprof.render.picture.coverage import bin_edges
from cbprof.render.theme import phase_colors
from cbprof.trace import Int64, Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BINS = 240
MOST_PHASES = 7
NO_STEPS = "No step ran on a device: there is nothing to show"


@dataclass(frozen=True, slots=True, eq=False)
class _Bins:
    """Steps in the order of time, in at most ``BINS`` groups of equally many; a chart shows the mean of each."""

    steps: StepTimes
    edges: Int64

    @staticmethod
    def of(steps: StepTimes) -> _Bins:
        return _Bins(steps, bin_edges(0, len(steps), min(BINS, len(steps))))

    @property
    def x(self) -> list[int]:
        """The first step of each group."""
        first: list[int] = self.steps.step[self.edges[:-1]].tolist()
        return first

    def mean(self, ns: Int64) -> list[float]:
        """The mean of a column of the steps in each group, in milliseconds."""
        return milliseconds(np.add.reduceat(ns, self.edges[:-1]) / np.diff(self.edges))


def steps_chart(trace: Trace) -> Figure:
    """The host's phases, stacked, beside the device's compute; and the larger of the two, which no order can beat.

    Without the host's where it is unknown what the host did for a step.

    Where the time of a step lies on that line, host and device overlap perfectly; where it is the sum of both, they
    take turns. A point is the mean of a few steps in a row.
    """
    import plotly.graph_objects as go

    summary = summarize(trace)
    if not summary.n_steps:
        return empty(NO_STEPS)
    steps = max((device.steps for device in summary.devices), key=len)
    bins = _Bins.of(steps)
    made = figure()
    phases = _host_phases(trace, steps)
    for (name, ns), color in zip(phases.items(), phase_colors(phases), strict=True):
        line = {"width": 0, "color": color, "shape": "hv"}
        area = go.Scatter(x=bins.x, y=bins.mean(ns), name=f"host: {as_text(short(name))}", stackgroup="host", line=line)
        made.add_trace(area.update(fillcolor=color, hovertemplate="%{y:.3f} ms"))
    lines: list[tuple[str, Int64, dict[str, Any]]] = [
        ("time of the step", steps.period_ns, {"color": LINES["whole"], "width": 1.5}),
        ("GPU compute", steps.compute_ns, {"color": LINES["device"], "width": 2}),
    ]
    if phases:
        larger = np.maximum(np.sum(list(phases.values()), axis=0), steps.compute_ns)
        lines.append(("max(CPU, GPU)", larger, {"color": LINES["other"], "width": 2, "dash": "dot"}))
    for name, ns, line in lines:
        style = {"line": {**line, "shape": "hv"}, "mode": "lines", "hovertemplate": "%{y:.3f} ms"}
        made.add_trace(go.Scatter(x=bins.x, y=bins.mean(ns), name=name, **style))
    made.update_xaxes(title={"text": "step"})
    made.update_yaxes(title={"text": "mean a step"}, ticksuffix=" ms")
    return _without_outliers(made, bins.mean(steps.period_ns)).update_layout(height=380)


def _without_outliers(made: Figure, period: Sequence[float]) -> Figure:
    """Let a few very long steps (a capture, a pause) reach beyond the plot and say so, rather than flatten the rest."""
    usual = 1.3 * float(np.percentile(period, 97))
    if usual < max(period) * 0.7:
        made.update_yaxes(range=[0, usual])
        text = "a few longer steps go on above the edge; double-click to see them"
        made.add_annotation(text=text, x=1, y=1, xref="paper", yref="paper", yanchor="bottom", showarrow=False)
    return made


def _host_phases(trace: Trace, steps: StepTimes) -> Mapping[str, Int64]:
    """Nanoseconds of host work for each step, by phase, exclusive of what is nested; the largest, and all others."""
    host = host_timeline(trace)
    work = host.of_lanes(driving_lanes(trace, host, None))
    work = work.select(work.working & np.isin(trace.step[work.span], steps.step))
    order = np.argsort(steps.step, kind="stable")
    row = order[np.searchsorted(steps.step[order], trace.step[work.span])]
    name = trace.name_id[work.span]
    found = {
        trace.names[each]: sum_by(row[name == each], work.length_ns[name == each], len(steps))
        for each in np.unique(name).tolist()
    }
    ordered = sorted(found.items(), key=lambda item: -int(item[1].sum()))
    if len(ordered) > MOST_PHASES + 1:
        others = np.sum([ns for _, ns in ordered[MOST_PHASES:]], axis=0)
        ordered = [*ordered[:MOST_PHASES], (f"{len(ordered) - MOST_PHASES} others", others)]
    return dict(ordered)


def prediction_chart(prediction: Prediction, before: Trace, after: Trace | None = None) -> Figure:
    """Time of each step: as measured, as predicted from it, and as measured ``after`` the change, if that was run."""
    import plotly.graph_objects as go

    runs = {"measured": before, f"predicted, {counted(prediction.what_if.slots, 'slot')}": prediction.trace}
    if after is not None:
        runs["measured afterwards"] = after
    styles = ({"color": LINES["whole"]}, {"color": LINES["other"], "dash": "dot"}, {"color": LINES["device"]})
    made = figure()
    for (name, trace), style in zip(runs.items(), styles, strict=False):
        summary = summarize(trace)
        if not summary.n_steps:
            continue
        steps = max((device.steps for device in summary.devices), key=len)
        bins = _Bins.of(steps)
        idle = summary.most_idle.idle_pct if summary.most_idle else None
        label = f"{name}: {duration(summary.wall_ns)}, idle {percent(idle)}"
        line = {"line": {"width": 1.8, "shape": "hv", **style}, "mode": "lines", "hovertemplate": "%{y:.3f} ms"}
        made.add_trace(go.Scatter(x=bins.x, y=bins.mean(steps.period_ns), name=label, **line))
    if not made.data:
        return empty(NO_STEPS)
    made.update_xaxes(title={"text": "step"})
    made.update_yaxes(title={"text": f"mean a step, {ratio(prediction.speedup)} as fast"}, ticksuffix=" ms")
    return _without_outliers(made, _Bins.of(steps).mean(steps.period_ns)).update_layout(height=340)
