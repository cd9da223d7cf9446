"""Small exports of Nsight Systems, made by hand, and what they should say."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cbprof.errors import DataError
from cbprof.formats import load

Row = Sequence[object]

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"

# Columns in the order in which rows are written below; real tables have many more.
COLUMNS: Mapping[str, str] = {
    KERNEL: "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName",
    MEMCPY: "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind",
    MEMSET: "start, end, deviceId, streamId, correlationId, globalPid, bytes",
    GRAPH: "start, end, deviceId, streamId, correlationId, globalPid, graphId, graphExecId",
    RUNTIME: "start, end, globalTid, correlationId, nameId",
    NVTX: "start, end, eventType, text, textId, globalTid, endGlobalTid",
    "StringIds": "id, value",
    "ThreadNames": "nameId, priority, globalTid",
    "TARGET_INFO_GPU": "id, name",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs, utcTime, localTime",
    "MPI_RANKS": "globalPid, rank",
    "META_DATA_EXPORT": "name, value",
    "DIAGNOSTIC_EVENT": "timestamp, severity, text",
    "PROFILER_OVERHEAD": "start, end, globalTid, nameId",
}
STRINGS = ["", "gemm", "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "ncclDevKernel_AllReduce", "decode"]
GEMM, LAUNCH, SYNC, ALL_REDUCE, DECODE = range(1, 6)


def pid(number: int) -> int:
    """A globalPid as in a file: machine 1, VM 0."""
    return 1 << 48 | number << 24


def tid(process: int, thread: int) -> int:
    """A globalTid as in a file."""
    return pid(process) | thread


def write_export(path: Path, tables: Mapping[str, Iterable[Row]], *, columns: Mapping[str, str] | None = None) -> Path:
    """An export with these tables, beside the strings and the version. ``columns`` replaces those of some tables."""
    columns = {**COLUMNS, **(columns or {})}
    tables = {
        "StringIds": list(enumerate(STRINGS)),
        "META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "3.13.2")],
        **tables,
    }
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, rows in tables.items():
            names = [name.strip() for name in columns[table].split(",")]
            typed = ", ".join(f'"{name}" {"TEXT" if name in TEXTS else "INTEGER"}' for name in names)
            connection.execute(f'CREATE TABLE "{table}" ({typed})')
            connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(names))})', rows)
    return path


TEXTS = ("value", "text", "name", "utcTime", "localTime")


def one_step() -> dict[str, list[Row]]:
    """A launch and its kernel, a copy and a wait for it, inside a range: the tables that every test starts from."""
    process, thread = pid(7), tid(7, 9)
    return {
        KERNEL: [(1000, 3000, 0, 13, 1, process, GEMM, GEMM)],
        MEMCPY: [(3500, 3600, 0, 13, 2, process, 64, 2)],
        RUNTIME: [(900, 950, thread, 1, LAUNCH), (3100, 3700, thread, 2, SYNC)],
        NVTX: [(800, 4000, 59, None, DECODE, thread, None)],
    }


def refusal(path: Path) -> str:
    """Why a file is not read: one line that begins with its name."""
    with pytest.raises(DataError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message
