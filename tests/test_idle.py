"""One idle number: the same in reports, pictures, segments and predictions, and unknown everywhere or nowhere."""

from __future__ import annotations

import io
from pathlib import Path

import kineto_samples as kineto
import pytest
from oracle import COMPUTE, ENGINE, H2D, STEP, trace_of
from rich.console import Console, RenderableType

from cbprof.analysis.accounting.idle import idle_ns, idle_pct, most_idle
from cbprof.analysis.accounting.window import Window
from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.render.charts.run import idle_chart, run_chart
from cbprof.render.picture.scene import scene
from cbprof.render.terminal.pictures import terminal_plot
from cbprof.render.web.viewer_data import run_document
from cbprof.trace import Kind, Lane, Trace


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def copies_only() -> Trace:
    """An engine's trace in which a device only copied: whether it computed, nobody recorded."""
    return trace_of((ENGINE, Kind.CPU_WORK, "prepare", 0, 40, 0), (H2D, Kind.GPU_H2D, "h2d", 40, 100, 0))


def test_the_definition() -> None:
    trace = trace_of((COMPUTE, Kind.GPU_COMPUTE, "compute", 10, 30, 0), (H2D, Kind.GPU_H2D, "h2d", 25, 35, 0))
    assert idle_ns(trace, 0, Window(0, 100)) == 80
    assert idle_ns(trace, 0, Window(0, 100), "busy") == 75
    assert idle_ns(trace, 0, Window(20, 40)) == 10
    assert idle_ns(trace, 0, Window(30, 40)) is None
    assert (idle_pct(80, 100), idle_pct(None, 100), idle_pct(0, 0)) == (80, None, None)
    assert most_idle([3, None, 5, 5]) == 2
    assert most_idle([None, 0]) == 1


def test_unknown_stays_unknown_everywhere() -> None:
    trace = copies_only()
    (device,) = summarize(trace).devices
    assert (device.idle_ns, device.idle_pct, len(device.over_time), len(device.over_context)) == (None, None, 0, 0)
    seen = scene(trace)
    assert seen.title == "GPU idle unknown of 100 ns"
    assert seen.totals is None
    assert "GPU idle unknown of 100 ns" in shown(terminal_plot([trace]))
    assert "100.00 %" not in shown(terminal_plot([trace]))
    assert run_document(seen)["title"] == "GPU idle unknown of 100 ns"
    assert "GPU idle unknown" in run_chart(trace).layout.annotations[0].text
    assert not idle_chart(trace).data


def test_one_unknown_device_leaves_the_other_known() -> None:
    both = trace_of(*STEP, (Lane("h2d", 1), Kind.GPU_H2D, "h2d", 20, 30, 0))
    summary, seen = summarize(both), scene(both)
    assert seen.title.startswith("GPU 0 idle ")
    assert "GPU 1 idle unknown" in seen.title
    assert summary.most_idle is summary.devices[0]
    assert seen.most_idle is seen.devices[0]
    assert summary.worst_idle_pct is None
    assert summary.longest_gap_ns is None


def test_a_picture_gives_each_device_the_share_of_its_own_window(tmp_path: Path) -> None:
    """In a profiler's trace each device has its own window; the picture's, which holds them all, is no divisor."""
    found = load(kineto.write(tmp_path, kineto.kernel(0, 25), kineto.kernel(75, 25), kineto.kernel(100, 100, device=1)))
    assert [device.idle_pct for device in summarize(found).devices] == [50, 0]
    assert scene(found).title == "GPU 0 idle 50.00 %, GPU 1 idle 0.00 % of 200.0 us"
    assert scene(found).most_idle.device == 0


@pytest.mark.parametrize("first", [True, False])
def test_tables_and_pictures_show_the_device_that_waited_longest(first: bool) -> None:
    lazy, keen = (Lane("compute", int(not first)), Lane("compute", int(first)))
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "schedule", 0, 10, 0),
        (lazy, Kind.GPU_COMPUTE, "compute", 60, 70, 0),
        (keen, Kind.GPU_COMPUTE, "compute", 10, 100, 0),
    )
    summary = summarize(trace)
    assert summary.most_idle is not None
    assert summary.most_idle.device == scene(trace).most_idle.device == lazy.device
    assert summary.worst_idle_pct == summary.most_idle.idle_pct == 90
