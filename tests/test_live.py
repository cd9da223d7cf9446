"""The live line: the rolling second against sums over every nanosecond, and what it looks like."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cbprof.cli.live import LiveLine, can_draw, colored_strip, strip
from cbprof.cli.progress import token_progress
from cbprof.record.clocks.base import NoClock
from cbprof.record.drain import DeviceLane, Drain, HostSpan, LaunchSpan
from cbprof.record.live import CELL_NS, CELLS, Activity, LiveActivity
from cbprof.record.program.status import Status
from cbprof.record.recorder import Recorder
from cbprof.trace import NONE, Kind, Lane, TraceBuilder

SECOND = CELLS * CELL_NS
spans = st.lists(
    st.tuples(st.integers(0, 3 * SECOND), st.one_of(st.integers(0, 5 * CELL_NS), st.integers(0, 3 * SECOND))),
    max_size=30,
)


@given(spans, st.integers(0, 2 * SECOND))
@example([(0, SECOND), (CELL_NS // 2, CELL_NS)], 0)
@example([(0, 1)], 5 * SECOND)
def test_the_last_second_is_the_union_of_the_spans_in_it(gaps_and_lengths: list[tuple[int, int]], later: int) -> None:
    live, covered = LiveActivity(), []
    start = end = 0
    for gap, length in gaps_and_lengths:
        start += gap  # in the order of their starts, as the spans of a stream are
        live.add(start, start + length)
        covered.append((max(start, end), start + length))
        end = max(end, start + length)
    activity = live.last_second(end + later)
    last = (end + later) // CELL_NS
    if last < CELLS or not end or not any(b > a for a, b in covered):
        assert activity is None
        return
    assert activity is not None
    for cell, share in zip(range(last - CELLS, last), activity.cells, strict=True):
        a, b = cell * CELL_NS, (cell + 1) * CELL_NS
        active = sum(max(0, min(b, y) - max(a, x)) for x, y in covered)
        assert share == active / CELL_NS
    assert activity.idle == pytest.approx(1 - sum(activity.cells) / CELLS)


def test_what_is_still_running_ends_what_is_known() -> None:
    """A span that has been launched and not resolved may have begun at its launch: nothing later is known."""
    drain = Drain(TraceBuilder(), origin_ns=0)
    assert drain.activity() is None
    device = drain.add_device(0, NoClock())  # which never knows a time
    device.live.add(0, 2 * SECOND)
    launch, host = LaunchSpan(), HostSpan()
    for span, start_ns in ((launch, 2 * SECOND), (host, 10 * SECOND)):
        span.kind, span.name, span.step, span.slot = Kind.CPU_WORK, "launch", 0, NONE
        span.start_ns = span.end_ns = start_ns
    drain.host_span(host, Lane("main"))
    assert drain.activity() == Activity((0.0,) * CELLS)
    launch.handle, launch.stream = 1, None
    drain.launch_span(launch, Lane("main"), DeviceLane(device, Lane("compute", 0), Kind.GPU_COMPUTE, "compute"))
    assert drain.activity() == Activity((1.0,) * CELLS)


def test_a_strip_is_as_high_as_the_device_was_active() -> None:
    activity = Activity((0.0, 0.5, 1.0, 0.01))
    assert strip(activity) == " ▄█ "
    assert re.sub(r"\x1b\[[\d;]*m", "", colored_strip(activity)) == " ▄█ "
    assert activity.idle == pytest.approx(0.6225)


def test_the_line_shows_the_busiest_process_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine(enabled=True)
    busy = Status(42, recording=True, tokens=100, cells=(1.0,) * CELLS, at_s=10.0)
    line.processes(41, [Status(41), busy._replace(cells=())])
    assert capsys.readouterr().err == "", "one count is no rate"
    for _ in range(2):  # the second look sees the same status again
        line.processes(41, [Status(41), busy._replace(tokens=150, at_s=10.5)])
        shown = capsys.readouterr().err
        assert "cbprof: 100 tokens/s" in shown
    assert "GPU idle 0.00 %" in shown
    line.processes(41, [Status(41)])
    assert "kill -USR2 41 switches on" in capsys.readouterr().err
    line.clear()
    assert capsys.readouterr().err == "\r\x1b[K\r"
    line.clear()
    assert capsys.readouterr().err == ""


def test_the_line_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine(enabled=True)
    line.run("sync", 0, 400, None, 10.0)
    line.run("sync", 100, 400, Activity((0.5,) * CELLS), 12.0)
    shown = re.sub(r"\x1b\[[\d;]*[mK]", "", capsys.readouterr().err)
    assert shown == f"\rsync   0%\r\rsync  25%  50 tokens/s  GPU idle 50.00 %  {'▄' * CELLS}\r"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, f"sync  25%  50 tokens/s  GPU idle 50.00 %  {'▄' * CELLS}"),
        (63, f"sync  25%  50 tokens/s  GPU idle 50.00 %  {'▄' * CELLS}"),
        (62, "sync  25%  50 tokens/s  GPU idle 50.00 %"),
        (39, "sync  25%  50 tokens/s"),
        (20, "sync  25%"),
        (6, "sync "),
    ],
)
def test_what_a_terminal_is_too_narrow_for_is_left_out(
    columns: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    line = LiveLine(enabled=True)
    line.run("sync", 0, 400, None, 10.0)
    capsys.readouterr()
    line.run("sync", 100, 400, Activity((0.5,) * CELLS), 12.0)
    assert capsys.readouterr().err == f"\r\x1b[K{shown}\r"


def test_it_draws_on_a_terminal_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert not can_draw()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert can_draw()
    monkeypatch.setenv("TERM", "dumb")
    assert not can_draw()


def test_the_progress_of_a_run_is_drawn_where_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(TraceBuilder(), origin_ns=0)
    for shown in (False, True):
        with token_progress("sync", 400, shown=shown) as watch:
            watch(recorder)
            while shown and "sync   0%" not in (drawn := capsys.readouterr().err):
                pass
    assert drawn.startswith("\r\x1b[Ksync   0%")


def test_without_a_terminal_there_is_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine(enabled=False)
    line.processes(41, [Status(42, recording=True, tokens=100)])
    line.run("sync", 0, 400, None, 10.0)
    line.clear()
    assert capsys.readouterr().err == ""
