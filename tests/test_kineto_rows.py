"""Rows that stand for a device by their names: XLA's streams, Proton's graphs, and what is not understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cbprof.analysis.summary import Summary, summarize
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.trace import Kind, Trace


def named(pid: Any, process: str, **threads: str) -> Iterator[dict[str, Any]]:
    """The names of a process and of its threads, whose ids begin with a letter."""
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}}
    for tid, name in threads.items():
        yield {"ph": "M", "pid": pid, "tid": int(tid[1:]), "name": "thread_name", "args": {"name": name}}


def span(pid: Any, tid: int, ts: float, dur: float, name: str, cat: str | None = None, **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}
    return event if cat is None else event | {"cat": cat}


def arrow(number: int, host: tuple[int, float], device: tuple[int, float], cat: str = "flow") -> list[dict[str, Any]]:
    """From (tid, ts) to (tid, ts), all of process 0."""
    more = {"name": "launch->kernel", "cat": cat, "pid": 0, "id": number, "bp": "e"}
    return [
        {"ph": "s", "tid": host[0], "ts": host[1], **more},
        {"ph": "f", "tid": device[0], "ts": device[1], **more},
    ]


def read(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return load(path)


def summary(folder: Path, *events: dict[str, Any]) -> Summary:
    return summarize(read(folder, *events))


def doctor(folder: Path) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["doctor", str(folder / "trace.json")])
    return shown.exit_code, " ".join(shown.stdout.replace("│", " ").split())


# XLA


STREAMS = {"t10": "Stream #13(Compute)", "t11": "Stream #14(MemcpyH2D,MemcpyD2H)", "t1": "XLA Modules", "t2": "Steps"}


def xla(pid: int = 1, name: str = "/device:GPU:0") -> list[dict[str, Any]]:
    return [
        *named(pid, name, **STREAMS),
        span(pid, 1, 0, 1000, "jit_step(1)"),
        span(pid, 2, 0, 1000, "7"),
        span(pid, 10, 100, 300, "fusion.1", correlation_id="4"),
        span(pid, 10, 500, 100, "ncclDevKernel_AllReduce"),
        span(pid, 11, 50, 10, "MemcpyH2D"),
        span(pid, 11, 620, 10, "MemcpyD2H"),
        span(pid, 11, 640, 10, "Memset"),
    ]


HOST = [*named(701, "/host:CPU", t5="python"), span(701, 5, 20, 40, "PjitFunction(step)")]


def test_streams_of_xla_are_work_and_its_ranges_are_not(tmp_path: Path) -> None:
    trace = read(tmp_path, *xla(), *HOST)
    assert [Kind(kind) for kind in trace.kind] == [
        Kind.CPU_WORK,
        Kind.GPU_H2D,
        Kind.GPU_COMPUTE,
        Kind.GPU_COMM,
        Kind.GPU_D2H,
        Kind.GPU_SET,
    ]
    assert [lane.name for lane in trace.lanes if lane.on_device] == ["stream 13", "stream 14"]
    (device,) = summarize(trace).devices
    assert (device.device, device.busy_ns, device.window.length_ns) == (0, 430_000, 600_000)
    code, text = doctor(tmp_path)
    assert (code, "0 of 5 device events are joined" in text, "not understood" in text) == (1, True, False)


def test_calls_of_xla_are_joined_where_they_say_what_they_launched(tmp_path: Path) -> None:
    call = span(701, 5, 70, 20, "cuLaunchKernel", correlation_id="4")
    rest = [event for event in xla() if event.get("ts") not in {500, 50, 620, 640}]
    trace = read(tmp_path, *rest, *HOST, call)
    assert len(set(trace.link[trace.link >= 0].tolist())) == 1
    assert (trace.link >= 0).sum() == 2
    assert summarize(trace).reliable


def test_two_processes_may_number_their_gpus_alike(tmp_path: Path) -> None:
    found = summary(tmp_path, *xla(), *xla(2, "/host:1/device:GPU:0"), *HOST)
    assert [device.busy_ns for device in found.devices] == [430_000, 430_000]


def test_a_tpu_is_not_understood(tmp_path: Path) -> None:
    rows = [*named(1, "/device:TPU:0", t1="XLA Ops"), span(1, 1, 0, 50, "fusion"), span(1, 1, 60, 50, "fusion")]
    found = summary(tmp_path, *rows, *HOST)
    assert (found.devices, found.reliable, found.health["n_not_understood"]) == ((), False, 2)
    code, text = doctor(tmp_path)
    assert code == 1
    assert '"/device:TPU:0: XLA Ops" (2 events)' in text
    assert not any(phase.name == "fusion" for phase in found.phases)


@pytest.mark.parametrize(
    ("process", "thread"),
    [("Hardware", "Stream 2"), ("NPU 3", "tasks"), ("tool", "GPU queue 1"), ("gpu-0", ""), ("tool", "Stream 5")],
)
def test_a_row_that_is_called_like_a_device_is_no_host(tmp_path: Path, process: str, thread: str) -> None:
    found = summary(tmp_path, *named(1, process, t4=thread), span(1, 4, 0, 50, "MatMul", "task"), *HOST)
    assert not found.reliable
    assert any("these rows are not understood" in warning and process in warning for warning in found.warnings)


@pytest.mark.parametrize(("process", "thread"), [("python", "gpu_worker"), ("tool", ""), ("CANN", "stream-reader")])
def test_a_row_of_the_host_is_one(tmp_path: Path, process: str, thread: str) -> None:
    """A category that is known says what an event is, on whatever row."""
    cat = "cpu_op" if thread else "task"
    trace = read(tmp_path, *named(1, process, t4=thread), span(1, 4, 0, 50, "MatMul", cat))
    assert [Kind(kind) for kind in trace.kind] == [Kind.CPU_WORK]
    assert trace.meta.health["n_not_understood"] == 0


def test_many_rows_are_counted(tmp_path: Path) -> None:
    rows = [
        event
        for number in range(8)
        for event in (*named(f"NPU {number}", f"NPU {number}"), span(f"NPU {number}", 0, 0, 5, "task"))
    ]
    found = summary(tmp_path, *rows)
    (told,) = (warning for warning in found.warnings if "not understood" in warning)
    assert told.count("(1 event)") == 5
    assert told.endswith("and 3 more")


# Proton


PROTON = list(
    named(0, "Trace", t0="CPU Thread 0", t100007="Graph: Stream 7", t200007="GPU Stream 7", t200008="GPU Stream 8")
)


def proton(*, arrows: bool = True) -> Iterator[dict[str, Any]]:
    """Six replays of two kernels under two scopes of the graph, and a plain kernel of another stream after each."""
    yield from PROTON
    for turn in range(6):
        at = 1000 * turn
        yield span(0, 0, at, 200, "schedule", "scope")
        yield span(0, 0, at + 200, 30, "replay", "scope")
        yield span(0, 0, at + 210, 15, "inner", "scope")
        yield span(0, 0, at + 240, 20, "plain", "scope")
        yield span(0, 100007, at + 250, 300, "layer 0", "scope")
        yield span(0, 100007, at + 540, 220, "layer 1", "metric")
        yield span(0, 200007, at + 250, 290, "gemm", "kernel", call_stack=["ROOT", "gemm"])
        yield span(0, 200007, at + 550, 200, "attention", "kernel")
        yield span(0, 200008, at + 800, 50, "sample", "kernel")
        if arrows:
            yield from arrow(2 * turn, (0, at + 200), (200007, at + 250))
            yield from arrow(2 * turn + 1, (0, at + 240), (200008, at + 800))


def test_arrows_of_proton_join_launches_and_the_kernels_of_a_replay(tmp_path: Path) -> None:
    found = summary(tmp_path, *proton())
    (device,) = found.devices
    assert (found.reliable, found.health["n_gpu_without_launch"], device.n_streams) == (True, 0, 2)
    assert {phase.name for phase in found.phases} == {"schedule", "replay", "inner", "plain"}
    gap = next(each for each in device.to_json("all")["gaps"] if each["start_ns"] == 850_000)
    assert (gap["host_late_ns"], gap["in_launch_ns"], gap["queue_ns"]) == (350_000, 30_000, 20_000)
    assert gap["blame_ns"] == {"schedule": 200_000, "(untraced)": 150_000}


def test_without_arrows_nothing_is_said_of_launches(tmp_path: Path) -> None:
    found = summary(tmp_path, *proton(arrows=False))
    (device,) = found.devices
    assert (found.reliable, device.busy_ns) == (False, 6 * 540_000)
    assert device.to_json()["states_ns"]["overlap"] is None
    assert "0 of 18 device events are joined" in " ".join(found.warnings)


def test_a_kernel_outside_the_graph_is_not_of_the_replay(tmp_path: Path) -> None:
    later = span(0, 200007, 7000, 50, "stray", "kernel")
    assert summary(tmp_path, *proton(), later).health["n_gpu_without_launch"] == 1


def test_where_events_carry_ids_arrows_are_not_read(tmp_path: Path) -> None:
    events = [
        span(0, 1, 0, 10, "cudaLaunchKernel", "cuda_runtime", correlation=1),
        span(0, 1, 20, 10, "other", "cpu_op"),
        span(9, 7, 50, 5, "k", "kernel", correlation=1),
    ]
    ends = [{**end, "pid": 9 if end["ph"] == "f" else 0} for end in arrow(1, (1, 20), (7, 50))]
    trace = read(tmp_path, *events, *ends)
    (launch,) = [row for row in range(3) if trace.link[row] >= 0 and not trace.on_device[row]]
    assert trace.name_of(launch) == "cudaLaunchKernel"


def test_the_row_at_the_end_of_a_launch_is_no_host(tmp_path: Path) -> None:
    events = [*named(0, "tool"), span(0, 1, 0, 10, "enqueue", "op"), span(0, 2, 20, 5, "k", "task")]
    found = summary(tmp_path, *events, *arrow(1, (1, 0), (2, 20)))
    assert (found.reliable, found.health["n_not_understood"]) == (False, 1)
