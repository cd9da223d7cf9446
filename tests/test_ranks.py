"""Several ranks on one axis: a worked example, skew against a naive count, and the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import NO_DEADLINE
from rich.console import Console
from typer.testing import CliRunner

from cbprof.analysis.ranks.one_folder import Collectives, Rank, RanksReport, compare_ranks
from cbprof.cli import ranks as cli_ranks
from cbprof.cli.main import app
from cbprof.errors import DataError, UsageError
from cbprof.formats import save
from cbprof.render.tables.one_folder import ranks_table
from cbprof.trace import Kind, Lane, TraceBuilder

SHARED = Path(__file__).parents[1].parent / "shared"
CASE = SHARED / "cases" / "14-two-ranks-different-base-time"
US = 1000


def rank(number: int | None, *collectives: tuple[str, int, int], base: int | None = 0, **changes: Any) -> Rank:
    """A rank whose window is 0 to 1000 ns, with these collectives (name, start, end)."""
    names, starts, ends = zip(*collectives, strict=True) if collectives else ((), (), ())
    facts: dict[str, Any] = {
        "file": f"rank{number}.json",
        "rank": number,
        "device": 0,
        "base_time_ns": base,
        "start_ns": 0,
        "end_ns": 1000,
        "idle_ns": 100,
        "idle_pct": 10.0,
        "busy_ns": 900,
        "kernel_busy_ns": 900,
        "comm_busy_ns": sum(ends) - sum(starts),
        "exposed_comm_ns": 0,
        "reliable": True,
        "collectives": Collectives(tuple(names), np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)),
    }
    return Rank(**{**facts, **changes})


def test_the_last_to_arrive_is_the_slowest() -> None:
    on_time = rank(0, ("all_reduce", 100, 300), ("all_reduce", 500, 700))
    late = rank(1, ("all_reduce", 180, 302), ("all_reduce", 520, 700))
    report = compare_ranks([late, on_time])
    assert [each.rank for each in report.ranks] == [0, 1]
    assert report.skew is not None
    assert (report.skew.n_matched, report.skew.n_unmatched) == (2, 0)
    assert (report.skew.start_p50_ns, report.skew.start_max_ns) == (20, 80)
    assert (report.skew.end_p50_ns, report.skew.end_max_ns) == (0, 2)
    assert report.skew.late_ns == (0, 50)
    assert report.skew.waited_ns == (100, 0)
    assert report.slowest is not None
    assert (report.slowest.row, report.slowest.why) == (1, "it starts its collectives last")
    assert report.warnings == ()


def test_files_have_an_axis_each() -> None:
    early, late = rank(0, ("all_reduce", 600, 700), base=0), rank(1, ("all_reduce", 100, 210), base=500)
    skew = compare_ranks([early, late]).skew
    assert skew is not None
    assert (skew.start_max_ns, skew.end_max_ns) == (0, 10)
    unknown = compare_ranks([early, rank(1, ("all_reduce", 100, 150), base=None)])
    assert unknown.skew is None
    assert not unknown.one_axis
    assert "rank1.json does not say when its time 0 was" in unknown.warnings[0]
    assert unknown.slowest is not None
    assert unknown.slowest.row == 1, "it waits least in collectives"


def test_devices_of_one_file_share_its_axis() -> None:
    devices = [
        rank(None, ("all_reduce", start, 50), base=None, file="one.json", device=each)
        for each, start in ((0, 10), (1, 30))
    ]
    report = compare_ranks(devices)
    assert report.skew is not None
    assert report.skew.start_max_ns == 20
    assert report.ranks[1].label == "one.json, GPU 1"


def test_collectives_that_are_not_on_every_rank() -> None:
    report = compare_ranks(
        [
            rank(0, ("all_reduce", 10, 20), ("all_gather", 30, 40)),
            rank(1, ("all_reduce", 10, 20), ("all_gather", 30, 40), ("all_gather", 50, 60)),
        ]
    )
    assert report.skew is not None
    assert (report.skew.n_matched, report.skew.n_unmatched) == (1, 3)
    assert "3 collectives are not on every rank" in report.warnings[0]


def test_without_collectives_the_longest_window_is_the_slowest() -> None:
    assert compare_ranks([rank(0), rank(1)]).slowest is None
    slowest = compare_ranks([rank(0), rank(1, end_ns=1001)]).slowest
    assert slowest is not None
    assert (slowest.row, slowest.why) == (1, "its window is the longest")
    assert compare_ranks([rank(0)]).slowest is None
    assert compare_ranks([]).ranks == ()


def test_what_is_doubtful_is_said() -> None:
    report = compare_ranks([rank(0), rank(0, file="again.json"), rank(1, reliable=False)])
    assert report.warnings == (
        "more than one device or file says that it is rank 0",
        "the figures of rank 1 are not to be trusted; see `cbprof doctor` on its file",
    )


@NO_DEADLINE
@given(st.data())
def test_skew_against_a_naive_count(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=6))
    times = st.lists(st.integers(0, 1000), min_size=len(names), max_size=len(names)).map(sorted)
    bases = data.draw(st.lists(st.integers(0, 100), min_size=2, max_size=3))
    starts = [data.draw(times) for _ in bases]
    ranks = [
        rank(number, *((name, start, start + 10) for name, start in zip(names, mine, strict=True)), base=base)
        for number, (base, mine) in enumerate(zip(bases, starts, strict=True))
    ]
    aligned = [[base + start for start in mine] for base, mine in zip(bases, starts, strict=True)]
    together = list(zip(*aligned, strict=True))
    skew = compare_ranks(ranks).skew
    assert skew is not None
    assert skew.n_matched == len(names)
    assert skew.start_max_ns == skew.end_max_ns == max(max(each) - min(each) for each in together)
    for number in range(len(bases)):
        late = [each[number] - min(each) for each in together]
        assert skew.late_ns[number] == pytest.approx(sum(late) / len(late))
        assert skew.waited_ns[number] == sum(min(max(each) - each[number], 10) for each in together)


# The table


def shown(report: RanksReport, title: str | None = None) -> str:
    file = io.StringIO()
    Console(file=file, width=80).print(ranks_table(report, title))
    return file.getvalue()


def test_a_row_a_rank() -> None:
    report = compare_ranks(
        [
            rank(0, ("all_reduce", 100, 300), idle_pct=12.5),
            rank(1, ("all_reduce", 180, 302), idle_pct=1.4285, reliable=False),
        ]
    )
    assert (
        shown(report, "traces")
        == """\
╭─ 2 ranks, traces ────────────────────────────────────────────────────────────╮
│ rank                            window     idle  collectives  exposed   late │
│ 0                             1.000 us  12.50 %       200 ns     0 ns   0 ns │
│ 1                             1.000 us   1.43 %       122 ns     0 ns  80 ns │
│                                                                              │
│ idle      1.43 % to 12.50 %, 6.96 % on average                               │
│ slowest   rank 1: it starts its collectives last                             │
│ skew      1 collective on all ranks                                          │
│   starts  80 ns apart at most, 80 ns in the median                           │
│   ends    2 ns apart at most, 2 ns in the median                             │
│ ! the figures of rank 1 are not to be trusted; see `cbprof doctor` on its    │
│ file                                                                         │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
    )


def test_what_tells_the_rows_apart_is_shown() -> None:
    same_rank = compare_ranks([rank(0, file="a\x1b.json"), rank(0, file="b.json", end_ns=2000)])
    assert "a?.json" in shown(same_rank), "names from a file cannot steer the terminal"
    assert "slowest  rank 0 of b.json: its window is the longest" in shown(same_rank)
    unknown = compare_ranks([rank(None, file="a.json", device=each, base=None) for each in range(2)])
    header = shown(unknown).splitlines()[1]
    assert "GPU" in header
    assert "rank" not in header


# The command line


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=True)


def write_rank(folder: Path, number: int, late_us: int = 0) -> Path:
    """A file of cbprof's own format in which a collective starts ``late_us`` late and ends on time."""
    builder = TraceBuilder()
    lane = builder.lane(Lane("stream 7", device=0))
    builder.span(lane, Kind.GPU_COMPUTE, "gemm", 0, 100 * US + late_us * US)
    builder.span(lane, Kind.GPU_COMM, "all_reduce", (150 + late_us) * US, (150 - late_us) * US)
    meta = {"rank": number, "base_time_ns": 1_790_000_000_000_000_000, "evidence": "cupti", "complete": True}
    return save(builder.build(meta), folder / f"rank{number}.json")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not beside this checkout")
def test_the_worked_example() -> None:
    expected = json.loads((CASE / "expected.json").read_text())
    result = run(CASE / "trace.json", CASE / "trace_rank1.json", "--json", "--gaps", "all")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["health"] == expected["checks"]
    for found, file, wanted in zip(report["ranks"], report["files"], expected["results"], strict=True):
        assert found["file"] == wanted["file"]
        assert found["window_ns"] == [wanted["window"]["start_us"] * US, wanted["window"]["end_us"] * US]
        assert found["busy_ns"] == wanted["gpu_busy_us"] * US
        assert found["idle_pct"] == pytest.approx(wanted["idle_pct"], abs=1e-9)
        gaps = [[gap["start_ns"], gap["end_ns"]] for gap in file["devices"][0]["gaps"]]
        assert gaps == [[start * US, end * US] for start, end in wanted["gaps_us"]]
    assert [found["aligned_window_ns"] for found in report["ranks"]] == [[0, 800 * US], [100 * US, 800 * US]]
    assert (report["slowest"]["rank"], report["ranks"][1]["late_ns"]) == (1, 100 * US)
    assert report["ranks"][0]["waited_ns"] == 100 * US


def test_a_folder_is_its_traces(tmp_path: Path) -> None:
    for number, late_us in ((1, 30), (0, 0)):
        write_rank(tmp_path, number, late_us)
    (tmp_path / "notes.txt").write_text("not looked at")
    (tmp_path / "settings.json").write_text('{"no": "trace"}')
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if "rank" in line]
    assert "2 ranks" in lines[0]
    assert "rank 1: it starts its collectives last" in result.stdout
    assert "left out:" in result.stderr
    assert "settings.json" in result.stderr


def test_processes_read_as_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write_rank(tmp_path, number, 10 * number) for number in range(2)]
    here = run(*files, "--json").stdout
    monkeypatch.setattr(cli_ranks, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(cli_ranks, "cpu_count", lambda: 2)
    assert run(*files, "--json").stdout == here


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = run(empty)
    assert isinstance(result.exception, UsageError)
    assert "no file that ends in" in str(result.exception)
    (empty / "a.json").write_text("{}")
    assert isinstance(run(empty).exception, DataError)
    assert isinstance(
        run(*[save(TraceBuilder().build(), tmp_path / f"{each}.json") for each in "ab"]).exception, DataError
    )
    named = run(write_rank(tmp_path, 0), empty / "a.json")
    assert isinstance(named.exception, DataError), "a file that was named must be a trace"
    assert isinstance(run(write_rank(tmp_path, 0), tmp_path / "gone.json").exception, DataError)
    assert isinstance(run(tmp_path, "--csv", tmp_path).exception, UsageError)
