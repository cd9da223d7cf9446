"""A table shows what matters; the rest is one line, or all of it where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_samples import call, host, kernel, write
from typer.testing import CliRunner

from cbprof.analysis.gate.compare import compare
from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.render.sheet import MOST_ROWS, Sheet
from cbprof.render.tables.compare import devices_lines, host_lines, phases
from cbprof.trace import Trace

ROWS = [(f"row {number}", str(number)) for number in range(30)]


def test_the_rows_beyond_the_first_are_counted_and_weighed() -> None:
    sheet = Sheet(("name", "value"), ROWS, parts=[10] * MOST_ROWS + [1] * 10)
    assert sheet.shortened().rows == [*ROWS[:MOST_ROWS], ("and 10 others, 4.76 %", "")]
    assert sheet.shortened(all_rows=True) is sheet


@pytest.mark.parametrize("n_rows", [0, MOST_ROWS, MOST_ROWS + 1])
def test_a_line_for_one_row_would_save_nothing(n_rows: int) -> None:
    sheet = Sheet(("name", "value"), ROWS[:n_rows], parts=[1] * n_rows)
    assert sheet.shortened() is sheet


def test_rows_that_are_no_parts_all_stand() -> None:
    sheet = Sheet(("name", "value"), ROWS)
    assert sheet.shortened() is sheet


def many_phases(folder: Path, device: int = 0, other: int | None = None) -> Trace:
    """One launch after 40 phases of 10 to 49 us; on a second device as well, if given."""
    events = [kernel(-10, 10, device=device)]
    at = 0
    for number in range(40):
        name = f"phase {'abcdefgh'[number // 8]}{'abcdefgh'[number % 8]}"
        events.append(host(at, 10 + number, name))
        at += 10 + number
    events += [call(at, 5, "cudaLaunchKernel", 1), kernel(at + 5, 10, correlation=1, device=device)]
    if other is not None:
        events += [call(at + 20, 5, "cudaLaunchKernel", 2), kernel(at + 25, 10, correlation=2, device=other)]
    return load(write(folder, *events))


def test_report_and_compare_show_twenty_phases_or_all(tmp_path: Path) -> None:
    many_phases(tmp_path)
    (path,) = tmp_path.iterdir()

    def printed(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--no-cache"], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    for words in (("report", str(path), "--full"), ("compare", str(path), str(path))):
        few, all_of_them = printed(*words), printed(*words, "--all")
        assert "and 21 others, " in few
        assert "phase aa" not in few
        assert "phase aa" in all_of_them
        assert "others, " not in all_of_them


def test_devices_are_compared_by_their_ids(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abcd"]
    for folder in folders:
        folder.mkdir()
    one = many_phases(folders[0], device=3)
    assert compare(one, many_phases(folders[1], device=5)).devices == ((3, 5),)
    both, shifted = many_phases(folders[2], device=0, other=1), many_phases(folders[3], device=1, other=2)
    found = compare(both, shifted)
    assert found.devices == ((1, 1),)
    assert found.to_json()["devices"] == [{"before": 1, "after": 1}]
    assert list(devices_lines(found)) == ["compared: GPU 1", "only before: GPU 0", "only after: GPU 2"]
    assert list(devices_lines(compare(one, both))) == [
        "no GPU is in both traces: none are compared",
        "only before: GPU 3",
        "only after: GPU 0, 1",
    ]


def test_what_is_unknown_is_no_zero(tmp_path: Path) -> None:
    found = compare(many_phases(tmp_path), many_phases(tmp_path))
    assert summarize(many_phases(tmp_path)).n_steps == 0
    assert found.per_step is None
    assert found.to_json()["per"] == "run"
    assert phases(found).columns[0] == "host phase, in all"
    assert phases(found).rows[0][:4] == ("phase eh", "49.00 us", "49.00 us", "1.000x")


def test_a_phase_of_one_run_is_none_in_the_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    events = [kernel(-10, 10), host(0, 9, "new"), call(9, 1, "cudaLaunchKernel", 1), kernel(10, 5, correlation=1)]
    other = load(write(tmp_path / "other", *events))
    rows = {row[0]: row[1:] for row in phases(compare(many_phases(tmp_path), other)).rows}
    assert rows["new"] == ("none", "9.000 us", "", "none to 9.000 us")


def test_a_run_without_records_of_the_host_has_no_phases_to_compare(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    bare = load(write(tmp_path / "bare", kernel(0, 5), kernel(10, 5)))
    found = compare(many_phases(tmp_path), bare)
    assert phases(found).rows == []
    assert list(host_lines(found)) == [
        "host phases are not compared: the trace after does not record what the host did"
    ]
