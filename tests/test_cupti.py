"""The profiled window: which steps it covers, and that everything else passes through. The profiler is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from simulation import serve

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.request import Request
from cbprof.formats import load
from cbprof.record.clocks.base import NoClock
from cbprof.record.cupti import CuptiWindow, say_rank
from cbprof.record.span_tracer import SpanTracer
from cbprof.trace import TraceBuilder

torch = pytest.importorskip("torch")


class FakeProfiler:
    log: list[str]

    def __init__(self, **_: object) -> None:
        FakeProfiler.log = []

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")

    def add_metadata_json(self, key: str, value: str) -> None:
        self.log.append(f"{key} {value}")

    def export_chrome_trace(self, path: str) -> None:
        self.log.append(path)


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeProfiler]]:
    import torch.profiler

    FakeProfiler.log = []
    monkeypatch.setattr(torch.profiler, "profile", FakeProfiler)
    return FakeProfiler


def run(mode: Mode, first: int, last: int) -> tuple[CuptiWindow, TraceBuilder]:
    sink, ticks = TraceBuilder(), count()
    tracer = SpanTracer(sink, NoClock(), now=lambda: next(ticks))
    window = CuptiWindow(tracer, first, last, now=lambda: next(ticks))
    requests = [Request(index, [1, 2], 6) for index in range(2)]
    serve(EngineConfig(max_batch=2), requests, mode, seed=3, vocab_size=97, hooks=window)
    window.stop()
    tracer.close()
    return window, sink


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_window_covers_its_steps_and_no_other(mode: Mode, profiler: type[FakeProfiler]) -> None:
    window, sink = run(mode, 2, 4)
    assert profiler.log == ["start", "stop"]
    assert window.started_ns is not None
    assert window.stopped_ns is not None
    trace = sink.build()
    schedule = {int(trace.step[i]): int(trace.start_ns[i]) for i in range(len(trace)) if trace.name_of(i) == "schedule"}
    assert schedule[1] < window.started_ns < schedule[2] < schedule[3] < window.stopped_ns < schedule[4]
    assert window.produced == 2 * 2


def test_a_window_that_is_never_reached_profiles_nothing(profiler: type[FakeProfiler]) -> None:
    window, _ = run("sync", 100, 110)
    assert window.started_ns is None
    assert profiler.log == []


def test_a_run_that_ends_inside_the_window_stops_the_profiler(profiler: type[FakeProfiler]) -> None:
    window, _ = run("async", 4, 100)
    assert profiler.log == ["start", "stop"]
    assert window.stopped_ns is not None


def test_the_file_of_a_rank_says_which_rank_it_is(
    profiler: type[FakeProfiler], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As launchers say it in the environment; a process alone is no rank."""
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    run("sync", 2, 4)
    assert profiler.log == ["start", 'distributedInfo {"rank": 1, "world_size": 2}', "stop"]


def test_torch_profiler_writes_the_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        say_rank(profile)
        torch.ones(2).sum()
    path = tmp_path / "rank3.cupti.json.gz"
    profile.export_chrome_trace(str(path))
    meta = load(path).meta
    assert (meta.rank, meta.world_size) == (3, 4)
