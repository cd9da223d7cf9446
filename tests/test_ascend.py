"""Timelines of Ascend NPUs: exact numbers, who launched what, and what is no work."""

from __future__ import annotations

from pathlib import Path

import pytest
from ascend_samples import (
    ANALYSIS,
    CANN,
    COMMUNICATION,
    EPOCH_US,
    HARDWARE,
    PYTHON,
    arrow,
    one_step,
    process,
    span,
    thread,
    write,
)
from rocm_samples import launched, spans

from cbprof.analysis.summary import summarize
from cbprof.formats import load

DATA = Path(__file__).parent / "data"


def test_every_span_stands_where_it_ran(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "trace_view.json"))
    since = EPOCH_US * 1000
    found = [(kind, name, start - since, end - since, *where) for kind, name, start, end, *where in spans(trace)]
    assert found == [
        ("cpu.work", "aten::mm", 0, 50_000, "thread 1 (Thread 1)", -1),
        ("cpu.work", "AscendCL@aclnnMatmul", 20_000, 45_000, "thread 1 (Thread 1)", -1),
        ("cpu.work", "Node@launch", 30_000, 40_000, "thread 1 (Thread 1)", -1),
        ("gpu.compute", "MatMulV2", 60_000, 160_000, "stream 2", 3),
        ("cpu.work", "AscendCL@aclrtMemcpyAsync", 100_000, 110_000, "thread 1 (Thread 1)", -1),
        ("cpu.wait", "AscendCL@aclrtSynchronizeStream", 120_000, 340_000, "thread 1 (Thread 1)", -1),
        ("gpu.comm", "hcom_allReduce__929_0_1", 150_000, 300_000, "Group 0 Communication", 3),
        ("gpu.copy", "MEMCPY_ASYNC", 320_000, 330_000, "stream 2", 3),
    ]
    assert launched(trace) == [("Node@launch", ["MatMulV2"]), ("AscendCL@aclrtMemcpyAsync", ["MEMCPY_ASYNC"])]
    assert trace.meta.reliable
    assert trace.meta.warnings == ()


def test_golden_numbers() -> None:
    (device,) = summarize(load(DATA / "ascend_trace_view.json")).to_json(gaps="all")["devices"]
    since = EPOCH_US * 1000
    assert [time - since for time in device["window_ns"]] == [60_000, 330_000]
    assert (device["busy_ns"], device["idle_ns"]) == (250_000, 20_000)
    assert (device["comm_busy_ns"], device["exposed_comm_ns"], device["n_gpu_events"]) == (150_000, 140_000, 3)
    (gap,) = device["gaps"]
    assert (gap["host_late_ns"], gap["in_launch_ns"], gap["queue_ns"]) == (0, 0, 20_000)


def test_npus_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """By their labels, or else by the order of their process ids."""
    second = [
        *process(HARDWARE + 1, "Ascend Hardware"),
        thread(HARDWARE + 1, 2, "Stream 2"),
        span(HARDWARE + 1, 2, 70, 80, "Add"),
        *arrow(3, 100, 70, to=HARDWARE + 1),
    ]
    trace = load(write(tmp_path / "msprof_1.json", [*one_step(labels=""), *second]))
    assert [(name, device) for _, name, _, _, _, device in spans(trace) if device >= 0] == [
        ("MatMulV2", 0),
        ("Add", 1),
        ("hcom_allReduce__929_0_1", 0),
        ("MEMCPY_ASYNC", 0),
    ]


@pytest.mark.parametrize("name", ["EVENT_RECORD", "NOTIFY_WAIT", "Notify_Wait", "EVENT_RESET", "PLACE_HOLDER_SQE"])
def test_tasks_that_only_order_others_are_no_work(name: str, tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", [*one_step(), span(HARDWARE, 2, 400, 900, name)]))
    assert name not in trace.names or all(found != name for _, found, *_ in spans(trace))
    assert summarize(trace).devices[0].window.end_ns == (EPOCH_US + 330) * 1000


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("AscendCL@aclrtSynchronizeDevice", True),
        ("Runtime@StreamSynchronize", True),
        ("AscendCL@aclrtMemcpy", True),
        ("AscendCL@aclrtMemcpyAsync", False),
        ("Node@launch", False),
    ],
)
def test_calls_that_wait(name: str, waits: bool, tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", [*one_step(), span(CANN, 1, 400, 900, name)]))
    assert [kind for kind, found, start, *_ in spans(trace) if start == (EPOCH_US + 400) * 1000] == [
        "cpu.wait" if waits else "cpu.work"
    ]


def test_calls_of_other_threads_keep_their_row(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", [*one_step(), span(CANN, 9, 400, 900, "Node@launch")]))
    assert spans(trace)[-1][4] == "thread 9"
    alone = [event for event in one_step() if event["pid"] != PYTHON]
    assert len(launched(load(write(tmp_path / "msprof.json", alone)))) == 2


def test_analysis_and_planes_describe_other_rows(tmp_path: Path) -> None:
    only = [event for event in one_step() if event["pid"] in (HARDWARE, ANALYSIS, COMMUNICATION)]
    assert len(load(write(tmp_path / "t.json", only))) == 3
