"""Garbage collections are recorded where they strike, and named as the cause of the idle time that they make."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import cbprof
from cbprof.formats import load
from cbprof.record import garbage, recorder
from cbprof.record.garbage import GARBAGE_COLLECTION
from cbprof.trace import Kind, Trace, TraceBuilder

pytestmark = pytest.mark.usefixtures("collections_are_seen")


@pytest.fixture
def every_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LEAST_NS", 0)


def collections_in(trace: Trace) -> list[int]:
    return np.flatnonzero(np.isin(trace.name_id, trace.ids_of(GARBAGE_COLLECTION))).tolist()


def test_a_collection_is_the_cause_of_the_wait_that_it_makes(tmp_path: Path, every_one: None) -> None:
    heap = [[number] for number in range(100_000)]
    seen: list[int] = []

    def count(phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop":
            seen.append(info["generation"])

    with cbprof.Tracer(tmp_path / "t.json", device="host") as tracer:
        gc.callbacks.append(count)
        for number in range(20):
            with tracer.step(number), tracer.cpu("schedule"):
                if number % 10 == 5:
                    gc.collect()
            with tracer.step(number), tracer.gpu("forward"):
                sum(range(1000))
        gc.callbacks.remove(count)
    trace = load(tmp_path / "t.json")
    rows = collections_in(trace)
    assert [trace.extra[row]["generation"] for row in rows] == seen
    assert seen.count(2) >= 2
    assert set(trace.kind[rows].tolist()) == {Kind.CPU_WORK}
    schedule = np.flatnonzero(np.isin(trace.name_id, trace.ids_of("schedule")))
    full = [row for row in rows if trace.extra[row]["generation"] == 2]
    for row in full[:2]:
        inside = (trace.start_ns[schedule] <= trace.start_ns[row]) & (trace.end_ns[row] <= trace.end_ns[schedule])
        assert (inside & (trace.lane_id[schedule] == trace.lane_id[row])).sum() == 1
    view = cbprof.load(tmp_path / "t.json").summary()
    causes = {part.in_words: part.ns for part in view.full.devices[0].causes.totals}
    assert max(causes, key=causes.__getitem__) == GARBAGE_COLLECTION
    assert causes[GARBAGE_COLLECTION] == pytest.approx(trace.dur_ns[rows].sum(), rel=0.05)
    del heap


def test_short_collections_stay_in_their_phase_and_none_is_noted_before_or_after(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    tracer = cbprof.Tracer(tmp_path / "t.json", device="none").start()
    (callback,) = (each for each in gc.callbacks if each not in before)
    callback("stop", {"generation": 0, "collected": 0})  # of one that began before the recording
    with tracer.cpu("schedule"):
        pass
    tracer.close()
    assert gc.callbacks == before
    assert not collections_in(load(tmp_path / "t.json"))


def test_a_collection_waits_for_nobody(every_one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may strike the drain's own thread, with its lock held and the queue full."""
    monkeypatch.setattr(recorder, "BACKLOG", 4)
    recording = recorder.Recorder(TraceBuilder())
    recording._collections.begin()
    gc.collect()  # before the first phase there is nobody to stop
    assert not recording._queue
    recording.lanes.current()
    with recording._draining, recording.lanes._lock:
        for _ in range(8):
            gc.collect()
        elsewhere = threading.Thread(target=gc.collect)
        elsewhere.start()
        elsewhere.join()
    assert len(recording._queue) >= 9
    recording.close()
