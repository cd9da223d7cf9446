"""What no record tells is said nowhere: text, page and picture agree with the JSON. A cause has one name in text."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from browsing import IN_A_BROWSER, Visit
from kineto_samples import annotation, call, host, kernel, write
from rich.console import Console, RenderableType

from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.render.charts.run import states_chart
from cbprof.render.picture.scene import scene
from cbprof.render.static.panels import legend_lines
from cbprof.render.tables.summary import summary_table
from cbprof.render.tables.summary_sheets import gap_lengths
from cbprof.render.terminal.pictures import terminal_plot
from cbprof.render.web.timeline import timeline_html
from cbprof.render.words.ranks import in_words
from cbprof.trace import Trace

LAUNCHED = (call(0, 10, "cudaLaunchKernel", 1), kernel(0, 500, correlation=1), kernel(990, 10))
STATES = ("overlap", "gpu_only", "cpu_only", "neither")


def trace(folder: Path, recorded_us: int) -> Trace:
    """1000 us, of which the last ones are not recorded."""
    return load(write(folder, *LAUNCHED, host(10, recorded_us - 10, "work")))


def shown(what: RenderableType) -> str:
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(what)
    return text.getvalue()


def states_of(found: Trace) -> dict[str, Any]:
    (device,) = summarize(found).to_json()["devices"]
    states = device["states_ns"]
    assert isinstance(states, dict)
    return states


def test_little_untraced_time_is_a_share_of_its_own_everywhere(tmp_path: Path) -> None:
    found = trace(tmp_path, 970)
    assert states_of(found) == dict(zip(STATES, (500_000, 0, 470_000, 0), strict=True)) | {"untraced": 30_000}
    for text in (shown(summary_table(summarize(found))), shown(terminal_plot([found]))):
        for said in ("overlap 50.00 %", "GPU only 0.00 %", "CPU only 47.00 %", "neither 0.00 %", "untraced 3.00 %"):
            assert said in text
    assert [text for _, text in legend_lines(scene(found).traced, 7.0)[0]][-1] == "untraced 3.00 %"
    assert [bar.x[0] for bar in states_chart({"run": summarize(found)}).data] == [50, 0, 47, 0]


def test_the_states_are_unknown_everywhere_where_much_is_untraced(tmp_path: Path) -> None:
    found = trace(tmp_path, 410)
    assert states_of(found) == dict.fromkeys(STATES) | {"untraced": 590_000}
    for text in (shown(summary_table(summarize(found))), shown(terminal_plot([found]))):
        for state in ("overlap", "GPU only", "CPU only", "neither"):
            assert f"{state} unknown" in text
        assert "untraced" not in text
    (line,) = legend_lines(scene(found).traced, 7.0)
    assert [text for _, text in line] == ["overlap unknown", "GPU only unknown", "CPU only unknown", "neither unknown"]
    chart = states_chart({"run": summarize(found)})
    assert [bar.x[0] for bar in chart.data] == [0, 0, 0, 0]
    assert chart.data[0].y[0].endswith("host unknown")


@IN_A_BROWSER[0]
@IN_A_BROWSER[1]
@pytest.mark.parametrize(
    ("recorded_us", "cells"), [(410, ["unknown"] * 4), (1000, ["51.00 %", "0.00 %", "49.00 %", "0.00 %"])]
)
def test_the_page_says_so_too(visit: Visit, tmp_path: Path, recorded_us: int, cells: list[str]) -> None:
    page = visit(timeline_html(trace(tmp_path, recorded_us)))
    whole = page.locator(".shares tbody tr").last.locator("td").all_inner_texts()
    assert whole == [*cells, "51.00 %"]


@IN_A_BROWSER[0]
@IN_A_BROWSER[1]
def test_the_page_names_little_untraced_time(visit: Visit, tmp_path: Path) -> None:
    page = visit(timeline_html(trace(tmp_path, 970)))
    names = page.locator(".shares thead th").all_inner_texts()
    assert names == ["overlap", "GPU only or untraced", "CPU only", "neither or untraced", "GPU active"]


def test_only_the_gap_that_the_window_ends_is_the_last(tmp_path: Path) -> None:
    without_step = summarize(load(write(tmp_path, *LAUNCHED)))
    names = [name for name, *_ in gap_lengths(without_step.devices[0]).rows if not name.startswith("p")]
    assert names == ["-"]
    to_the_end = summarize(load(write(tmp_path, *LAUNCHED, annotation(0, 1500, "a"))), window="annotation:a")
    names = [name for name, *_ in gap_lengths(to_the_end.devices[0]).rows if not name.startswith("p")]
    assert names == ["the last", "-"]  # 500 us, 490 us


def test_a_cause_has_one_name_in_all_text(tmp_path: Path) -> None:
    found = summarize(load(write(tmp_path, *LAUNCHED)))
    name = "(host time without a record)"
    assert gap_lengths(found.devices[0]).rows[-1][-1] == name
    assert name in shown(summary_table(found))
    assert name in " ".join(found.verdict.evidence)
    assert in_words(Cause.UNTRACED.label) == name
    assert in_words("schedule") == "schedule"
