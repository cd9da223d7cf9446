"""Databases of rocprofv3: exact numbers, both generations of tables, who launched what, and whose GPU is which."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from nsys_samples import refusal
from rocm_samples import (
    CPU,
    LAUNCHED,
    ONE_STEP,
    SECOND_GPU,
    SPANS,
    Call,
    Copy,
    Generation,
    Kernel,
    Process,
    launched,
    spans,
    write_rocpd,
)

from cbprof.analysis.summary import summarize
from cbprof.formats import load

DATA = Path(__file__).parent / "data"

generations = pytest.mark.parametrize("generation", ["rows", "tracks"])


@generations
def test_every_record_stands_where_it_ran(generation: Generation, tmp_path: Path) -> None:
    trace = load(write_rocpd(tmp_path / "41_results.db", generation=generation))
    assert spans(trace) == SPANS
    assert launched(trace) == LAUNCHED
    assert trace.meta.device == "AMD Instinct MI300X"
    assert trace.meta.format == "rocpd"
    assert trace.evidence == "cupti"
    assert trace.meta.warnings == ()
    assert trace.meta.reliable


@pytest.mark.parametrize("name", ["rocpd_rows.db", "rocpd_tracks.db"])
def test_golden_numbers(name: str) -> None:
    """The window is that of the GPU, 1150 to 3700; three gaps of 50, 400 and 50 ns."""
    (device,) = summarize(load(DATA / name)).to_json(gaps="all")["devices"]
    assert device["window_ns"] == [1150, 3700]
    assert (device["busy_ns"], device["idle_ns"], device["kernel_busy_ns"]) == (2050, 500, 1950)
    assert (device["comm_busy_ns"], device["exposed_comm_ns"]) == (1100, 1000)
    assert (device["n_gpu_events"], device["n_streams"], device["n_graph_launches"]) == (5, 2, 1)
    assert {(gap["start_ns"], gap["end_ns"]): _split(gap) for gap in device["gaps"]} == {
        (1250, 1300): (0, 50, 0),
        (3000, 3400): (200, 100, 100),
        (3600, 3650): (0, 0, 50),
    }


def _split(gap: dict[str, int]) -> tuple[int, int, int]:
    return gap["host_late_ns"], gap["in_launch_ns"], gap["queue_ns"]


@generations
def test_processes_of_a_merged_file_keep_their_launches_and_their_gpus_apart(
    generation: Generation, tmp_path: Path
) -> None:
    """Both number their calls from 1 and call their GPU 0, and it is another one."""
    first = Process([Call("hipLaunchKernel", 0, 10, 1)], [Kernel("a", 20, 30, 1)], [])
    second = Process(
        [Call("hipModuleLaunchKernel", 5, 9, 1)], [Kernel("b", 25, 65, 1)], [], pid=51, tid=52, first_gpu=2
    )
    trace = load(write_rocpd(tmp_path / "merged.db", first, second, generation=generation))
    assert launched(trace) == [("hipLaunchKernel", ["a"]), ("hipModuleLaunchKernel", ["b"])]
    assert [(name, device) for _, name, _, _, _, device in spans(trace) if device >= 0] == [("a", 0), ("b", 1)]
    assert len(trace.meta.warnings) == 1
    assert "number the GPUs differently" in trace.meta.warnings[0]


def test_copies_count_for_the_gpu_that_takes_part(tmp_path: Path) -> None:
    copies = [
        Copy("to", 10, 20, 1, CPU, SECOND_GPU),
        Copy("from", 30, 40, 2, SECOND_GPU, CPU),
        Copy("between", 50, 60, 3, SECOND_GPU, 2),
        Copy("host", 70, 80, 4, CPU, CPU),
        Copy("nowhere", 80, 90, 5, 77, 78),
    ]
    trace = load(write_rocpd(tmp_path / "copies.db", Process([], [], copies)))
    assert [(kind, name, device) for kind, name, _, _, _, device in spans(trace)] == [
        ("gpu.h2d", "to", 1),
        ("gpu.d2h", "from", 1),
        ("gpu.copy", "between", 0),
    ]
    assert "no calls of HIP" in trace.meta.warnings[0]


def test_what_was_never_timed_is_left_out_and_counted(tmp_path: Path) -> None:
    kernels = [Kernel("zero", 0, 0, 1), Kernel("backwards", 30, 20, 2), Kernel("no such agent", 30, 40, 3, agent=9)]
    trace = load(write_rocpd(tmp_path / "odd.db", Process([Call("hipMalloc", 5, 6, 0)], kernels, [])))
    assert [name for _, name, *_ in spans(trace)] == ["hipMalloc"]
    assert trace.meta.health["n_dropped"] == 3


def test_columns_and_tables_that_are_missing_are_done_without(tmp_path: Path) -> None:
    path = write_rocpd(tmp_path / "old.db", ONE_STEP)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('ALTER TABLE "rocpd_event_00000000" DROP COLUMN parent_stack_id')
        for table in ("info_thread", "memory_copy", "metadata", "info_node"):
            connection.execute(f"DROP VIEW rocpd_{table}")
            connection.execute(f'DROP TABLE "rocpd_{table}_00000000"')
    trace = load(path)
    assert len(launched(trace)) == 3
    assert {lane.name for lane in trace.lanes} == {"stream 1", "stream 2", "thread 1"}


@pytest.mark.parametrize("extdata", ["", "{", "[]", '{"message": 5}', '{"message": ""}', "null"])
def test_a_range_without_a_message_has_the_name_of_its_call(extdata: str, tmp_path: Path) -> None:
    path = write_rocpd(tmp_path / "ranges.db", ONE_STEP)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('UPDATE "rocpd_event_00000000" SET extdata = ?', (extdata,))
    assert spans(load(path))[0][1] == "roctxThreadRangeA"


def test_other_databases_of_amd_are_refused(tmp_path: Path) -> None:
    for name, tables, said in (
        ("trace.rpd", ("rocpd_string", "rocpd_op", "rocpd_api"), "rocmProfileData (rpd)"),
        ("some.db", ("rocpd_string_1", "rocpd_region_1"), "without a table rocpd_kernel_dispatch"),
    ):
        path = tmp_path / name
        with closing(sqlite3.connect(path)) as connection, connection:
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (id)")
        assert said in refusal(path)
        assert "rocprofv3 --runtime-trace" in refusal(path)
