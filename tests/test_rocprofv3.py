"""JSON of rocprofv3: the same numbers as its database, and fields of any kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nsys_samples import refusal
from rocm_samples import LAUNCHED, SPANS, Call, Kernel, Process, launched, rocprofv3, spans, write_rocprofv3

from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.formats.importers import importer_of

DATA = Path(__file__).parent / "data"


def test_every_record_stands_where_it_ran(tmp_path: Path) -> None:
    """As in the database, but for the names of threads, and the kernel of a call that was not recorded."""
    trace = load(write_rocprofv3(tmp_path / "41_results.json"))
    assert spans(trace) == [(*span[:4], span[4].removesuffix(" (python)"), span[5]) for span in SPANS]
    assert launched(trace) == [*LAUNCHED[:-1], ("hipGraphLaunch", ["gemm"])]
    assert (trace.meta.device, trace.meta.format) == ("AMD Instinct MI300X", "rocprofv3")
    assert trace.meta.warnings == ()


def test_golden_numbers() -> None:
    (device,) = summarize(load(DATA / "rocprofv3.json")).to_json(gaps="all")["devices"]
    assert device["window_ns"] == [1150, 3700]
    assert (device["busy_ns"], device["idle_ns"], device["kernel_busy_ns"]) == (2050, 500, 1950)
    assert (device["comm_busy_ns"], device["n_gpu_events"], device["n_streams"]) == (1100, 5, 2)


def test_processes_keep_their_launches_and_their_gpus_apart(tmp_path: Path) -> None:
    first = Process([Call("hipLaunchKernel", 0, 10, 1)], [Kernel("a", 20, 30, 1)], [])
    second = Process(
        [Call("hipModuleLaunchKernel", 5, 9, 1)], [Kernel("b", 25, 65, 1)], [], pid=51, tid=52, first_gpu=2
    )
    trace = load(write_rocprofv3(tmp_path / "merged.json", first, second))
    assert launched(trace) == [("hipLaunchKernel", ["a"]), ("hipModuleLaunchKernel", ["b"])]
    assert [(name, device) for _, name, _, _, _, device in spans(trace) if device >= 0] == [("a", 0), ("b", 1)]


def test_fields_that_are_missing_are_done_without(tmp_path: Path) -> None:
    document = rocprofv3()
    (process,) = document["rocprofiler-sdk-tool"]
    for kernel in process["buffer_records"]["kernel_dispatch"]:
        del kernel["stream_id"], kernel["thread_id"]
        kernel["dispatch_info"]["kernel_id"] = 99
    for part in ("metadata", "kernel_symbols", "callback_records"):
        del process[part]
    del process["buffer_records"]["hsa_api"]
    del process["buffer_records"]["marker_api"][0]["correlation_id"]
    trace = load(_written(tmp_path, document))
    assert {lane.name for lane in trace.lanes} == {"stream 0", "stream 1", "thread 42"}
    assert [name for kind, name, *_ in spans(trace) if kind == "gpu.compute"] == ["(unnamed)"] * 4
    assert spans(trace)[0][1] == "roctxThreadRangeA"


@pytest.mark.parametrize(
    "value", [{"rocprofiler-sdk-tool": 5}, {"rocprofiler-sdk-tool": [{"agents": {}}]}, {"rocprofiler-sdk-tool": [[]]}]
)
def test_what_has_another_form_is_refused(value: dict[str, Any], tmp_path: Path) -> None:
    assert "cut or damaged" in refusal(_written(tmp_path, value))


def test_it_is_known_by_its_first_key(tmp_path: Path) -> None:
    path = tmp_path / "pretty.json"
    path.write_text(json.dumps(rocprofv3(), indent=2))
    assert importer_of(path).name == "rocprofv3"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": '{"rocprofiler-sdk-tool":', "ts": 0, "dur": 1}]}))
    assert importer_of(path).name == "Chrome trace, such as torch.profiler's"


def _written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps(document))
    return path
