"""What a fleet's report is made of, against naive counts: steps, collectives, clocks, the heat map, words and page."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_samples import small_report
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_samples import DECODE, write
from rich.console import Console

from cbprof.analysis.ranks import waits as profile
from cbprof.analysis.ranks.clocks import skew_of
from cbprof.analysis.ranks.heat import heat_map
from cbprof.analysis.ranks.parts import most_idle_pct
from cbprof.analysis.ranks.rank import BINS, MOST_KEPT, Collectives, Rank, bin_edges, collectives_of, ranks_of
from cbprof.analysis.ranks.report import ExaminedFile, RanksReport, compare_ranks
from cbprof.analysis.ranks.waits import StepProfile, step_waits
from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.render.picture.ranks_heat import RAMP, HeatStrips, heat_png, lines
from cbprof.render.tables.ranks import write_ranks_csv
from cbprof.render.terminal.ranks import ranks_terminal
from cbprof.render.web.ranks_page import ranks_html
from cbprof.render.words.ranks import sentences, whose
from cbprof.trace import Kind, Lane, TraceBuilder

NOTHING = np.zeros(0, dtype=np.int64)
NO_COLLECTIVES = Collectives((), (), NOTHING, NOTHING, NOTHING, NOTHING)
NO_STEPS = StepProfile(0, 0, NOTHING)


def rank(number: int | None = 0, **changes: Any) -> Rank:
    """A rank that is idle for the first half of 1,200 ns."""
    idle = np.array([10] * (BINS // 2) + [0] * (BINS // 2), dtype=np.int64)
    facts: dict[str, Any] = {
        "rank": number,
        "device": 0,
        "base_time_ns": 0,
        "start_ns": 0,
        "end_ns": 1200,
        "evidence": "cupti",
        "mode": None,
        "complete": True,
        "reliable": True,
        "idle_ns": 600,
        "gpu_ns": 600,
        "comm_ns": 0,
        "busy_ns": 600,
        "kernel_busy_ns": 600,
        "comm_busy_ns": 0,
        "exposed_comm_ns": 0,
        "causes": {"schedule": 600},
        "longest_gap_ns": 600,
        "n_gaps": 1,
        "n_steps": 0,
        "idle_bins": idle,
        "steps": NO_STEPS,
        "collectives": NO_COLLECTIVES,
    }
    return Rank(**{**facts, **changes})


def fleet(*ranks: Rank, folder: str = "job") -> RanksReport:
    return compare_ranks([ExaminedFile(f"{folder}/{row}.json", 1, (each,)) for row, each in enumerate(ranks)])


def numbers(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


# Steps ----------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_groups_of_steps_against_a_naive_count(data: st.DataObject) -> None:
    steps = sorted(data.draw(st.sets(st.integers(0, 400), min_size=1, max_size=40)))
    own = [data.draw(st.integers(0, 100)) for _ in steps]
    shift, coarser = sorted(data.draw(st.tuples(st.integers(0, 4), st.integers(0, 6))))
    fine = profile._grouped(numbers(*steps) >> shift, numbers(*own), shift)
    found = fine.coarser(coarser)
    for group in range(found.first - 1, found.first + len(found) + 1):
        mine = [ns for step, ns in zip(steps, own, strict=True) if step >> coarser == group]
        inside = 0 <= group - found.first < len(found)
        assert bool(mine) <= inside
        if inside:
            assert found.own_ns[group - found.first] == (sum(mine) if mine else -1)


@given(st.integers(2, 4), st.data())
def test_waits_against_a_naive_count(n_ranks: int, data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.tuples(*[st.integers(-1, 50)] * n_ranks), min_size=1, max_size=8))
    ranks = [StepProfile(5, 0, numbers(*(each[row] for each in columns))) for row in range(n_ranks)]
    common = [each for each in columns if -1 not in each]
    found = step_waits(ranks)
    assert (found is None) == (not common)
    if found is None:
        return
    assert found.n_groups == len(common)
    assert found.paced_ns == sum(max(each) for each in common)
    alone = [0] * n_ranks
    for each in common:
        *_, second, first = sorted(each)
        alone[each.index(first)] += first - second
    assert {last.row: last.alone_ns for last in found.last} == {row: ns for row, ns in enumerate(alone) if ns}


def test_a_long_run_has_few_groups_that_line_up() -> None:
    own = np.ones(10_000, dtype=np.int64)
    steps = np.arange(3, 10_003)
    shift = 6
    found = profile._grouped(steps >> shift, own, shift)
    assert found.own_ns.sum() == 10_000
    assert found.own_ns[1] == 1 << shift


# Collectives and clocks -----------------------------------------------------------------------------------------------


def test_collectives_are_thinned_out_alike() -> None:
    builder = TraceBuilder()
    lane = builder.lane(Lane("comm", device=0))
    for index in range(1000):
        builder.span(lane, Kind.GPU_COMM, "all_reduce", 100 * index, 50)
        if index < 3:
            builder.span(lane, Kind.GPU_COMM, "broadcast", 100 * index + 60, 10)
    found = collectives_of(builder.build(), 0)
    assert (found.names, found.counts) == (("all_reduce", "broadcast"), (1000, 3))
    assert len(found) <= MOST_KEPT
    kept = found.occurrence[found.name_id == 0]
    assert set(np.diff(kept)) == {16}
    assert (found.start_ns[found.name_id == 0] == 100 * kept).all()
    assert found.occurrence[found.name_id == 1].tolist() == [0, 1, 2]


def collectives(start: Any, end: Any) -> Collectives:
    count = len(start)
    return Collectives(("all_reduce",), (count,), np.zeros(count, dtype=np.int64), np.arange(count), start, end)


@given(st.integers(-1_000_000, 1_000_000), st.integers(-200, 200), st.integers(0, 5000))
def test_offset_drift_and_lateness_are_found(offset: int, drift_ppm: int, late: int) -> None:
    """Three clocks are right; the fourth is not, and its rank comes late."""
    end = np.arange(1, 61, dtype=np.int64) * 10_000_000
    start = end - 50_000
    off = np.rint((end - end.mean()) * drift_ppm * 1e-6).astype(np.int64) + offset
    ranks = [rank(row, collectives=collectives(start, end)) for row in range(3)]
    ranks.append(rank(3, collectives=collectives(start + late + off, end + off)))
    skew = skew_of(ranks)
    assert skew is not None
    assert skew.clocks[3].offset_ns == pytest.approx(offset, abs=2)
    assert skew.clocks[3].drift == pytest.approx(drift_ppm * 1e-6, abs=1e-8)
    assert skew.late_ns[3] == pytest.approx(late, abs=3)
    assert skew.start_max_ns == pytest.approx(late, abs=6)
    assert skew.end_max_ns <= 6


def test_few_collectives_tell_no_drift_and_none_no_skew() -> None:
    few = collectives(numbers(0, 100), numbers(50, 150))
    skew = skew_of([rank(0, collectives=few), rank(1, collectives=few)])
    assert skew is not None
    assert skew.most_drift is None
    assert skew_of([rank(0), rank(1)]) is None
    assert skew_of([rank(0, collectives=few)]) is None
    other = collectives(numbers(0), numbers(50))
    assert skew_of([rank(0, collectives=few), rank(1, collectives=other)]) is None, "not the same collectives"


def test_the_last_to_arrive_is_the_one_that_the_others_wait_for() -> None:
    on_time = rank(0, collectives=collectives(numbers(100, 500), numbers(300, 700)))
    late = rank(1, collectives=collectives(numbers(180, 520), numbers(300, 700)))
    report = fleet(on_time, late)
    (job,) = report.jobs
    assert job.skew is not None
    assert job.skew.late_ns == (0, 50)
    assert job.skew.waited_ns == (50, 0)
    assert report.slowest == (1, "it starts its collectives last")
    assert "The others wait for rank 1: it starts its collectives last." in sentences(report)


def test_one_collective_tells_a_clock_from_a_late_start() -> None:
    right = rank(0, collectives=collectives(numbers(100), numbers(300)))
    ahead = rank(1, collectives=collectives(numbers(1100), numbers(1300)))
    late = rank(1, collectives=collectives(numbers(250), numbers(300)), comm_busy_ns=50)
    skew = skew_of([right, ahead])
    assert skew is not None
    assert (skew.raw_start_max_ns, skew.start_max_ns, skew.most_offset_ns) == (1000, 0, 1000)
    assert skew.latest is None
    skew = skew_of([right, late])
    assert skew is not None
    assert (skew.start_max_ns, skew.most_offset_ns, skew.latest) == (150, 0, 1)


def test_without_a_common_clock_nothing_is_compared_but_time_in_collectives() -> None:
    long = rank(0, collectives=collectives(numbers(100), numbers(300)), comm_busy_ns=200)
    short = rank(1, collectives=collectives(numbers(200), numbers(300)), comm_busy_ns=100, base_time_ns=None)
    report = fleet(long, short)
    assert report.jobs[0].skew is None
    assert report.slowest == (1, "it spends the least time in collectives, in which the others wait")
    assert report.warnings == (
        "rank 1: the file does not say when its time 0 was; collectives cannot be compared without that",
    )
    devices = [replace(each, device=device, base_time_ns=None) for device, each in enumerate((long, short))]
    of_one_file = compare_ranks([ExaminedFile("job/one.json", 1, tuple(devices))])
    assert of_one_file.warnings == ()
    assert of_one_file.jobs[0].skew is not None
    assert fleet(rank(0), rank(1)).slowest is None
    assert fleet(rank(0), rank(1, end_ns=2400)).slowest == (1, "its own time is the longest")


def test_collectives_that_are_not_on_every_rank_are_counted() -> None:
    some = rank(0, collectives=collectives(numbers(100, 500), numbers(300, 700)))
    both = Collectives(
        ("all_reduce", "gather"),
        (2, 3),
        numbers(0, 0),
        numbers(0, 1),
        some.collectives.start_ns,
        some.collectives.end_ns,
    )
    assert fleet(some, rank(1, collectives=both)).warnings == ("3 collectives are not on every rank: not compared",)


# The heat map ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(120, 2000)), min_size=1, max_size=4), st.data())
def test_the_heat_map_keeps_all_idle_time(windows: list[tuple[int, int]], data: st.DataObject) -> None:
    ranks = []
    for start, length in windows:
        edges = bin_edges(start, start + length)
        idle = numbers(*(data.draw(st.integers(0, int(width))) for width in np.diff(edges)))
        ranks.append(rank(start_ns=start, end_ns=start + length, idle_bins=idle, idle_ns=int(idle.sum())))
    found = heat_map(ranks)
    origin = min(start for start, _ in windows) if found.together else 0
    edges = bin_edges(0, found.length_ns)
    for row, each in zip(found.idle_pct, ranks, strict=True):
        begin = each.start_ns - origin if found.together else 0
        covered = np.diff(np.clip(edges, begin, begin + each.window_ns))
        assert (np.isnan(row) == (covered == 0)).all()
        assert np.nansum(row / 100 * covered) == pytest.approx(each.idle_ns, abs=0.01 * found.length_ns)


def test_ranks_that_did_not_run_together_begin_at_0_each() -> None:
    day_ns = 86_400 * 10**9
    apart = heat_map([rank(0), rank(1, base_time_ns=day_ns)])
    assert not apart.together
    assert apart.length_ns == 1200
    assert (apart.idle_pct[0] == apart.idle_pct[1]).all()
    assert heat_map([rank(0), rank(1, base_time_ns=600)]).together
    assert not heat_map([rank(0), rank(1, base_time_ns=None)]).together
    assert np.isnan(heat_map([rank(idle_ns=None)]).idle_pct).all()


def test_the_picture_of_the_heat_map() -> None:
    report = fleet(*[rank(number) for number in range(100)])
    found = lines(report, 32)
    assert (found.each, found.labels[0], found.labels[-1]) == (4, "0-3", "96-99")
    assert found.cells[0, 0] == 100
    assert found.cells[0, -1] == 0
    picture = heat_png(found.cells)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert picture[16:24] == (120).to_bytes(4, "big") + (25).to_bytes(4, "big")


# Ranks and words ------------------------------------------------------------------------------------------------------


def test_folders_are_jobs() -> None:
    files = [ExaminedFile(f"{folder}/{each}.json", 1, (rank(each),)) for folder in "ab" for each in range(2)]
    report = compare_ranks(files)
    assert [(job.folder, job.rows) for job in report.jobs] == [("a", (0, 1)), ("b", (2, 3))]
    assert report.warnings == ()
    assert [whose(report, row) for row in (0, 3)] == ["rank 0 of a", "rank 1 of b"]
    apart = compare_ranks([ExaminedFile(f"run/node{each}/trace.json", 1, (rank(each),)) for each in range(2)])
    assert [(job.folder, job.rows) for job in apart.jobs] == [("run", (0, 1))], "a folder a rank"
    alike = compare_ranks([ExaminedFile(f"run{each}/trace.json", 1, (rank(0),)) for each in range(2)])
    assert [job.rows for job in alike.jobs] == [(0,), (1,)], "two runs of one rank each"
    twice = fleet(rank(3), rank(3))
    assert twice.warnings == ("job: more than one device or file says that it is rank 3",)


def test_what_cannot_be_known_is_said() -> None:
    unknown = fleet(
        rank(0, idle_ns=None, causes={}), rank(1, complete=False), rank(2, reliable=False, evidence="emulated")
    )
    assert [warning.partition(":")[0] for warning in unknown.warnings] == [
        "the ranks were measured in different ways (cupti, emulated), which do not compare exactly",
        "rank 1",
        "rank 2",
        "rank 0",
    ]
    assert unknown.idle is not None
    assert unknown.idle.n == 2
    assert compare_ranks([]).median_row is None
    assert sentences(compare_ranks([])) == ["0 ranks in 0 files."]


def test_the_paragraph() -> None:
    report = fleet(rank(0), rank(1), rank(2, end_ns=3600, gpu_ns=3000))
    assert " ".join(sentences(report)) == (
        "3 ranks in 3 files. The GPU waited 50.00 % of the time on the median rank, from 16.67 % to 50.00 % (rank 0). "
        "The slowest is rank 2 with 3.600 us in all, 3.00x the median rank, which takes 1.200 us in all: of the "
        "2.400 us more, 2.400 us are GPU work."
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RanksReport:
    return small_report(tmp_path_factory.mktemp("small"))


def test_the_terminal_shows_the_same(small: RanksReport) -> None:
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(ranks_terminal(small))
    shown = text.getvalue()
    assert "4 ranks in 5 files; 1 of the files could not be used." in shown.replace("\n", " ")
    assert "In 1 of 12 steps rank 2 is the slowest: the others wait for it" in " ".join(shown.split())
    assert "slowest steps of traces" in shown
    assert "collectives of traces" in shown
    assert "the file is <empty>?[31m" in shown
    assert "\x1b" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_the_caption_of_the_heat_map_is_whole_at_any_width(small: RanksReport) -> None:
    text = io.StringIO()
    report = replace(small, heat=replace(small.heat, together=False))
    Console(file=text, width=60, color_system=None).print(HeatStrips(report))
    assert "every rank from its own start" in " ".join(text.getvalue().split())


def test_the_darkest_cell_is_the_most_idle() -> None:
    def pixels(*idle_pct: float) -> bytes:
        png = heat_png(np.array([idle_pct], dtype=np.float32))
        size = int.from_bytes(png[33:37], "big")
        return zlib.decompress(png[41 : 41 + size])

    assert pixels(0, 10, 20, np.nan) == pixels(0, 50, 100, np.nan)
    assert pixels(0, 0) == b"\0" + 2 * bytes((*RAMP[0], 255))


def test_the_table_for_spreadsheets(small: RanksReport, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    write_ranks_csv(small, tmp_path / "ranks.csv")
    table = pd.read_csv(tmp_path / "ranks.csv")
    assert table["rank"].tolist()[:4] == [0, 1, 2, 3]
    assert table.idle_ns.tolist()[:4] == [row.rank.idle_ns for row in small.rows]
    assert table.reason.notna().tolist() == [False] * 4 + [True]


def test_the_page_holds_no_markup_of_a_name(small: RanksReport) -> None:
    page = ranks_html(small)
    assert "<empty>" not in page
    assert "<b>" not in page
    assert "{{" not in page
    assert len(page) < 100_000
    assert "Files without figures" in page
    assert "0 ranks" in ranks_html(compare_ranks([]))


# Files that hold parts of one recording -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "most_pct"),
    [
        ((0, 1000, 900), (1000, 2000, 100), 50),  # apart: both were active for 1000 of 2000
        ((0, 1000, 980), (100, 900, 0), 20),  # one within the other
        ((0, 1000, 500), (500, 1500, 500), 100 * (1500 - 500) / 1500),  # they may have seen the same 500
        ((0, 1000, 0), (0, 1000, 0), 0),
    ],
)
def test_parts_of_one_recording_are_not_ranks(
    first: tuple[int, int, int], second: tuple[int, int, int], most_pct: float
) -> None:
    mine = [rank(0, start_ns=start, end_ns=end, idle_ns=idle, recording="5EE") for start, end, idle in (first, second)]
    assert most_idle_pct(mine) == pytest.approx(most_pct)
    report = fleet(*mine)
    (warning,) = report.warnings
    assert warning.startswith("0.json and 1.json are parts of one recording of one process, not ranks")
    assert f"idle {most_pct:.2f} % at most" in warning
    assert sentences(report) == ["1 rank in 2 files."]
    assert report.to_json()["summary"]["n_ranks"] == 1
    both = fleet(*mine, rank(1), rank(2))
    assert (both.n_ranks, len(both.rows)) == (3, 4)
    assert sentences(both)[0] == "3 ranks in 4 files."


def test_ranks_and_recordings_of_their_own_are_no_parts() -> None:
    alike = rank(0, recording="5EE")
    for other in (rank(1, recording="5EE"), rank(0, recording="A11"), rank(0, device=1, recording="5EE"), rank(0)):
        assert not any("parts of one recording" in warning for warning in fleet(alike, other).warnings)
    unknown = fleet(alike, rank(0, recording="5EE", idle_ns=None)).warnings[0]
    assert unknown.endswith("its figures do not hold")


def test_the_id_of_a_recording_is_read(tmp_path: Path) -> None:
    trace = load(write(tmp_path, *DECODE, trace_id="C3AB6F"))
    (found,) = ranks_of(trace, summarize(trace))
    assert found.recording == "C3AB6F"
