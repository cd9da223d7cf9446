"""What users see in a terminal: exact on a small trace, readable at any width, without colour and without Unicode."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import COMPUTE, ENGINE, OTHER_COMPUTE, Row, trace_of
from rich.console import Console, RenderableType

from cbprof.analysis.accounting.states import StateTotals
from cbprof.analysis.summary import Summary, summarize
from cbprof.meta import Meta
from cbprof.numbers import count, duration, percent, rate, ratio
from cbprof.render.evidence import in_a_sentence
from cbprof.render.tables.statebar import cells_of
from cbprof.render.tables.summary import comparison_table, summary_table
from cbprof.render.theme import STATES
from cbprof.trace import Kind, TraceBuilder

MS = 10**6


def run(mode: str, *, host_ms: int = 2, steps: int = 4, **meta: object) -> Summary:
    """``steps`` steps of 6 ms of compute; in sync each waits for ``host_ms`` of the host, in async only the first."""
    rows: list[Row] = []
    period_ms = 6 + host_ms if mode == "sync" else 6
    for step in range(steps):
        start = step * period_ms * MS
        launch, end = start + host_ms * MS - MS // 2, start + host_ms * MS
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, launch, step),
            (ENGINE, Kind.CPU_WORK, "launch", launch, end, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", end, end + 6 * MS, step),
        ]
    facts = {"mode": mode, "device": "host process", "engine": "cbprof reference", "evidence": "emulated"}
    return summarize(trace_of(*rows, **{**facts, "tokens": 64, **meta}))


def shown(table: RenderableType, width: int = 80, **options: object) -> str:
    """The table as a terminal of this width gets it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=str(options.pop("encoding", "utf-8")))
    Console(file=file, width=width, **options).print(table)  # type: ignore[arg-type]
    file.seek(0)
    return file.read()


def test_a_sync_run() -> None:
    table = summary_table(run("sync"), title="trace.json")
    assert (
        shown(table)
        == """\
╭─ trace.json, sync, host process ─────────────────────────────────────────────╮
│ wall time      32.00 ms  GPU idle     25.00 %  8.000 ms                      │
│ tokens/s       2,000     GPU active   75.00 %  24.00 ms                      │
│ steps          4         gaps         4                                      │
│ time per step  8.000 ms  longest gap  2.000 ms, before step 0                │
│                                                                              │
│ ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚ │
│ █ overlap 0.00 %  ▓ GPU only 75.00 %  ▚ CPU only 25.00 %  · neither 0.00 %   │
│                                                                              │
│ the GPU waited for                      per step        in all       of idle │
│ schedule                                1.500 ms      6.000 ms       75.00 % │
│ launch                                  500.0 us      2.000 ms       25.00 % │
│                                                                              │
│ ceiling  24.00 ms if the GPU never waited: at most 1.33x as fast             │
│ measured by  no GPU, a process of its own plays the device                   │
╰─────────────────────────────────────────────────────────── cbprof reference ─╯
"""
    )


def test_sync_and_async_side_by_side() -> None:
    table = comparison_table(run("sync"), run("async"))
    assert (
        shown(table)
        == """\
╭─ sync and async, host process ───────────────────────────────────────────────╮
│                                             sync         async  async / sync │
│ wall time                               32.00 ms      26.00 ms        0.812x │
│ tokens/s                                   2,000         2,462         1.23x │
│ steps                                          4             4        1.000x │
│ time per step                           8.000 ms      6.500 ms        0.812x │
│ GPU idle                                 25.00 %        7.69 %        0.308x │
│                                                                              │
│ sync   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚ │
│ async  █████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚▚▚              │
│ █ overlap                                 0.00 %       23.08 %               │
│ ▓ GPU only                               75.00 %       69.23 %               │
│ ▚ CPU only                               25.00 %        7.69 %               │
│ · neither                                 0.00 %        0.00 %               │
│                                                                              │
│ the GPU waited for, per step                sync         async  async / sync │
│ schedule                                1.500 ms      375.0 us        0.250x │
│ launch                                  500.0 us      125.0 us        0.250x │
│                                                                              │
│ async is 1.23x as fast in tokens/s; a GPU that never waits: 1.33x            │
│ measured by  no GPU, a process of its own plays the device                   │
╰─────────────────────────────────────────────────────────── cbprof reference ─╯
"""
    )


@pytest.mark.parametrize(
    ("device", "player"), [("host process", "a process of its own"), ("cpu", "the host"), (None, "the host")]
)
def test_only_the_device_process_is_called_one(device: str | None, player: str) -> None:
    """transformers on a CPU (``cpu``), and a tracer with ``device="host"``, compute in the process that is recorded."""
    assert f"no GPU, {player} plays the device" in shown(summary_table(run("sync", device=device)))
    assert in_a_sentence("emulated", device).startswith(f"No GPU: {player} plays the device;")


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_any_width(width: int) -> None:
    sync, overlapped = run("sync"), run("async")
    for table in (
        summary_table(sync, title="/a/long/path/to/trace.sync.json.gz" * 3),
        comparison_table(sync, overlapped),
    ):
        lines = shown(table, width).splitlines()
        assert {len(line) for line in lines} == {min(width, 80)}


def test_states_differ_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    table = summary_table(run("sync"))
    coloured = shown(table, force_terminal=True, color_system="truecolor")
    assert "38;2;213;94;0" in coloured, "vermilion"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(table, force_terminal=True)
    assert "38;2" not in plain
    assert "▓▚" in plain
    for patterns in ([style.pattern for style in STATES.values()], [style.plain for style in STATES.values()]):
        assert len(set(patterns)) == len(STATES)


def test_a_terminal_without_unicode() -> None:
    text = shown(comparison_table(run("sync"), run("async")), encoding="ascii")
    assert text.isascii()
    assert "===///" in text


def test_names_from_a_file_cannot_steer_the_terminal() -> None:
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "[bold]\x1b[2Jevil\x07", 0, 50, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 50, 60, 0),
        mode="[/red]\x1b",
        engine="made \x1bup",
    )
    text = shown(summary_table(summarize(trace), title="[red]x\x1b.json"))
    assert "\x1b" not in text
    assert "[bold]?[2Jevil?" in text
    assert "[red]x?.json, [/red]?" in text
    assert "made ?up" in text
    assert "[/red]?" in shown(comparison_table(summarize(trace), run("sync")))


def test_what_is_unknown_says_so() -> None:
    nothing = summarize(TraceBuilder().build(Meta.parse({"complete": False})))
    text = shown(summary_table(nothing))
    assert text.count("unknown") == 9
    assert "! incomplete trace" in text
    assert "unknown" in shown(comparison_table(nothing, nothing))


def test_the_device_that_waits_longest_is_shown_in_detail() -> None:
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "schedule", 0, 100, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 10, 100, 0),
        (OTHER_COMPUTE, Kind.GPU_COMPUTE, "compute", 60, 100, 0),
    )
    text = shown(summary_table(summarize(trace)))
    assert "GPU 0   idle 10.00 %" in text
    assert "GPU 1   idle 60.00 %" in text
    assert "GPU idle     60.00 %" in text


def test_a_stretch_of_steps_is_named() -> None:
    trace = trace_of((ENGINE, Kind.CPU_WORK, "f", 0, 9, 3), (COMPUTE, Kind.GPU_COMPUTE, "compute", 5, 30, 3))
    assert "trace.json, steps 3:" in shown(summary_table(summarize(trace, steps=(3, None)), title="trace.json"))


@given(st.tuples(*[st.integers(0, 10**12)] * 6), st.integers(1, 100))
def test_a_bar_is_as_wide_as_asked(totals: tuple[int, int, int, int, int, int], width: int) -> None:
    cells = cells_of(StateTotals(*totals), width)
    if sum(totals):
        assert sum(cells) == width
        assert all(abs(cell - ns * width / sum(totals)) < 1 for cell, ns in zip(cells, totals, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (duration(0), "0 ns"),
        (duration(999), "999 ns"),
        (duration(13_250_000), "13.25 ms"),
        (duration(450_012_685_368), "450.0 s"),
        (duration(12_345_678_900_000), "12,346 s"),
        (duration(None), "unknown"),
        (percent(24.336), "24.34 %"),
        (percent(0.001), "<0.01 %"),
        (percent(0), "0.00 %"),
        (percent(None), "unknown"),
        (percent(0.004), "<0.01 %"),
        (percent(99.996), ">99.99 %"),
        (percent(100), "100.00 %"),
        (ratio(1.2821), "1.28x"),
        (ratio(1.0023), "1.002x"),
        (ratio(0.0096), "0.010x"),
        (ratio(0.0004), "<0.001x"),
        (ratio(0.0), "0x"),
        (ratio(105.0), "105x"),
        (rate(7.25), "7.25"),
        (rate(1208.4), "1,208"),
        (count(262144), "262,144"),
    ],
)
def test_numbers(text: str, expected: str) -> None:
    assert text == expected
