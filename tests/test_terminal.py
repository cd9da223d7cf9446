"""Pictures in a terminal: the share of cells is the share of time, with and without colour, in any window."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from timeline_samples import MS, hostile_trace, steady_trace, two_device_trace
from trace_samples import traces

from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.window import Window
from cbprof.formats import load
from cbprof.numbers import ticks
from cbprof.render.picture.coverage import coverage
from cbprof.render.terminal.pictures import run_strips, terminal_plot
from cbprof.render.terminal.strip import GUTTER, MOST_OWED, stacked_levels
from cbprof.render.theme import STATES
from cbprof.trace import Trace, TraceBuilder

REAL = Path(__file__).parent / "data" / "h200_transformers"
spans = st.lists(st.tuples(st.integers(0, 990), st.integers(1, 200)), max_size=12)


def shown(
    picture: RenderableType, *, width: int = 80, colors: str | None = None, encoding: str = "utf-8", **options: object
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")  # as the command line does
    console = Console(file=file, width=width, color_system=colors, force_terminal=bool(colors), **options)  # type: ignore[arg-type]
    console.print(picture)
    file.seek(0)
    return file.read()


def area(picture: str, columns: int) -> Counter[str]:
    """How much of the cells, in eighths, each colour fills, in the lines of a picture that have a background."""
    filled: Counter[str] = Counter()
    for codes, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", picture):
        colors = {
            ground: "#" + "".join(f"{int(each):02x}" for each in found[1:])
            for found in re.findall(r"(38|48);2;(\d+);(\d+);(\d+)", codes)
            for ground in found[:1]
        }
        for character in text if "48" in colors else "":
            lower = "▁▂▃▄▅▆▇█".find(character) + 1
            filled[colors["38"]] += lower
            filled[colors["48"]] += 8 - lower
    return filled


@given(
    gpu=spans, cpu=spans, told=spans, bins=st.integers(1, 120), rows=st.integers(1, 6), per_row=st.sampled_from([1, 8])
)
@example([(0, 75), (232, 172), (486, 15)], [(0, 1), (303, 37), (404, 97)], [], 6, 1, 8)
def test_the_drawn_area_is_right_and_no_cell_has_three_states(
    gpu: list[tuple[int, int]],
    cpu: list[tuple[int, int]],
    told: list[tuple[int, int]],
    bins: int,
    rows: int,
    per_row: int,
) -> None:
    def covered(pairs: list[tuple[int, int]]) -> Intervals:
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return union(table[:, 0], table.sum(axis=1)).clip(0, 1000)

    unknown = covered(told)
    found = coverage(States(Window(0, 1000), 0, covered(gpu), covered(cpu).subtract(unknown), unknown), 0, 1000, bins)
    raster = stacked_levels(found, rows, per_row)
    assert raster.shape == (bins, rows * per_row)
    assert (np.diff(raster, axis=1) >= 0).all()  # from below, as in theme.STATES
    cells = raster.reshape(bins, rows, per_row)
    if per_row > 1:
        assert all(len(np.unique(cell)) <= 2 for cell in cells.reshape(-1, per_row))
    shares = found.shares
    for column in range(bins):
        drawn = np.bincount(raster[column], minlength=len(STATES))
        assert not drawn[(shares[:, column] == 0) & (found.width_ns[column] > 0)].any()
    active = (raster <= 2).sum() / raster.size
    # Half a level a column, or what is still owed behind the last one: few columns may have no room to give it back.
    wrong = abs(active - shares[:3].sum(axis=0).mean()) * raster.size
    assert wrong <= max(0.5 * bins, MOST_OWED * per_row) + 1e-6


@pytest.mark.parametrize("width", [60, 80, 133, 250])
def test_green_cells_are_the_share_of_gpu_activity(width: int) -> None:
    trace = steady_trace(1000)
    exact = 6.9 / 9.9995
    green = {STATES["overlap"].color, STATES["gpu_only"].color}
    filled = area(shown(run_strips([trace]), width=width, colors="truecolor"), width - GUTTER)
    assert sum(filled[color] for color in green) / filled.total() == pytest.approx(exact, abs=0.003)

    plain = shown(terminal_plot([trace]), width=width)
    cells = Counter(character for line in plain.splitlines()[2:8] for character in line[GUTTER:])
    assert (cells["█"] + cells["▓"]) / cells.total() == pytest.approx(exact, abs=0.01)
    ascii_cells = Counter(
        character
        for line in shown(terminal_plot([trace]), width=width, encoding="ascii").splitlines()[2:8]
        for character in line[GUTTER:]
    )
    assert (ascii_cells["#"] + ascii_cells["="]) == cells["█"] + cells["▓"]


@pytest.mark.parametrize(("name", "idle"), [("sync", 24.336), ("async", 0.232)])
def test_real_runs_are_as_green_as_they_were_measured(name: str, idle: float) -> None:
    path = REAL / f"{name}_8b_bs32_8k.json.gz"
    filled = area(shown(run_strips([load(path)]), width=160, colors="truecolor"), 151)
    green = sum(filled[STATES[state].color] for state in ("overlap", "gpu_only"))
    assert 100 * green / filled.total() == pytest.approx(100 - idle, abs=0.3)


def test_a_few_steps_are_shown_with_their_names() -> None:
    picture = shown(terminal_plot([steady_trace(100)]), width=100).splitlines()
    assert picture[0] == "GPU idle 30.97 % of 999.5 ms"
    assert picture[1] == "sync · a test"
    (title,) = (line for line in picture if line.startswith("steps"))
    assert re.fullmatch(r"steps \d+ to \d+  4\d\.\d+ ms", title)
    at = picture.index(title)
    lanes = {line[:GUTTER].strip(): line[GUTTER:] for line in picture[at + 1 :] if line[:GUTTER].strip()}
    assert list(lanes)[:3] == ["GPU", "CPU", "h2d"]
    assert lanes["GPU"].count("6.700 ms") >= 4
    assert lanes["CPU"].count("│wait┄") >= 4
    assert lanes["compute"].count("│compute━") >= 4
    assert len(lanes["h2d"].split()) >= 4  # 0.1 ms each: thinner than a column, and still there
    assert re.search(r"\d{3} ms", picture[-1])


def test_no_line_is_wider_than_the_window_and_control_characters_do_not_pass() -> None:
    for trace in (hostile_trace(), steady_trace(3), two_device_trace()):
        for width in (40, 80, 171):
            for colors in (None, "standard", "truecolor"):
                text = re.sub(r"\x1b\[[\d;]*m", "", shown(terminal_plot([trace]), width=width, colors=colors))
                assert max(map(len, text.splitlines())) <= width
                assert "\x1b" not in text


def test_colour_is_left_out_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = terminal_plot([steady_trace(20)])
    plain = shown(picture)
    assert "\x1b" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*[34]8;", shown(picture, colors="truecolor"))
    monkeypatch.delenv("NO_COLOR")
    ascii_only = shown(picture, encoding="ascii", colors="256")
    assert ascii_only.isascii()
    assert "=" in ascii_only


def test_two_runs_share_one_axis() -> None:
    text = shown(run_strips([steady_trace(100), steady_trace(50)]), width=109).splitlines()
    assert [len(line) - GUTTER for line in (*text[:2], *text[3:5])] == [100, 100, 50, 50]
    assert re.findall(r"\d+ ms", text[-1]) == ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms"]


@settings(max_examples=40)
@given(trace=traces(), width=st.integers(30, 120))
def test_any_trace_gives_a_picture(trace: Trace, width: int) -> None:
    shown(terminal_plot([trace, trace]), width=width, colors="truecolor", encoding="utf-8")
    shown(run_strips([trace]), width=width)


def test_an_empty_trace_says_so() -> None:
    assert shown(terminal_plot([TraceBuilder().build()])).strip() == "Empty trace: no spans"
    assert shown(run_strips([TraceBuilder().build()])).strip() == ""


@given(start=st.integers(0, 10**14), length=st.integers(1, 10**14), most=st.integers(1, 30))
def test_ticks_are_round_and_few(start: int, length: int, most: int) -> None:
    found = list(ticks(start, start + length, most))
    times = [time for time, _ in found]
    assert len(times) <= most + 1
    assert len(set(np.diff(times))) <= 1
    assert len({text for _, text in found}) == len(found)


def test_ticks_in_words() -> None:
    assert [text for _, text in ticks(0, 450 * 10**9, 5)] == ["0 s", "100 s", "200 s", "300 s", "400 s"]
    assert [text for _, text in ticks(225_010 * MS, 225_090 * MS, 4)] == [
        "225.02 s",
        "225.04 s",
        "225.06 s",
        "225.08 s",
    ]
