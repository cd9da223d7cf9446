"""``cbprof report`` of several ranks: the fleet's analysis without Dask; a worked example, and what can go wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fleet_samples import Pace, usual, write_fleet
from typer.testing import CliRunner

from cbprof.cli.main import app
from cbprof.errors import DataError, UsageError
from cbprof.fleet import run as fleet_run
from cbprof.formats import save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, TraceBuilder

CASE = Path(__file__).parent / "data" / "cases" / "14-two-ranks-different-base-time"
US = 1000


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=True)


def write_rank(folder: Path, number: int, late_us: int = 0) -> Path:
    """A file of cbprof's own format in which a collective starts ``late_us`` late and ends on time."""
    builder = TraceBuilder()
    lane = builder.lane(Lane("stream 7", device=0))
    builder.span(lane, Kind.GPU_COMPUTE, "gemm", 0, 100 * US + late_us * US)
    builder.span(lane, Kind.GPU_COMM, "all_reduce", (150 + late_us) * US, (150 - late_us) * US)
    meta = {"rank": number, "base_time_ns": 1_790_000_000_000_000_000, "evidence": "cupti", "complete": True}
    return save(builder.build(Meta.parse(meta)), folder / f"rank{number}.json")


def test_the_worked_example() -> None:
    expected = json.loads((CASE / "expected.json").read_text())
    result = run(CASE / "trace.json", CASE / "trace_rank1.json", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    for found, wanted in zip(report["ranks"], expected["results"], strict=True):
        assert found["file"] == str(CASE / wanted["file"])
        assert found["window_ns"] == [wanted["window"]["start_us"] * US, wanted["window"]["end_us"] * US]
        assert found["busy_ns"] == wanted["gpu_busy_us"] * US
        assert found["idle_pct"] == pytest.approx(wanted["idle_pct"], abs=1e-9)
        assert (found["n_gaps"], found["longest_gap_ns"]) == (wanted["n_gaps"], wanted["longest_gap_us"] * US)
    (job,) = report["summary"]["jobs"]
    skew, checks = job["collectives"], expected["checks"]
    assert skew["start_skew_ns"]["max"] == checks["aligned_comm_start_skew_us"] * US
    assert skew["end_skew_ns"]["max"] == checks["aligned_comm_end_skew_us"] * US
    assert [rank["late_ns"] for rank in skew["ranks"]] == [0, 100 * US]
    assert [rank["waited_ns"] for rank in skew["ranks"]] == [100 * US, 0]
    assert report["slowest"]["rank"] == 1


def test_a_folder_is_its_traces(tmp_path: Path) -> None:
    for number, late_us in ((1, 30), (0, 0)):
        write_rank(tmp_path, number, late_us)
    (tmp_path / "notes.txt").write_text("not looked at")
    (tmp_path / "settings.json").write_text('{"no": "trace"}')
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert words.startswith("2 ranks in 3 files; 1 of the files could not be used.")
    assert "The others wait for rank 1: it starts its collectives last." in words
    assert "JSON, but not a trace" in words


def test_it_needs_neither_dask_nor_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rank(tmp_path, 0)
    for package in ("dask", "distributed", "fsspec", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    result = run(tmp_path, "--json")
    assert result.exit_code == 0, result.output


def test_options_choose_what_is_reported(tmp_path: Path) -> None:
    write_fleet(tmp_path, usual(2, r1=Pace(schedule=200)), steps=6)
    ranks = json.loads(run(tmp_path, "--steps", "2:5", "--json").stdout)["ranks"]
    assert [rank["n_steps"] for rank in ranks] == [3, 3]
    both = run(tmp_path, "--steps", "2:5", "--skip", "1")
    assert isinstance(both.exception, UsageError)


def test_processes_read_as_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write_rank(tmp_path, number, 10 * number) for number in range(2)]
    here = run(*files, "--json").stdout
    monkeypatch.setattr(fleet_run, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(fleet_run, "cores", lambda: 2)
    assert run(*files, "--json").stdout == here


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = run(empty)
    assert isinstance(nothing.exception, DataError)
    assert "holds no file that ends in " in str(nothing.exception)
    (empty / "a.json").write_text("{}")
    assert "none of 1 file could be used" in str(run(empty).exception)
    no_device = [save(TraceBuilder().build(), tmp_path / f"{each}.json") for each in "ab"]
    assert "no work of a device" in str(run(*no_device).exception)
    assert isinstance(run(write_rank(tmp_path, 0), tmp_path / "gone.json").exception, DataError)
    for option in (("--csv", tmp_path), ("--gaps", "all"), ("--full",)):
        assert isinstance(run(tmp_path, *option).exception, UsageError)
