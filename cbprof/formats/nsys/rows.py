"""The rows of an Nsight Systems export that become spans: what ran on a device, what the host called, its ranges.

Names of tables and columns are those of the `SQLite schema reference
<https://docs.nvidia.com/nsight-systems/AnalysisGuide/index.html>`_. Times are nanoseconds as in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from cbprof.formats.columns import Index
from cbprof.formats.cuda_names import is_collective, is_wait, without_version
from cbprof.formats.records.database import Database
from cbprof.formats.records.identity import PROCESS_SHIFT
from cbprof.formats.records.rows import ABSENT, Findings, Rows, absent, is_device, is_span
from cbprof.trace import GRAPH_REPLAY, Int8, Int32, Int64, Kind

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
RANGES = "NVTX_EVENTS"
OVERHEAD = "PROFILER_OVERHEAD"

# ENUM_CUDA_MEMCPY_OPER; all other kinds stay on one side, or go from device to device.
_TO_DEVICE = (1, 3, 11)  # from the host: to a device, to an array, and what unified memory migrates
_TO_HOST = (2, 4, 12)
_COPY_NAMES = {
    1: "Memcpy HtoD",
    2: "Memcpy DtoH",
    3: "Memcpy HtoA",
    4: "Memcpy AtoH",
    5: "Memcpy AtoA",
    6: "Memcpy AtoD",
    7: "Memcpy DtoA",
    8: "Memcpy DtoD",
    9: "Memcpy HtoH",
    10: "Memcpy PtoP",
    11: "Memcpy HtoD (unified memory)",
    12: "Memcpy DtoH (unified memory)",
    13: "Memcpy DtoD (unified memory)",
}

# eventType of NVTX_EVENTS: ranges that were pushed and popped, and those that were started and ended. Others are
# marks, categories and domains, or ranges of a text file that no program emitted.
_PUSH_POP, _START_END = 59, 60


def device_rows(database: Database, names: Index[str], found: Findings) -> Iterator[Rows]:
    """Everything that ran on a device: kernels, copies, sets, and replays of whole graphs."""
    readers = {
        "KERNEL": _kernels,
        "MEMCPY": _copies,
        "MEMSET": _sets,
        "GRAPH_TRACE": _graphs,
    }
    for kind, label in readers.items():
        table = ACTIVITY + kind
        columns = ("start", "end", "deviceId", "contextId", "streamId", "globalPid", "correlationId")
        if _usable(database, table, columns[:2], found):
            fresh = database.integers(table, (*columns, *_MORE_COLUMNS[kind]))
            kind_of, name_of = label(database, fresh, names)
            if "deviceId" not in database.tables[table]:
                found.warnings.append(f"{table} has no deviceId: all of it counts as device 0")
                fresh["deviceId"] = np.zeros_like(fresh["start"])
            start, end = fresh["start"], fresh["end"]
            # Both are 0 where the time could not be collected.
            kept = is_span(start, end) & ((start != 0) | (end != 0)) & is_device(fresh["deviceId"])
            found.count("n_dropped", int(len(kept) - kept.sum()))
            stream = np.where(fresh["streamId"] == ABSENT, 0, fresh["streamId"])
            yield Rows(
                start=start[kept],
                end=end[kept],
                kind=kind_of[kept],
                name_id=name_of[kept],
                process=_process(fresh["globalPid"])[kept],
                correlation=fresh["correlationId"][kept],
                device=fresh["deviceId"][kept],
                context=fresh["contextId"][kept],
                stream=stream[kept],
                thread=absent(int(kept.sum())),
            )


_MORE_COLUMNS = {
    "KERNEL": ("demangledName", "shortName", "mangledName"),
    "MEMCPY": ("copyKind",),
    "MEMSET": (),
    "GRAPH_TRACE": ("graphId", "graphExecId"),
}
_Columns = dict[str, Int64]
_Labels = tuple[Int8, Int32]


def _kernels(database: Database, columns: _Columns, names: Index[str]) -> _Labels:
    name = columns["demangledName"]
    for other in ("shortName", "mangledName"):
        name = np.where(name == ABSENT, columns[other], name)
    name_id, kind = _named(database, name, names, "kernel", _kernel_kind)
    return kind, name_id


def _kernel_kind(name: str) -> Kind:
    return Kind.GPU_COMM if is_collective(name) else Kind.GPU_COMPUTE


def _copies(_: Database, columns: _Columns, names: Index[str]) -> _Labels:
    kinds, which = np.unique(columns["copyKind"], return_inverse=True)
    name_id = names.codes(_COPY_NAMES.get(kind, "Memcpy") for kind in kinds.tolist())
    direction = [
        Kind.GPU_H2D if kind in _TO_DEVICE else Kind.GPU_D2H if kind in _TO_HOST else Kind.GPU_COPY
        for kind in kinds.tolist()
    ]
    return np.array(direction, dtype=np.int8)[which], name_id[which]


def _sets(_: Database, columns: _Columns, names: Index[str]) -> _Labels:
    size = len(columns["start"])
    return np.full(size, Kind.GPU_SET, dtype=np.int8), np.full(size, names.code("Memset"), dtype=np.int32)


def _graphs(_: Database, columns: _Columns, names: Index[str]) -> _Labels:
    """Replays that were recorded as one row each. The file lacks their kernels, so the name has the graph's number."""
    graph = np.where(columns["graphId"] == ABSENT, columns["graphExecId"], columns["graphId"])
    graphs, which = np.unique(graph, return_inverse=True)
    name_id = names.codes(GRAPH_REPLAY if each == ABSENT else f"{GRAPH_REPLAY} {each}" for each in graphs.tolist())
    return np.full(len(graph), Kind.GPU_COMPUTE, dtype=np.int8), name_id[which]


def host_rows(database: Database, names: Index[str], found: Findings) -> Iterator[Rows]:
    """What host threads did: calls of the CUDA runtime and driver, and where the profiler itself took time."""
    for table in (f"{ACTIVITY}RUNTIME", f"{ACTIVITY}DRIVER", OVERHEAD):
        if _usable(database, table, ("start", "end"), found):
            fresh = database.integers(table, ("start", "end", "globalTid", "correlationId", "nameId"))
            if table == OVERHEAD:
                name_id, kind = _named(database, fresh["nameId"], names, "profiler overhead", Kind.CPU_OVERHEAD)
                fresh["correlationId"] = np.full_like(fresh["start"], ABSENT)
            else:
                name_id, kind = _named(database, fresh["nameId"], names, "CUDA call", _call_kind, without_version)
            kept = is_span(fresh["start"], fresh["end"])
            found.count("n_dropped", int(len(kept) - kept.sum()))
            yield _on_host(fresh, kind, name_id, kept)


def _call_kind(name: str) -> Kind:
    return Kind.CPU_WAIT if is_wait(name) else Kind.CPU_WORK


def range_rows(database: Database, names: Index[str], found: Findings) -> Iterator[Rows]:
    """NVTX ranges that were closed, on the thread that opened them. Those left open are counted and left out."""
    if not _usable(database, RANGES, ("start", "end"), found):
        return
    fresh = database.integers(RANGES, ("start", "end", "eventType", "globalTid", "textId"))
    name_id, kind = _named(database, fresh["textId"], names, "(unnamed)", Kind.CPU_ANNOTATION)
    if "text" in database.tables[RANGES]:
        own = database.texts(RANGES, "text", names)
        name_id = np.where(own >= 0, own, name_id).astype(np.int32)
    if "eventType" in database.tables[RANGES]:
        is_range = np.isin(fresh["eventType"], (_PUSH_POP, _START_END))
    else:
        is_range = fresh["end"] != ABSENT
    closed = is_range & is_span(fresh["start"], fresh["end"])
    left_open = is_range & (fresh["end"] == ABSENT)
    found.count("n_closed_ranges", int(closed.sum()))
    found.count("n_open_ranges", int(left_open.sum()))
    found.count("n_dropped", int(is_range.sum() - closed.sum()))
    fresh["correlationId"] = np.full_like(fresh["start"], ABSENT)
    yield _on_host(fresh, kind, name_id, closed)


def _on_host(columns: _Columns, kind: Int8, name_id: Int32, kept: npt.NDArray[np.bool_]) -> Rows:
    thread = columns["globalTid"][kept]
    nowhere = absent(len(thread))
    return Rows(
        start=columns["start"][kept],
        end=columns["end"][kept],
        kind=kind[kept],
        name_id=name_id[kept],
        process=_process(thread),
        correlation=columns["correlationId"][kept],
        device=nowhere,
        context=nowhere,
        stream=nowhere,
        thread=thread,
    )


def _named(
    database: Database,
    string: Int64,
    names: Index[str],
    fallback: str,
    kind: Kind | Callable[[str], Kind],
    spell: Callable[[str], str] = str,
) -> tuple[Int32, Int8]:
    """The names that ids of ``StringIds`` stand for, and what kind of span each is."""
    ids, which = np.unique(string, return_inverse=True)
    texts = database.strings([each for each in ids.tolist() if each != ABSENT])
    spelled = [spell(texts.get(each) or fallback) for each in ids.tolist()]
    kinds = np.array([kind(name) if callable(kind) else kind for name in spelled], dtype=np.int8)
    return names.codes(spelled)[which], kinds[which]


def _usable(database: Database, table: str, needed: tuple[str, ...], found: Findings) -> bool:
    """Whether a table is there with the columns that it cannot do without."""
    columns = database.tables.get(table)
    if columns is None:
        return False
    missing = [column for column in needed if column not in columns]
    if missing:
        found.doubt(f"the table {table} has no column {' and no '.join(missing)}: it is left out")
    return not missing


def _process(global_id: Int64) -> Int64:
    return np.where(global_id == ABSENT, ABSENT, global_id >> PROCESS_SHIFT)
