"""Exports of Nsight Systems: exact numbers, every version's tables, and who launched what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nsys_samples import (
    ALL_REDUCE,
    COLUMNS,
    DECODE,
    GEMM,
    GRAPH,
    KERNEL,
    LAUNCH,
    MEMCPY,
    MEMSET,
    NVTX,
    RUNTIME,
    STRINGS,
    one_step,
    pid,
    refusal,
    tid,
    write_export,
)
from typer.testing import CliRunner

from cbprof.analysis.accounting.device_time import graph_replays
from cbprof.analysis.accounting.host import launches
from cbprof.analysis.profiles.health import examine
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.trace import Kind, Trace

DATA = Path(__file__).parent / "data"
CASES = DATA / "cases"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an export; each under another name, so that one test can write several."""
    return lambda tables, **options: write_export(
        tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite", tables, **options
    )


def spans(trace: Trace) -> list[tuple[str, str, int, int, str, int]]:
    """(category, name, start, end, lane, device) of every span, in order."""
    return [
        (
            Kind(trace.kind[row]).category,
            trace.name_of(row),
            int(trace.start_ns[row]),
            int(trace.end_ns[row]),
            trace.lanes[trace.lane_id[row]].name,
            trace.lanes[trace.lane_id[row]].device,
        )
        for row in range(len(trace))
    ]


def launched(trace: Trace) -> dict[tuple[str, int, int], tuple[str, int] | None]:
    """For each span on a device (name, device, start), the name and the start of the call that launched it."""
    launch_of = launches(trace)
    found: dict[tuple[str, int, int], tuple[str, int] | None] = {}
    for row in np.flatnonzero(trace.on_device).tolist():
        launch = int(launch_of[row])
        key = trace.name_of(row), trace.lanes[trace.lane_id[row]].device, int(trace.start_ns[row])
        found[key] = None if launch < 0 else (trace.name_of(launch), int(trace.start_ns[launch]))
    return found


# Exact numbers


def report(path: Path, mode: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["report", str(path), "--json", "--gaps", "all", "--window", mode])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def in_ns(us: Any) -> Any:
    return [in_ns(each) for each in us] if isinstance(us, list) else us * 1000


@pytest.mark.parametrize("case", ["38-nsys-graph-trace-rows", "40-nsys-nvtx-text-or-textid"])
def test_worked_examples(case: str) -> None:
    expected = json.loads((CASES / case / "expected.json").read_text())
    checks = expected["checks"]
    for result in expected["results"]:
        window = result["window"]
        found = report(CASES / case / expected["input"], window["mode"])
        (device,) = found["devices"]
        assert (found["format"], found["evidence"]) == ("nsys", "cupti")
        assert device["device"] == result["device"]
        assert device["window_ns"] == in_ns([window["start_us"], window["end_us"]])
        assert device["busy_ns"] == in_ns(result["gpu_busy_us"])
        assert device["idle_ns"] == in_ns(result["gpu_idle_us"])
        assert device["idle_pct"] == pytest.approx(result["idle_pct"], abs=1e-9)
        assert device["kernel_busy_ns"] == in_ns(result["kernel_busy_us"])
        assert (device["n_gaps"], device["longest_gap_ns"]) == (result["n_gaps"], in_ns(result["longest_gap_us"]))
        assert [[gap["start_ns"], gap["end_ns"]] for gap in device["gaps"]] == in_ns(result["gaps_us"])
        for gap, cause in zip(device["gaps"], checks.get("gap_causes", device["gaps"]), strict=True):
            for part in ("host_late", "in_launch", "queue"):
                assert gap[f"{part}_ns"] == (in_ns(cause[f"{part}_us"]) if "gap" in cause else gap[f"{part}_ns"])
        for check in ("n_dropped", "n_closed_ranges", "n_gpu_events"):
            assert check not in checks or found["health"][check] == checks[check]


def test_a_public_export() -> None:
    name = "nsysai_healthy_1pct.sqlite"
    golden = json.loads((DATA / "public" / "golden.json").read_text())[name]["devices"]["0"]
    (device,) = report(DATA / "public" / name, "gpu_span")["devices"]
    assert (device["n_gpu_events"], device["busy_ns"], device["n_gaps"]) == (
        golden["n"],
        golden["busy_ns"],
        golden["n_gaps"],
    )
    assert device["window_ns"][1] - device["window_ns"][0] == golden["window_ns"]
    assert device["idle_pct"] == pytest.approx(golden["idle_pct"], abs=5e-5)
    trace = load(DATA / "public" / name)
    assert trace.dur_ns[trace.on_device].sum() == golden["sum_ns"]
    assert trace.meta.device == "NVIDIA H100 80GB HBM3"
    assert None not in launched(trace).values(), "the export has no globalPid, and one process"


# What each row becomes


def test_every_kind_of_row(write: Write) -> None:
    process, thread = pid(7), tid(7, 9)
    tables = one_step()
    tables[KERNEL] += [(5000, 6000, 1, 20, 4, process, ALL_REDUCE, ALL_REDUCE)]
    tables[MEMCPY] += [
        (6100 + kind, 6100 + kind, 0, 13, None, process, 1, kind) for kind in (1, 3, 4, 8, 9, 10, 11, 12)
    ]
    tables[MEMSET] = [(6500, 6510, 0, 13, 5, process, 8)]
    tables[GRAPH] = [(7000, 8000, 0, 13, 6, process, 42, 43)]
    tables["PROFILER_OVERHEAD"] = [(100, 200, thread, None)]
    tables["ThreadNames"] = [(DECODE, 0, thread)]
    trace = load(write(tables))
    assert spans(trace) == [
        ("cpu.overhead", "profiler overhead", 100, 200, "thread 9 (decode)", -1),
        ("cpu.annotation", "decode", 800, 4000, "thread 9 (decode)", -1),
        ("cpu.work", "cudaLaunchKernel", 900, 950, "thread 9 (decode)", -1),
        ("gpu.compute", "gemm", 1000, 3000, "stream 13", 0),
        ("cpu.wait", "cudaStreamSynchronize", 3100, 3700, "thread 9 (decode)", -1),
        ("gpu.d2h", "Memcpy DtoH", 3500, 3600, "stream 13", 0),
        ("gpu.comm", "ncclDevKernel_AllReduce", 5000, 6000, "stream 20", 1),
        ("gpu.h2d", "Memcpy HtoD", 6101, 6101, "stream 13", 0),
        ("gpu.h2d", "Memcpy HtoA", 6103, 6103, "stream 13", 0),
        ("gpu.d2h", "Memcpy AtoH", 6104, 6104, "stream 13", 0),
        ("gpu.copy", "Memcpy DtoD", 6108, 6108, "stream 13", 0),
        ("gpu.copy", "Memcpy HtoH", 6109, 6109, "stream 13", 0),
        ("gpu.copy", "Memcpy PtoP", 6110, 6110, "stream 13", 0),
        ("gpu.h2d", "Memcpy HtoD (unified memory)", 6111, 6111, "stream 13", 0),
        ("gpu.d2h", "Memcpy DtoH (unified memory)", 6112, 6112, "stream 13", 0),
        ("gpu.set", "Memset", 6500, 6510, "stream 13", 0),
        ("gpu.compute", "CUDA graph 42", 7000, 8000, "stream 13", 0),
    ]
    assert trace.evidence == "cupti"
    assert trace.meta.format == "nsys"
    assert trace.meta.extra["nsys"] == {"schema": "3.13.2"}
    assert trace.complete
    assert trace.meta.reliable
    assert not trace.meta.warnings


def test_streams_are_lanes_in_their_order(write: Write) -> None:
    process = pid(7)
    rows = [(100, 200, device, stream, 1, process, GEMM, GEMM) for device, stream in ((1, 7), (0, 20), (0, 3))]
    trace = load(write(one_step() | {KERNEL: rows}))
    assert [(lane.device, lane.name) for lane in trace.lanes] == [
        (0, "stream 3"),
        (0, "stream 13"),
        (0, "stream 20"),
        (1, "stream 7"),
        (-1, "thread 9"),
    ]


def test_facts_about_the_recording(write: Write) -> None:
    tables = one_step() | {
        "TARGET_INFO_GPU": [(0, "NVIDIA H200"), (1, "NVIDIA A30")],
        "TARGET_INFO_SESSION_START_TIME": [(1_790_000_000_000_000_000, "", "")],
        "MPI_RANKS": [(pid(7), 3)],
    }
    trace = load(write(tables))
    assert trace.meta.device == "NVIDIA H200", "the other GPU did nothing"
    assert trace.meta.base_time_ns == 1_790_000_000_000_000_000
    assert trace.meta.rank == 3
    assert trace.meta.extent_ns == (800, 4000)
    assert {lane.rank for lane in trace.lanes} == {3}


def test_what_cannot_be_a_span_is_counted(write: Write) -> None:
    process, thread = pid(7), tid(7, 9)
    tables = one_step()
    tables[KERNEL] += [
        (0, 0, 0, 13, 8, process, GEMM, GEMM),  # CUPTI: the time was not collected
        (9000, 8000, 0, 13, 8, process, GEMM, GEMM),
        (None, 8000, 0, 13, 8, process, GEMM, GEMM),
        (9000, "soon", 0, 13, 8, process, GEMM, GEMM),
        (9000, 9100, None, 13, 8, process, GEMM, GEMM),
        (-(1 << 63), (1 << 63) - 1, 0, 13, 8, process, GEMM, GEMM),
        (0, 10, 0, 13, 8, process, GEMM, GEMM),  # this one is fine, and so is the next
        (9000, 9000, 0, 13, 8, process, GEMM, GEMM),
    ]
    tables[RUNTIME] += [(9000, 0, thread, 9, LAUNCH)]
    trace = load(write(tables))
    assert trace.meta.health["n_dropped"] == 7
    assert trace.on_device.sum() == 4


# Ranges


def test_names_of_ranges_in_either_column(write: Write) -> None:
    thread = tid(7, 9)
    tables = one_step()
    tables[NVTX] = [
        (100, 200, 59, "own text", None, thread, None),
        (200, 300, 60, None, DECODE, thread, None),
        (300, 400, 60, "wins", DECODE, thread, None),
        (400, 500, 59, None, None, thread, None),
        (500, None, 59, "left open", None, thread, None),
        (600, None, 34, "a mark", None, thread, None),
        (0, None, 75, "a domain", None, thread, None),
        (700, 800, 70, "from a text file", None, thread, None),
    ]
    trace = load(write(tables))
    ranges = [(name, start) for kind, name, start, *_ in spans(trace) if kind == "cpu.annotation"]
    assert ranges == [("own text", 100), ("decode", 200), ("wins", 300), ("(unnamed)", 400)]
    health = trace.meta.health
    assert (health["n_closed_ranges"], health["n_open_ranges"], health["n_dropped"]) == (4, 1, 1)


def test_a_range_that_ends_on_another_thread_stays_where_it_began(write: Write) -> None:
    tables = one_step()
    tables[NVTX] = [(100, 9000, 60, "request", None, tid(7, 9), tid(7, 10)), (50, 80, 59, "x", None, tid(7, 10), None)]
    lanes = {name: lane for _, name, _, _, lane, _ in spans(load(write(tables)))}
    assert (lanes["request"], lanes["x"]) == ("thread 9", "thread 10")


# Many processes


def two_processes() -> dict[str, list[Any]]:
    """Both count their correlation ids from 1, and both call their GPU device 0."""
    return {
        KERNEL: [
            (1000, 2000, 0, 7, 1, pid(100), GEMM, GEMM),
            (1500, 2500, 0, 7, 1, pid(200), GEMM, GEMM),
            (3000, 4000, 0, 7, 2, pid(100), GEMM, GEMM),
        ],
        RUNTIME: [
            (900, 910, tid(100, 101), 1, LAUNCH),
            (1400, 1410, tid(200, 201), 1, LAUNCH),
            (2900, 2910, tid(100, 102), 2, LAUNCH),
        ],
    }


def test_correlation_ids_count_within_a_process(write: Write) -> None:
    tables = two_processes() | {"TARGET_INFO_CUDA_DEVICE": [(5, 0, 100), (5, 0, 200)]}
    trace = load(write(tables))
    assert launched(trace) == {
        ("gemm", 0, 1000): ("cudaLaunchKernel", 900),
        ("gemm", 0, 1500): ("cudaLaunchKernel", 1400),
        ("gemm", 0, 3000): ("cudaLaunchKernel", 2900),
    }
    lanes = {lane.name for lane in trace.lanes}
    threads = {f"thread {thread} of process {process}" for process, thread in ((100, 101), (100, 102), (200, 201))}
    assert lanes == threads | {"stream 7 of process 100", "stream 7 of process 200"}
    assert not trace.meta.warnings


def test_contexts_number_their_streams_for_themselves(write: Write) -> None:
    """Long kernels of one context do not swallow the short ones of another, whose stream has the same number."""
    columns = {KERNEL: f"{COLUMNS[KERNEL]}, contextId"}
    long = (100, 900, 0, 7, 1, pid(100), GEMM, GEMM, 1)
    short = [(200 + at, 210 + at, 0, 7, 2, pid(100), GEMM, GEMM, 2) for at in range(0, 300, 20)]
    trace = load(write({KERNEL: [long, *short]}, columns=columns))

    assert {lane.name for lane in trace.lanes if lane.on_device} == {"stream 7, context 1", "stream 7, context 2"}
    counts = examine(trace).counts
    assert (counts["n_streams"], counts["n_runaway"], counts["same_stream_overlaps"]) == (2, 0, 0)


def test_processes_that_number_the_gpus_differently(write: Write) -> None:
    tables = two_processes() | {
        "TARGET_INFO_CUDA_DEVICE": [(1, 0, 100), (0, 0, 200)],
        "TARGET_INFO_GPU": [(0, "NVIDIA A30"), (1, "NVIDIA H200")],
    }
    trace = load(write(tables))
    assert set(launched(trace)) == {("gemm", 1, 1000), ("gemm", 0, 1500), ("gemm", 1, 3000)}
    assert trace.meta.device == "NVIDIA A30, NVIDIA H200"
    assert "on the machine" in trace.meta.warnings[0]
    assert trace.meta.reliable


def test_gpus_that_may_be_mixed_up_are_not_trusted(write: Write) -> None:
    half_known = load(write(two_processes() | {"TARGET_INFO_CUDA_DEVICE": [(1, 0, 100)]}))
    assert not half_known.meta.reliable
    unknown = load(write(two_processes()))
    assert unknown.devices == (0,)
    assert "whether it is one GPU" in unknown.meta.warnings[0]


def test_kernels_without_a_process_among_many(write: Write) -> None:
    tables = two_processes()
    tables[KERNEL] = [(*row[:5], None, *row[6:]) for row in tables[KERNEL]]
    trace = load(write(tables))
    assert set(launched(trace).values()) == {None}
    assert "3 events do not say which of 2 processes" in trace.meta.warnings[0]


# Graphs


def test_a_replay_and_the_kernels_of_a_replay(write: Write) -> None:
    """With whole-graph tracing a launch owns one row, with node tracing all its kernels."""
    process, thread = pid(7), tid(7, 9)
    tables: dict[str, list[Any]] = {
        GRAPH: [(1000, 2000, 0, 13, 1, process, 4, 5)],
        KERNEL: [(3000 + 10 * each, 3005 + 10 * each, 0, 13, 2, process, GEMM, GEMM) for each in range(5)],
        RUNTIME: [(900, 950, thread, 1, LAUNCH), (2900, 2950, thread, 2, LAUNCH)],
    }
    trace = load(write(tables))
    assert set(launched(trace).values()) == {("cudaLaunchKernel", 900), ("cudaLaunchKernel", 2900)}
    assert graph_replays(trace).sum() == 1


def test_a_graph_that_begins_on_the_host(write: Write) -> None:
    on_host = (1 << 31) - 1
    tables = one_step() | {GRAPH: [(5000, 6000, on_host, 13, 6, pid(7), 42, 43)]}
    trace = load(write(tables))
    assert ("gpu.compute", "CUDA graph 42", 5000, 6000, "stream 13", 0) in spans(trace)
    alone = load(write({GRAPH: tables[GRAPH]}))
    assert len(alone) == 0
    assert not alone.meta.reliable
    assert alone.meta.health["n_dropped"] == 1


# Versions: tables and columns that are missing


@pytest.mark.parametrize("schema", ["2.9.4", "3.0.1", "3.13.2", "3.25.0", "unknown"])
def test_schemas_that_are_read(write: Write, schema: str) -> None:
    trace = load(write(one_step() | {"META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", schema)]}))
    assert trace.meta.extra["nsys"] == {"schema": schema}
    assert len(trace) == 5
    assert not trace.meta.warnings


def test_schemas_that_are_too_old_or_too_new(write: Write) -> None:
    old = load(write(one_step() | {"META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "2.4.0")]}))
    assert "2.4.0 is older" in old.meta.warnings[0]
    new = one_step() | {"META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "4.0.0")]}
    assert "its schema is 4.0.0, this version reads 2.9 to 3.x" in refusal(write(new))


@pytest.mark.parametrize("table", [KERNEL, MEMCPY, RUNTIME, NVTX])
def test_any_table_may_be_missing(write: Write, table: str) -> None:
    tables = one_step()
    lost = len(tables.pop(table))
    trace = load(write(tables))
    assert len(trace) == 5 - lost
    assert bool(trace.meta.warnings) == (table == RUNTIME), "without calls the launches are unknown"


def test_an_export_without_a_gpu(write: Write) -> None:
    trace = load(write({NVTX: one_step()[NVTX]}))
    assert trace.devices == ()
    assert "nsys profile --trace=cuda,nvtx" in trace.meta.warnings[0]
    empty = load(write({}))
    assert (len(empty), empty.devices) == (0, ())


@pytest.mark.parametrize(
    ("table", "columns", "warning"),
    [
        (KERNEL, "start, deviceId", "no column end: it is left out"),
        (KERNEL, "start, end", "has no deviceId: all of it counts as device 0"),
        (NVTX, "start, text", "no column end: it is left out"),
    ],
)
def test_columns_that_cannot_be_missing_in_silence(write: Write, table: str, columns: str, warning: str) -> None:
    tables = one_step()
    tables[table] = [[0] * len(columns.split(","))]
    trace = load(write(tables, columns={table: columns}))
    assert any(warning in each for each in trace.meta.warnings)
    assert trace.meta.reliable == ("left out" not in warning)


@pytest.mark.parametrize("table", [KERNEL, MEMCPY, RUNTIME, NVTX])
def test_any_column_beyond_times_may_be_missing(write: Write, table: str) -> None:
    names = [name.strip() for name in COLUMNS[table].split(",")]
    for missing in range(2, len(names)):
        tables = one_step()
        tables[table] = [row[:missing] + row[missing + 1 :] for row in map(tuple, tables[table])]
        columns = ", ".join(names[:missing] + names[missing + 1 :])
        assert len(load(write(tables, columns={table: columns}))) == 5


def test_strings_that_are_missing(write: Write) -> None:
    trace = load(write(one_step() | {"StringIds": [(GEMM, None)]}))
    assert {name for _, name, *_ in spans(trace)} == {"kernel", "CUDA call", "Memcpy DtoH", "(unnamed)"}


def test_what_the_profiler_says_was_lost(write: Write) -> None:
    messages = [
        (0, 1, "Number of CUDA events collected: 5."),
        (0, 2, "Not all CUDA events might have\nbeen collected."),
        (0, 2, "Lost 3 samples of the CPU."),
    ]
    trace = load(write(one_step() | {"DIAGNOSTIC_EVENT": messages}))
    assert trace.meta.warnings == ("Nsight Systems warns: Not all CUDA events might have been collected.",)
    assert not trace.meta.reliable


def test_many_names_are_read_in_one_pass_over_their_table(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without a key would be searched from end to end for every few hundred of them."""
    tables = one_step() | {
        "StringIds": [*enumerate(STRINGS), *((100 + number, f"range {number}") for number in range(30))],
        NVTX: [(number, number + 1, 59, None, 100 + number, tid(7, 9), None) for number in range(30)],
    }
    one_by_one = spans(load(write(tables)))
    monkeypatch.setattr("cbprof.formats.records.database._SCANNED_FROM", 10)
    assert spans(load(write(tables))) == one_by_one
    assert [name for _, name, *_ in one_by_one][:2] == ["range 0", "range 1"]
