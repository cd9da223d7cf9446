"""Runs of several ranks: what the launcher says, who serves what, and two ranks for real, on two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.ranks.report import ExaminedFile, compare_ranks
from cbprof.engine.placement import Placement
from cbprof.engine.workload import Workload
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.record.tracer import Tracer


def test_what_a_launcher_says() -> None:
    told = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    assert Placement.from_environment(told) == Placement(3, 1, 4, 2)
    assert Placement.from_environment({}) == Placement()
    assert Placement.from_environment({"RANK": "3"}) == Placement()
    for rank, local_rank in (("0", "-1"), ("-1", "-1"), ("-1", "0")):
        assert Placement.from_environment({"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": "1"}) == Placement()
    assert Placement.from_environment(told | {"LOCAL_WORLD_SIZE": ""}) == Placement(3, 1, 4)
    with pytest.raises(UsageError, match="must be numbers, not 3, one, 4"):
        Placement.from_environment(told | {"LOCAL_RANK": "one"})
    with pytest.raises(UsageError, match="RANK=4, LOCAL_RANK=1, WORLD_SIZE=4 make no sense"):
        Placement.from_environment(told | {"RANK": "4"})
    with pytest.raises(UsageError, match="RANK=3, LOCAL_RANK=-1, WORLD_SIZE=4 make no sense"):
        Placement.from_environment(told | {"LOCAL_RANK": "-1"})


def test_each_rank_has_a_file() -> None:
    third = Placement(3, 1, 4)
    assert third.path(Path("out/trace.json")) == Path("out/trace.rank00003.json")
    assert third.path(Path("trace.sync.json.gz")) == Path("trace.sync.rank00003.json.gz")
    assert third.path(Path("trace.rank00003.json.gz")) == Path("trace.rank00003.json.gz")
    for named_after_another in ("trace.rank00000.json", "trace.rank00003.rank00000.json"):
        assert third.path(Path(named_after_another)) == Path("trace.rank00003.json")
    assert third.path(Path("trace.rank00000.sync.json.gz")) == Path("trace.sync.rank00003.json.gz")
    assert third.path(Path("trace.rank000001.json")) == Path("trace.rank000001.rank00003.json")
    assert Placement().path(Path("trace.rank00000.json")) == Path("trace.rank00000.json")
    assert third.facts == {"rank": 3, "world_size": 4}
    assert Placement().path(Path("trace.json")) == Path("trace.json")
    assert Placement().facts == {}


def test_each_rank_has_cores_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6, 8}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: taken.append(cores), raising=False)
    for rank in range(2):
        Placement(rank, rank, 2, 2).take_cores()
    assert taken == [[0, 2], [4, 6]]
    Placement(0, 0, 2).take_cores()  # how many ranks share the machine is not told
    Placement(0, 0, 6, 6).take_cores()  # not a core for each
    assert len(taken) == 2


@given(st.integers(1, 5), st.integers(0, 7))
def test_the_shares_of_all_ranks_are_the_workload(world_size: int, more: int) -> None:
    requests = world_size + more
    whole = Workload(requests=requests, prompt_len=(1, 9), new_tokens=(1, 9), rate=5.0)
    parts = [
        Workload(requests=requests, prompt_len=(1, 9), new_tokens=(1, 9), rate=5.0, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    shares = [part.make_requests(100) for part in parts]
    assert sum(part.most_tokens for part in parts) == whole.most_tokens
    served = sorted((request for share in shares for request in share), key=lambda request: request.id)
    for request, same in zip(served, whole.make_requests(100), strict=True):
        assert request.id == same.id
        assert request.arrival_ns == same.arrival_ns
        assert request.ids.tolist() == same.ids.tolist()


def test_a_rank_without_work_is_refused() -> None:
    with pytest.raises(UsageError, match="4 requests for 8 ranks: give --requests at least as many"):
        Workload(requests=4, world_size=8)


def launched_as(monkeypatch: pytest.MonkeyPatch, **told: str) -> None:
    for name, value in told.items():
        monkeypatch.setenv(name, value)


def test_a_tracer_says_which_rank_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in ("0", "1"):
        launched_as(monkeypatch, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
        for name in ("first", "second"):
            with Tracer(tmp_path / "t.json.gz") as tracer, tracer.cpu(name):
                pass
        assert tracer.path == tmp_path / f"t.rank0000{rank}.json.gz"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.rank00000.json.gz", "t.rank00001.json.gz"]
    traces = [load(path) for path in sorted(tmp_path.iterdir())]
    assert [(trace.meta.rank, trace.meta.world_size) for trace in traces] == [(0, 2), (1, 2)]
    assert [lane.rank for trace in traces for lane in trace.lanes] == [0, 1]


def test_a_tracer_told_its_rank_says_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched_as(monkeypatch, RANK="1", LOCAL_RANK="1", WORLD_SIZE="4")
    with Tracer(tmp_path / "t.json", meta={"rank": 17, "world_size": 32}) as tracer, tracer.cpu("x"):
        pass
    trace = load(tmp_path / "t.rank00001.json")  # which no other process of the launcher writes
    assert (trace.meta.rank, trace.meta.world_size) == (17, 32)
    assert trace.lanes[0].rank == 17


def test_a_tracer_of_the_only_rank_is_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched_as(monkeypatch, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    with Tracer(tmp_path / "t.json") as tracer, tracer.cpu("x"):
        pass
    assert load(tmp_path / "t.json").meta.rank is None


def test_a_tracer_in_a_place_that_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched_as(monkeypatch, RANK="four", LOCAL_RANK="0", WORLD_SIZE="4")
    tracer = Tracer(tmp_path / "t.json")  # off: nobody cares
    with pytest.warns(RuntimeWarning, match="recorded as a process alone: RANK, LOCAL_RANK and WORLD_SIZE must be"):
        tracer.start()
    with tracer.cpu("x"):
        pass
    tracer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_two_ranks_on_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = ("--batch", "2", "--prompt-len", "4:8", "--new-tokens", "8", "--device", "host", "--mode", "both")
    launched = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "cbprof", "run", *small, "-o", "trace.json"],
            cwd=tmp_path,
            env={**os.environ, **launched, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    (first, first_errors), (second, second_errors) = (process.communicate(timeout=120) for process in ranks)
    assert [process.returncode for process in ranks] == [0, 0], first_errors + second_errors
    assert "tokens: identical" in first
    assert second.startswith("rank 1: sync ")
    assert second.count("\n") == 1
    assert second_errors == ""
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"trace.{mode}.rank0000{rank}.json" for mode in ("async", "sync") for rank in range(2)]

    traces = [load(tmp_path / f"trace.sync.rank0000{rank}.json") for rank in range(2)]
    for rank, trace in enumerate(traces):
        assert (trace.meta.rank, trace.meta.world_size) == (rank, 2)
        assert {lane.rank for lane in trace.lanes} == {rank}
        assert trace.meta.tokens == 16
        assert set(trace.requests.request.tolist()) == {rank, rank + 2}
    assert abs(traces[0].meta.base_time_ns - traces[1].meta.base_time_ns) < 120 * 10**9
    side_by_side(tmp_path, names[2:])


def side_by_side(folder: Path, names: list[str]) -> None:
    from cbprof.analysis.ranks.rank import ranks_of
    from cbprof.analysis.summary import summarize

    traces = {name: load(folder / name) for name in names}
    report = compare_ranks([ExaminedFile(name, 1, ranks_of(trace, summarize(trace))) for name, trace in traces.items()])
    assert [row.rank.rank for row in report.rows] == [0, 1]
    assert report.heat.length_ns > 0
    assert report.unit == "step"
    assert report.warnings == ()
