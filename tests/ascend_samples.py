"""A small recording of an Ascend NPU, made by hand, as torch_npu writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PYTHON, CANN, HARDWARE, COMMUNICATION, ANALYSIS = range(100, 600, 100)
EPOCH_US = 1_700_000_000_000_000
"""Times count from 1970, in microseconds and as text."""


def process(pid: int, name: str, labels: str = "") -> list[dict[str, Any]]:
    told = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}]
    return [*told, {"ph": "M", "name": "process_labels", "pid": pid, "args": {"labels": labels}}] if labels else told


def thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def span(pid: int, tid: int, start: int, end: int, name: str, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": f"{EPOCH_US + start}.000",
        "dur": end - start,
        **more,
    }


def arrow(
    number: int, start: int, end: int, *, tid: int = 1, stream: int = 2, to: int = HARDWARE
) -> list[dict[str, Any]]:
    name = {"name": f"HostToDevice{number}", "cat": "HostToDevice", "id": str(number)}
    return [
        {"ph": "s", "pid": CANN, "tid": tid, "ts": f"{EPOCH_US + start}.000", **name},
        {"ph": "f", "bp": "e", "pid": to, "tid": stream, "ts": f"{EPOCH_US + end}.000", **name},
    ]


def one_step(labels: str = "NPU 3") -> list[dict[str, Any]]:
    """An operator, an all-reduce and its parts, a copy, and a wait. The NPU works from 60 to 300 and 320 to 330."""
    return [
        *process(PYTHON, "Python"),
        *process(CANN, "CANN"),
        *process(HARDWARE, "Ascend Hardware", labels),
        *process(COMMUNICATION, "Communication", labels),
        *process(ANALYSIS, "Overlap Analysis", labels),
        thread(PYTHON, 1, "Thread 1"),
        thread(HARDWARE, 2, "Stream 2"),
        thread(COMMUNICATION, 7, "Group 0 Communication"),
        thread(COMMUNICATION, 8, "Plane 0"),
        span(PYTHON, 1, 0, 50, "aten::mm", cat="cpu_op"),
        span(CANN, 1, 20, 45, "AscendCL@aclnnMatmul"),
        span(CANN, 1, 30, 40, "Node@launch"),
        span(CANN, 1, 100, 110, "AscendCL@aclrtMemcpyAsync"),
        span(CANN, 1, 120, 340, "AscendCL@aclrtSynchronizeStream"),
        span(HARDWARE, 2, 60, 160, "MatMulV2", args={"Task Type": "AI_CORE"}),
        span(HARDWARE, 2, 160, 310, "EVENT_WAIT", args={"Task Type": "EVENT_WAIT"}),
        span(HARDWARE, 2, 320, 330, "MEMCPY_ASYNC", args={"Task Type": "MEMCPY_ASYNC"}),
        span(COMMUNICATION, 7, 150, 300, "hcom_allReduce__929_0_1"),
        span(COMMUNICATION, 8, 150, 250, "Notify_Wait"),
        span(COMMUNICATION, 8, 250, 300, "Memcpy"),
        span(ANALYSIS, 1, 60, 160, "Computing"),
        span(ANALYSIS, 2, 160, 300, "Communication(Not Overlapped)"),
        span(ANALYSIS, 3, 300, 320, "Free"),
        *arrow(1, 30, 60),
        *arrow(2, 100, 320),
    ]


def write(path: Path, events: Sequence[dict[str, Any]] | None = None) -> Path:
    path.write_text(json.dumps(one_step() if events is None else events))
    return path
