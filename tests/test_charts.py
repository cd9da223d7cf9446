"""Charts: their marks are few, and add up to the figures of the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from timeline_samples import HOSTILE_NAMES, hostile_trace, long_trace, steady_trace, two_device_trace
from trace_samples import traces

from cbprof.analysis.predict.predict import predict
from cbprof.analysis.summary import summarize
from cbprof.api import Recording
from cbprof.render.charts.run import gap_chart, idle_chart, run_chart, states_chart
from cbprof.render.charts.steps import BINS, prediction_chart, steps_chart
from cbprof.render.charts.style import as_text
from cbprof.trace import Trace, TraceBuilder

CHARTS = (run_chart, gap_chart, idle_chart, steps_chart)


def values(trace: Any, axis: str = "y") -> np.ndarray[Any, Any]:
    return np.array(trace[axis], dtype=float)


def marks(figure: Any) -> int:
    return sum(len(trace[axis] or ()) for trace in figure.data for axis in ("x",))


def test_the_areas_of_a_run_are_its_shares() -> None:
    trace = steady_trace(1000)
    totals = summarize(trace).devices[0].states
    figure = run_chart(trace, steady_trace(500))
    assert len(figure.data) == 8
    shown = [totals.overlap, totals.gpu_only, totals.cpu_only, totals.neither]
    for area, ns in zip(figure.data[:4], shown, strict=True):
        assert np.average(values(area)[:-1], weights=np.diff(values(area, "x"))) == pytest.approx(
            100 * ns / sum(totals), abs=0.01
        )


def test_the_bars_of_gaps_add_up_to_idle_time() -> None:
    for trace in (steady_trace(1000), long_trace(200)):
        device = summarize(trace).devices[0]
        figure = gap_chart(trace)
        assert sum(values(bars).sum() for bars in figure.data) == pytest.approx(device.gaps.total_ns / 1e9, abs=1e-4)
        whole = next(iter(figure.data))
        counted = sum(int(text.split(" in ")[1].split()[0].replace(",", "")) for text in whole.customdata)
        assert counted == len(device.gaps)


def test_idle_over_time_and_over_context_average_to_the_idle_share() -> None:
    trace = steady_trace(1000)
    over_time, over_context = idle_chart(trace).data
    assert values(over_time)[:-1].mean() == pytest.approx(summarize(trace).devices[0].idle_pct, abs=0.05)
    assert over_context.x[0] == 4
    assert values(over_context).mean() == pytest.approx(31, abs=0.2)
    assert len(idle_chart(two_device_trace()).data) == 2  # no context: a line a device


def test_the_means_of_steps_add_up() -> None:
    trace = steady_trace(1000)
    steps = summarize(trace).devices[0].steps
    figure = steps_chart(trace)
    lines = {each.name: values(each) for each in figure.data}
    assert lines["GPU compute"] == pytest.approx(6.9)
    assert lines["time of the step"][:-1] == pytest.approx(10)
    assert sum(mean for name, mean in lines.items() if name.startswith("host"))[:-1] == pytest.approx(1.5 + 0.4 + 0.7)
    assert lines["max(CPU, GPU)"] == pytest.approx(6.9)
    assert len(figure.data[0].x) == BINS < len(steps)


def test_a_prediction_stands_beside_what_was_measured() -> None:
    before = steady_trace(100)
    figure = prediction_chart(predict(before), before, steady_trace(50))
    assert [line.name.split(":")[0] for line in figure.data] == [
        "measured",
        "predicted, 2 slots",
        "measured afterwards",
    ]
    assert "idle 30.97 %" in figure.data[0].name
    assert values(figure.data[1]).mean() < values(figure.data[0]).mean()


def test_levels_of_evidence_stand_beside_each_other() -> None:
    figure = states_chart({"event <spans>": summarize(steady_trace(100)), "CUPTI": summarize(steady_trace(50))})
    assert figure.data[0].y == ("event &lt;spans&gt;: GPU idle 30.97 %", "CUPTI: GPU idle 30.93 %")
    assert sum(values(bars, "x") for bars in figure.data) == pytest.approx(100, abs=0.01)


def test_a_notebook_draws_them() -> None:
    run, other = Recording(steady_trace(50)), Recording(steady_trace(40))
    for figure in (
        run.plot_gaps(),
        run.gaps().plot(),
        run.plot_steps(),
        run.plot_idle(),
        run.predict().plot(other),
    ):
        assert len(figure.data) >= 2
    assert [name.split(":")[0] for name in run.compare(other).plot().data[0].y] == ["before", "after"]


@pytest.mark.parametrize("chart", CHARTS)
def test_long_runs_have_few_marks_and_small_ones_a_sensible_figure(chart: Any) -> None:
    figure = chart(long_trace(3000))
    assert marks(figure) < 5000
    assert len(figure.to_json()) < 200_000
    for trace in (TraceBuilder().build(), steady_trace(1), hostile_trace()):
        chart(trace).to_json()
    assert "nothing to show" in chart(TraceBuilder().build()).to_json()


@given(trace=traces())
@settings(max_examples=10)
def test_any_trace_gives_a_figure(trace: Trace) -> None:
    for chart in CHARTS:
        chart(trace)


def test_names_are_shown_as_text() -> None:
    for name in HOSTILE_NAMES:
        shown = as_text(name)
        assert "<" not in shown
        assert len(shown) < 300
    assert as_text("a <b> & c") == "a &lt;b&gt; &amp; c"
