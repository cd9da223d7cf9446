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
from cbprof.render import theme
from cbprof.render.charts.run import run_chart, states_chart
from cbprof.render.picture.scene import scene
from cbprof.render.static.panels import legend_lines
from cbprof.render.tables.statebar import state_shares
from cbprof.render.tables.summary import comparison_table, summary_table
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


def shown(what: RenderableType, width: int = 100) -> str:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(what)
    return text.getvalue()


def states_of(found: Trace) -> dict[str, Any]:
    (device,) = summarize(found).to_json()["devices"]
    states = device["states_ns"]
    assert isinstance(states, dict)
    return states


@pytest.mark.parametrize(("recorded_us", "active"), [(970, 0), (410, 90)])
def test_what_is_not_recorded_is_a_state_of_its_own_everywhere(tmp_path: Path, recorded_us: int, active: int) -> None:
    """However much it is: the known shares stay, and the five sum to the window."""
    found = trace(tmp_path, recorded_us)
    overlap, cpu_only, missing = 500 - active, max(0, recorded_us - 500), 1000 - recorded_us
    states = states_of(found)
    assert states == dict(zip(STATES, (1000 * overlap, 0, 1000 * cpu_only, 0), strict=True)) | {
        "untraced": 1000 * missing
    }
    assert sum(states.values()) == summarize(found).wall_ns
    legend = {item.label: item.text for item in state_shares(scene(found).totals)}
    assert legend["overlap"] == f"{overlap / 10:.2f} %"
    of_it = f"{missing / 10:.2f} % (GPU active {active / 10 + 1:.2f} %)"
    assert legend["host not recorded"] == of_it
    for text in (shown(summary_table(summarize(found))), shown(terminal_plot([found]))):
        for said in (f"overlap {overlap / 10:.2f} %", f"CPU only {cpu_only / 10:.2f} %", f"host not recorded {of_it}"):
            assert said in text
    beside = " ".join(shown(comparison_table(summarize(found), summarize(found)), width=80).split())
    for name, value in (("host not recorded", missing), ("GPU active meanwhile", active + 10)):
        assert f"{name} {value / 10:.2f} % {value / 10:.2f} %" in beside
    drawn = [item for line in legend_lines(scene(found).totals, 7.0) for item in line]
    assert drawn == state_shares(scene(found).totals)
    bars = {bar.name: bar.x[0] for bar in states_chart({"run": summarize(found)}).data}
    assert bars["GPU active, host not recorded"] == active / 10 + 1
    assert sum(bars.values()) == pytest.approx(100)


def test_the_halves_of_what_is_not_recorded_stand_apart_in_json(tmp_path: Path) -> None:
    (device,) = summarize(trace(tmp_path, 410)).to_json()["devices"]
    assert device["untraced_ns"] == {"gpu_active": 100_000, "gpu_idle": 490_000}
    assert sum(device["untraced_ns"].values()) == device["states_ns"]["untraced"]


def test_a_trace_with_all_of_the_host_has_four_states(tmp_path: Path) -> None:
    found = trace(tmp_path, 1000)
    assert "not recorded" not in shown(summary_table(summarize(found)))
    assert "not recorded" not in shown(terminal_plot([found]))
    assert len(states_chart({"run": summarize(found)}).data) == len(run_chart(found).data) == 4
    both = states_chart({"run": summarize(found), "other": summarize(trace(tmp_path, 410))})
    assert len(both.data) == 6


def test_no_efficiency_where_much_of_the_host_is_not_recorded(tmp_path: Path) -> None:
    assert summarize(trace(tmp_path, 950)).devices[0].overlap.efficiency_pct is not None
    assert summarize(trace(tmp_path, 949)).devices[0].overlap.efficiency_pct is None


@IN_A_BROWSER[0]
@IN_A_BROWSER[1]
@pytest.mark.parametrize(
    ("recorded_us", "cells"),
    [
        (410, ["41.00 %", "0.00 %", "10.00 %", "49.00 %", "0.00 %", "0.00 %"]),
        (970, ["50.00 %", "0.00 %", "1.00 %", "2.00 %", "47.00 %", "0.00 %"]),
        (1000, ["51.00 %", "0.00 %", "49.00 %", "0.00 %"]),
    ],
)
def test_the_page_says_so_too(visit: Visit, tmp_path: Path, recorded_us: int, cells: list[str]) -> None:
    page = visit(timeline_html(trace(tmp_path, recorded_us)))
    whole = page.locator(".shares tbody tr").last.locator("td").all_inner_texts()
    assert whole == [*cells, "51.00 %"]
    names = page.locator(".shares thead th").all_inner_texts()
    assert names == [style.label for state, style in theme.STATES.items() if state in drawn(len(cells))] + [
        "GPU active"
    ]


def drawn(columns: int) -> list[str]:
    return theme.drawn_states(untraced=columns > 4)


def test_only_the_gap_that_the_window_ends_is_the_last(tmp_path: Path) -> None:
    without_step = summarize(load(write(tmp_path, *LAUNCHED)))
    names = [name for name, *_ in gap_lengths(without_step.devices[0]).rows if not name.startswith("p")]
    assert names == ["before gemm, launch unknown, stream 7"]
    to_the_end = summarize(load(write(tmp_path, *LAUNCHED, annotation(0, 1500, "a"))), window="annotation:a")
    names = [name for name, *_ in gap_lengths(to_the_end.devices[0]).rows if not name.startswith("p")]
    assert names == ["the last", "before gemm, launch unknown, stream 7"]  # 500 us, 490 us


def test_a_cause_has_one_name_in_all_text(tmp_path: Path) -> None:
    late = (call(980, 10, "cudaLaunchKernel", 2), kernel(990, 10, correlation=2))
    found = summarize(load(write(tmp_path, *LAUNCHED[:2], *late)))
    name = "(host time without a record)"
    assert gap_lengths(found.devices[0]).rows[-1][-1] == name
    assert name in shown(summary_table(found))
    assert name.strip("()") in " ".join(found.verdict.evidence)  # a sentence needs no brackets
    assert in_words(Cause.UNTRACED.label) == name
    assert in_words("schedule") == "schedule"
