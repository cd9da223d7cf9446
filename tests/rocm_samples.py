"""Small recordings of rocprofiler-sdk, made by hand, in each of the forms that its tools write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cbprof.trace import NONE, Kind, Trace

Generation = Literal["rows", "tracks"]
"""Where a rocpd database has the times and the place of a record: in its row, or in other tables that the row names."""

CPU, FIRST_GPU, SECOND_GPU = 1, 2, 3
"""Agents, by their ids."""


class Call(NamedTuple):
    name: str
    start: int
    end: int
    stack: int
    category: str = "HIP_RUNTIME_API_EXT"
    parent: int = 0
    message: str = ""


class Kernel(NamedTuple):
    name: str
    start: int
    end: int
    stack: int
    parent: int = 0
    agent: int = FIRST_GPU
    stream: int = 1


class Copy(NamedTuple):
    name: str
    start: int
    end: int
    stack: int
    source: int = CPU
    target: int = FIRST_GPU
    stream: int = 1


class Process(NamedTuple):
    """One recording. ``first_gpu``: the number on the machine of the first GPU that the process sees."""

    calls: Sequence[Call]
    kernels: Sequence[Kernel]
    copies: Sequence[Copy]
    pid: int = 41
    tid: int = 42
    first_gpu: int = 1


RANGE = "MARKER_CORE_RANGE_API"

ONE_STEP = Process(
    calls=[
        Call("roctxThreadRangeA", 900, 3400, 1, RANGE, message="decode"),
        Call("roctxMarkA", 950, 953, 2, "MARKER_CORE_API", message="here"),
        Call("hipMemcpyAsync", 1000, 1100, 3),
        Call("hipLaunchKernel", 1200, 1300, 4),
        Call("hipLaunchKernel", 1300, 1350, 5),
        Call("hipStreamSynchronize", 1400, 3100, 6),
        Call("hsa_signal_wait_scacquire", 1450, 3050, 7, "HSA_CORE_API", parent=6),
        Call("hipGraphLaunch", 3200, 3300, 8),
    ],
    kernels=[
        Kernel("gemm", 1300, 2000, 4),
        Kernel("ncclDevKernel_AllReduce", 1900, 3000, 5, stream=2),
        Kernel("gemm", 3400, 3600, 8),
        Kernel("gemm", 3650, 3700, 99, parent=8),  # of a call below hipGraphLaunch that was not recorded
    ],
    copies=[
        Copy("MEMORY_COPY_HOST_TO_DEVICE", 1150, 1250, 3),
        Copy("MEMORY_COPY_HOST_TO_HOST", 1160, 1170, 3, target=CPU),
    ],
)

# Of ONE_STEP, counted by hand: (category, name, start, end, lane, device).
SPANS = [
    ("cpu.annotation", "decode", 900, 3400, "thread 42 (python)", -1),
    ("cpu.work", "hipMemcpyAsync", 1000, 1100, "thread 42 (python)", -1),
    ("gpu.h2d", "MEMORY_COPY_HOST_TO_DEVICE", 1150, 1250, "stream 1", 0),
    ("cpu.work", "hipLaunchKernel", 1200, 1300, "thread 42 (python)", -1),
    ("gpu.compute", "gemm", 1300, 2000, "stream 1", 0),
    ("cpu.work", "hipLaunchKernel", 1300, 1350, "thread 42 (python)", -1),
    ("cpu.wait", "hipStreamSynchronize", 1400, 3100, "thread 42 (python)", -1),
    ("cpu.wait", "hsa_signal_wait_scacquire", 1450, 3050, "thread 42 (python)", -1),
    ("gpu.comm", "ncclDevKernel_AllReduce", 1900, 3000, "stream 2", 0),
    ("cpu.work", "hipGraphLaunch", 3200, 3300, "thread 42 (python)", -1),
    ("gpu.compute", "gemm", 3400, 3600, "stream 1", 0),
    ("gpu.compute", "gemm", 3650, 3700, "stream 1", 0),
]
LAUNCHED = [
    ("hipMemcpyAsync", ["MEMORY_COPY_HOST_TO_DEVICE"]),
    ("hipLaunchKernel", ["gemm"]),
    ("hipLaunchKernel", ["ncclDevKernel_AllReduce"]),
    ("hipGraphLaunch", ["gemm", "gemm"]),
]


def spans(trace: Trace) -> list[tuple[str, str, int, int, str, int]]:
    lanes = [trace.lanes[lane] for lane in trace.lane_id.tolist()]
    kinds = [Kind(kind).category for kind in trace.kind.tolist()]
    times = zip(trace.start_ns.tolist(), trace.end_ns.tolist(), strict=True)
    return [
        (kind, trace.name_of(row), start, end, lane.name, lane.device)
        for row, (kind, (start, end), lane) in enumerate(zip(kinds, times, lanes, strict=True))
    ]


def launched(trace: Trace) -> list[tuple[str, list[str]]]:
    """Each call that launched something, and what."""
    on_device = trace.kind >= Kind.GPU_COMPUTE
    found = []
    for row in range(len(trace)):
        if not on_device[row] and trace.link[row] != NONE:
            of_it = [
                trace.name_of(each)
                for each in range(len(trace))
                if on_device[each] and trace.link[each] == trace.link[row]
            ]
            found += [(trace.name_of(row), of_it)] if of_it else []
    return found


def write_rocpd(path: Path, *processes: Process, generation: Generation = "rows") -> Path:
    """A database of these recordings, with the tables and the columns that matter of one generation's schema."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 1024")
        for number, process in enumerate(processes or (ONE_STEP,)):
            _Recording(connection, f"_0000{number:04x}", process, generation).write()
    return path


class _Recording:
    def __init__(self, connection: sqlite3.Connection, uuid: str, process: Process, generation: Generation) -> None:
        self._connection = connection
        self._uuid = uuid
        self._process = process
        self._tracks = generation == "tracks"
        self._strings: dict[str, int] = {}
        self._symbols: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("event", "region", "kernel_dispatch", "memory_copy")
        }
        if self._tracks:
            self._rows |= {"track": [], "timestamp": [], "info_category": []}

    def write(self) -> None:
        process = self._process
        for call in process.calls:
            event = self._event(call.category, call.stack, call.parent, call.message)
            self._add("region", call.start, call.end, {"tid": 1}, name_id=self._string(call.name), event_id=event)
        for kernel in process.kernels:
            event = self._event("KERNEL_DISPATCH", kernel.stack, kernel.parent)
            place = {"tid": 1, "agent_id": kernel.agent, "queue_id": 7, "stream_id": kernel.stream}
            symbol = self._symbols.setdefault(kernel.name, len(self._symbols) + 1)
            self._add("kernel_dispatch", kernel.start, kernel.end, place, kernel_id=symbol, event_id=event)
        for copy in process.copies:
            event = self._event("MEMORY_COPY", copy.stack, 0)
            place = {"tid": 1, "stream_id": copy.stream}
            agents = {"src_agent_id": copy.source, "dst_agent_id": copy.target}
            self._add(
                "memory_copy", copy.start, copy.end, place, name_id=self._string(copy.name), event_id=event, **agents
            )
        gpus = [
            {"id": agent, "nid": 1, "type": "GPU", "absolute_index": process.first_gpu + agent - FIRST_GPU,
             "type_index": agent - FIRST_GPU, "name": "gfx942", "product_name": "AMD Instinct MI300X"}
            for agent in (FIRST_GPU, SECOND_GPU)
        ]  # fmt: skip
        cpu = {"id": CPU, "nid": 1, "type": "CPU", "absolute_index": 0, "type_index": 0, "name": "EPYC"}
        symbols = [
            {"id": number, "display_name": name, "kernel_name": f"_Z{name}"} for name, number in self._symbols.items()
        ]
        self._rows |= {
            "metadata": [{"id": 1, "tag": "schema_version", "value": "4" if self._tracks else "3"}],
            "info_node": [{"id": 1, "hash": 1234, "hostname": "node"}],
            "info_process": [{"id": 1, "nid": 1, "pid": process.pid}],
            "info_thread": [{"id": 1, "nid": 1, "pid": 1, "tid": process.tid, "name": "python"}],
            "info_agent": [cpu | {"product_name": None}, *gpus],
            "info_kernel_symbol": symbols,
            "string": [{"id": number, "string": text} for text, number in self._strings.items()],
        }
        for table, rows in self._rows.items():
            self._create(f"rocpd_{table}", rows)

    def _create(self, table: str, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0]) if rows else ["id"]
        names = ", ".join(f'"{column}"' for column in columns)
        self._connection.execute(f'CREATE TABLE "{table}{self._uuid}" ({names})')
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(
            f'INSERT INTO "{table}{self._uuid}" VALUES ({marks})', [tuple(row.values()) for row in rows]
        )
        self._connection.execute(f'CREATE VIEW IF NOT EXISTS "{table}" AS SELECT * FROM "{table}{self._uuid}"')

    def _event(self, category: str, stack: int, parent: int, message: str = "") -> int:
        events = self._rows["event"]
        category_id = self._category(category) if self._tracks else self._string(category)
        extdata = json.dumps({"message": message} if message else {})
        events.append(
            {"id": len(events) + 1, "category_id": category_id, "stack_id": stack, "parent_stack_id": parent,
             "correlation_id": 0, "extdata": extdata}
        )  # fmt: skip
        return len(events)

    def _add(self, table: str, start: int, end: int, place: dict[str, int], **columns: int) -> None:
        place = {"nid": 1, "pid": 1, **place}
        row: dict[str, Any] = {"id": len(self._rows[table]) + 1, **columns}
        if self._tracks:
            row |= {"track_id": self._track(place), "start_id": self._time(start), "end_id": self._time(end)}
        else:
            row |= place | {"start": start, "end": end}
        self._rows[table].append(row)

    def _track(self, place: dict[str, int]) -> int:
        tracks = self._rows["track"]
        whole = {column: place.get(column) for column in ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")}
        for track in tracks:
            if {column: track[column] for column in whole} == whole:
                return int(track["id"])
        tracks.append({"id": len(tracks) + 1, **whole})
        return len(tracks)

    def _time(self, value: int) -> int:
        times = self._rows["timestamp"]
        times.append({"id": len(times) + 1, "value": value})
        return len(times)

    def _category(self, name: str) -> int:
        categories = self._rows["info_category"]
        for each in categories:
            if each["name"] == name:
                return int(each["id"])
        categories.append({"id": len(categories) + 1, "name": name})
        return len(categories)

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)


def rocprofv3(*processes: Process) -> dict[str, Any]:
    """The same recordings as a document of ``rocprofv3 --output-format json``."""
    return {"rocprofiler-sdk-tool": [_document(process) for process in processes or (ONE_STEP,)]}


def write_rocprofv3(path: Path, *processes: Process) -> Path:
    path.write_text(json.dumps(rocprofv3(*processes)))
    return path


_HANDLE = (1 << 64) - 1000
"""Handles take all 64 bits; those of two processes may be the same."""


def _document(process: Process) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [{"kind": "NONE", "operations": []}]
    tables: dict[str, list[dict[str, Any]]] = {"hip_api": [], "hsa_api": [], "marker_api": []}

    def recorded(category: str, operation: str, start: int, end: int, stack: int) -> dict[str, Any]:
        kind = next((number for number, each in enumerate(kinds) if each["kind"] == category), len(kinds))
        if kind == len(kinds):
            kinds.append({"kind": category, "operations": ["none"]})
        operations = kinds[kind]["operations"]
        if operation not in operations:
            operations.append(operation)
        return {
            "size": 64, "kind": kind, "operation": operations.index(operation), "thread_id": process.tid,
            "correlation_id": {"internal": stack, "external": 0}, "start_timestamp": start, "end_timestamp": end,
        }  # fmt: skip

    for call in process.calls:
        table = "marker_api" if "MARKER" in call.category else "hsa_api" if "HSA" in call.category else "hip_api"
        tables[table].append(recorded(call.category, call.name, call.start, call.end, call.stack))
    names = sorted({kernel.name for kernel in process.kernels})
    kernels = [
        recorded("KERNEL_DISPATCH", "COMPLETE", kernel.start, kernel.end, kernel.stack)
        | {
            "dispatch_info": {
                "agent_id": {"handle": _HANDLE + kernel.agent},
                "queue_id": {"handle": _HANDLE},
                "kernel_id": names.index(kernel.name) + 1,
            },
            "stream_id": {"handle": kernel.stream},
        }
        for kernel in process.kernels
    ]
    copies = [
        recorded("MEMORY_COPY", copy.name, copy.start, copy.end, copy.stack)
        | {
            "src_agent_id": {"handle": _HANDLE + copy.source},
            "dst_agent_id": {"handle": _HANDLE + copy.target},
            "stream_id": {"handle": copy.stream},
        }
        for copy in process.copies
    ]
    gpus = [
        {"id": {"handle": _HANDLE + agent}, "type": 2, "node_id": process.first_gpu + agent - FIRST_GPU,
         "logical_node_type_id": agent - FIRST_GPU, "name": "gfx942", "product_name": "AMD Instinct MI300X"}
        for agent in (FIRST_GPU, SECOND_GPU)
    ]  # fmt: skip
    cpu = {"id": {"handle": _HANDLE + CPU}, "type": 1, "node_id": 0, "logical_node_type_id": 0, "name": "EPYC"}
    messages = [{"key": call.stack, "value": call.message} for call in process.calls if call.message]
    return {
        "metadata": {"pid": process.pid},
        "agents": [cpu, *gpus],
        "strings": {"buffer_records": kinds, "marker_api": messages},
        "kernel_symbols": [
            {"kernel_id": number, "kernel_name": f"_Z{name}", "formatted_kernel_name": name}
            for number, name in enumerate(names, start=1)
        ],
        "callback_records": {},
        "buffer_records": {"kernel_dispatch": kernels, "memory_copy": copies, **tables},
    }
