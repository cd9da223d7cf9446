"""Traces as torch.profiler writes them, a few events at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOST = 4100


def kernel(ts: Any, dur: Any, name: str = "gemm", *, stream: Any = 7, device: Any = 0, **args: Any) -> dict[str, Any]:
    more = {"device": device, "stream": stream, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": more}


def copy(ts: Any, dur: Any, way: str, **args: Any) -> dict[str, Any]:
    return kernel(ts, dur, f"Memcpy {way}", **args) | {"cat": "gpu_memcpy"}


def host(ts: Any, dur: Any, name: str, cat: str = "cpu_op", *, tid: Any = HOST, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(ts: Any, dur: Any, name: str, correlation: Any, **more: Any) -> dict[str, Any]:
    return host(ts, dur, name, "cuda_runtime", correlation=correlation, **more)


def annotation(ts: Any, dur: Any, name: str, **more: Any) -> dict[str, Any]:
    return host(ts, dur, name, "user_annotation", **more)


def thread_name(tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": HOST, "tid": tid, "ts": 0, "args": {"name": name}}


def text_of(*events: Any, **fields: Any) -> str:
    """The file, one event a line."""
    lines = ",\n".join(json.dumps(event) for event in events)
    head = json.dumps({"schemaVersion": 1, **fields})[:-1]
    return f'{head}, "traceEvents": [\n{lines}\n], "traceName": "sample.pt.trace.json"}}\n'


def write(folder: Path, *events: Any, name: str = "sample.json", **fields: Any) -> Path:
    path = folder / name
    path.write_text(text_of(*events, **fields), encoding="utf-8")
    return path


DECODE = (
    thread_name(HOST, "python"),
    call(900, 80, "cudaGraphLaunch", 1),
    kernel(1000, 4000, "decode", correlation=1),
    call(1100, 3910, "cudaMemcpyAsync", 5),
    copy(5005, 2, "DtoH (Device -> Pageable)", correlation=5),
    call(5011, 2, "cudaStreamSynchronize", 6),
    annotation(5013, 3787.25, "schedule"),
    call(9000, 100, "cudaGraphLaunch", 9),
    kernel(9020.001, 4000, "decode", correlation=9, shapes=[{"name": "q", "dims": [1, 2]}, {"name": "k"}]),
)
"""Two steps of a decode loop whose host blocks on a copy, schedules, and only then launches again."""
