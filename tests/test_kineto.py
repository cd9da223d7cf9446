"""Reading torch.profiler's traces: what its events mean, exact times, files that are odd, cut or damaged."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_samples import DECODE, HOST, call, host, kernel, text_of, thread_name, write

from cbprof.analysis.accounting.host import launches
from cbprof.analysis.profiles.health import examine
from cbprof.analysis.profiles.kernels import short_kernel
from cbprof.errors import DataError
from cbprof.formats import load
from cbprof.formats.bytes import stream
from cbprof.formats.kineto import helper as kineto_helper
from cbprof.formats.kineto import read as kineto
from cbprof.formats.kineto.columns import NOT_A_TIME, from_floats, from_text
from cbprof.trace import Kind, Trace

NONE = -1
SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spans(trace: Trace) -> list[tuple[Any, ...]]:
    """(kind, name, lane, device, start, duration, link) of each span."""
    lanes = [trace.lanes[lane] for lane in trace.lane_id]
    return [
        (Kind(kind).category, trace.name_of(row), lane.name, lane.device, start, dur, link)
        for row, (kind, lane, start, dur, link) in enumerate(
            zip(trace.kind, lanes, trace.start_ns.tolist(), trace.dur_ns.tolist(), trace.link.tolist(), strict=True)
        )
    ]


def health(trace: Trace, key: str) -> int:
    return int(trace.meta.health[key])


# What events mean


def test_a_decode_loop(tmp_path: Path) -> None:
    trace = load(write(tmp_path, *DECODE, baseTimeNanoseconds=5, distributedInfo={"rank": 3, "world_size": 8}))
    thread = "thread 4100 (python)"
    assert spans(trace) == [
        ("cpu.work", "cudaGraphLaunch", thread, -1, 900_000, 80_000, 1),
        ("gpu.compute", "decode", "stream 7", 0, 1_000_000, 4_000_000, 1),
        # It copies to pageable memory, so the call returns only when the copy is done.
        ("cpu.wait", "cudaMemcpyAsync", thread, -1, 1_100_000, 3_910_000, 5),
        ("gpu.d2h", "Memcpy DtoH (Device -> Pageable)", "stream 7", 0, 5_005_000, 2_000, 5),
        ("cpu.wait", "cudaStreamSynchronize", thread, -1, 5_011_000, 2_000, 6),
        ("cpu.annotation", "schedule", thread, -1, 5_013_000, 3_787_250, NONE),
        ("cpu.work", "cudaGraphLaunch", thread, -1, 9_000_000, 100_000, 9),
        ("gpu.compute", "decode", "stream 7", 0, 9_020_001, 4_000_000, 9),
    ]
    assert {lane.rank for lane in trace.lanes} == {3}
    assert (trace.meta.base_time_ns, trace.meta.world_size, trace.meta.format) == (5, 8, "kineto")
    assert (trace.complete, trace.evidence, trace.devices) == (True, "cupti", (0,))
    assert health(trace, "n_events_recovered") == len(DECODE)


@pytest.mark.parametrize(
    ("cat", "name", "kind"),
    [
        ("kernel", "gemm", "gpu.compute"),
        ("Kernel", "gemm", "gpu.compute"),
        ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "gpu.comm"),
        ("kernel", "vllm::cross_device_reduce_1stage", "gpu.comm"),
        ("kernel", "reduce_scatter_kernel", "gpu.comm"),
        ("kernel", "__amd_rocclr_copyBuffer", "gpu.compute"),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", "gpu.h2d"),
        ("Memcpy", "Memcpy DtoH (Device -> Pinned)", "gpu.d2h"),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", "gpu.copy"),
        ("gpu_memcpy", "CopyHostToDevice", "gpu.copy"),
        ("gpu_memset", "Memset (Device)", "gpu.set"),
        ("cpu_op", "aten::mm", "cpu.work"),
        ("Operator", "aten::mm", "cpu.work"),
        ("python_function", "engine.py(10): step", "cpu.work"),
        ("cuda_runtime", "cudaLaunchKernel", "cpu.work"),
        ("Runtime", "cudaDeviceSynchronize", "cpu.wait"),
        ("cuda_driver", "cuStreamSynchronize", "cpu.wait"),
        ("cuda_runtime", "hipEventSynchronize", "cpu.wait"),
        ("cuda_runtime", "cudaMemcpy", "cpu.wait"),
        ("cuda_runtime", "hipMemcpyWithStream", "cpu.wait"),
        ("cuda_runtime", "cudaMemcpyAsync", "cpu.work"),
        ("cuda_driver", "cuMemcpyDtoH_v2", "cpu.wait"),
        ("user_annotation", "decode", "cpu.annotation"),
        ("overhead", "Activity Buffer Request", "cpu.overhead"),
        ("gpu_user_annotation", "decode", None),
        ("cuda_sync", "Stream Sync", None),
        ("Trace", "PyTorch Profiler (0)", None),
    ],
)
def test_categories(tmp_path: Path, cat: str, name: str, kind: str | None) -> None:
    trace = load(write(tmp_path, kernel(10, 5, name, device=0) | {"cat": cat}))
    assert [category for category, *_ in spans(trace)] == ([] if kind is None else [kind])


def test_the_oldest_exporter_gives_no_category(tmp_path: Path) -> None:
    old = {"ph": "X", "ts": 10, "dur": 5, "args": {}}
    trace = load(
        write(
            tmp_path,
            old | {"name": "gemm", "pid": "CUDA functions", "tid": "stream 7"},
            old | {"name": "Memcpy DtoH", "pid": "CUDA functions", "tid": "stream 7", "ts": 20},
            old | {"name": "mm", "pid": "CPU functions", "tid": 1, "ts": 30},
        )
    )
    assert [(kind, lane, device) for kind, _, lane, device, *_ in spans(trace)] == [
        ("gpu.compute", "stream 7", 0),
        ("gpu.d2h", "stream 7", 0),
        ("cpu.work", "thread 1", -1),
    ]
    assert trace.meta.device_names == {0: "CUDA functions"}


def test_marks_of_kernels_in_a_graph_stand_before_their_names(tmp_path: Path) -> None:
    """As ``torch.cuda._annotate_cuda_graph_trace`` writes what ``mark_kernels`` noted into a trace."""

    def marked(event: dict[str, Any], mark: Any) -> dict[str, Any]:
        return event | {"args": {**event["args"], "graph node id": 42, "name": mark}}

    gemm = "void gemm<bf16>(Params)"
    kernels = [
        marked(kernel(100, 10, gemm, correlation=1), "layers.0.attention.wq"),
        marked(kernel(120, 10, "ncclDevKernel_AllGather", correlation=1), "all_gather"),
        marked(kernel(140, 10, gemm, correlation=1), 7),
        kernel(160, 10, gemm, correlation=1),
    ]
    outside = marked(host(0, 5, "aten::mm"), "no work of a device")
    trace = load(write(tmp_path, call(90, 5, "cudaGraphLaunch", 1), outside, *kernels))
    assert [trace.name_of(row) for row in range(len(trace))] == [
        "aten::mm",
        "cudaGraphLaunch",
        "layers.0.attention.wq: void gemm<bf16>(Params)",
        "all_gather: ncclDevKernel_AllGather",
        "void gemm<bf16>(Params)",
        "void gemm<bf16>(Params)",
    ]
    assert [Kind(kind) for kind in trace.kind[2:4]] == [Kind.GPU_COMPUTE, Kind.GPU_COMM]
    assert short_kernel(trace.name_of(2)) == "layers.0.attention.wq: gemm"


def test_streams_belong_to_devices(tmp_path: Path) -> None:
    bare = {key: value for key, value in kernel(40, 1).items() if key != "args"}
    trace = load(
        write(
            tmp_path,
            kernel(10, 1, device=1, stream=7),
            kernel(20, 1, device="0", stream="7"),
            kernel(30, 1, device="gpu-a", stream=0) | {"pid": "gpu-a"},
            bare | {"pid": 1, "tid": "stream 20"},
        )
    )
    assert [(lane, device) for _, _, lane, device, *_ in spans(trace)] == [
        ("stream 7", 1),
        ("stream 7", 0),
        ("stream 0", 2),
        ("stream 20", 1),
    ]
    assert trace.meta.device_names == {2: "gpu-a"}


def test_threads_of_two_processes_are_two_lanes(tmp_path: Path) -> None:
    events = (host(1, 1, "a"), host(2, 1, "b") | {"pid": 4200})
    named = load(write(tmp_path, *events, thread_name(HOST, "thread 4100 (x)")))
    assert [lane for _, _, lane, *_ in spans(named)] == ["thread 4100 (x)", "thread 4100"]
    bare = load(write(tmp_path, *events))
    assert [lane for _, _, lane, *_ in spans(bare)] == ["thread 4100", "thread 4100 of process 4200"]


def of_rank(tag: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """The events as a merger writes them, which puts the rank before each pid."""
    return [event | {"pid": f"{tag}{event['pid']}"} for event in events]


def one_launch(at: int) -> tuple[dict[str, Any], ...]:
    return call(at, 5, "cudaLaunchKernel", 1), kernel(at + 20, 100, correlation=1)


@pytest.mark.parametrize(("first", "second"), [("[TP00] ", "[TP01] "), ("rank0: ", "rank1: "), ("a/", "b/")])
def test_ranks_in_one_file_keep_their_launches_and_their_devices(tmp_path: Path, first: str, second: str) -> None:
    trace = load(write(tmp_path, *of_rank(first, *one_launch(0)), *of_rank(second, *one_launch(1000))))

    assert trace.devices == (0, 1)
    launch_of = launches(trace)
    rows = np.flatnonzero(trace.on_device)
    assert (trace.start_ns[rows] - trace.start_ns[launch_of[rows]]).tolist() == [20_000, 20_000]
    ranks = [trace.lanes[lane].rank for lane in trace.lane_id[rows]]
    assert ranks == ([NONE, NONE] if first == "a/" else [0, 1])


def test_a_launch_id_of_two_processes_without_a_rank_is_nobodys(tmp_path: Path) -> None:
    other = one_launch(1000)[0] | {"pid": HOST + 1}
    trace = load(
        write(tmp_path, *one_launch(0), other, call(1100, 5, "cudaLaunchKernel", 2), kernel(1120, 5, correlation=2))
    )

    linked = trace.link[trace.on_device] != NONE
    assert linked.tolist() == [False, True]
    found = examine(trace)
    assert found.counts["n_ambiguous_launches"] == 1
    assert "more than one process" in " ".join(found.warnings)


def test_the_name_of_a_device_is_no_rank(tmp_path: Path) -> None:
    launch, ran = one_launch(0)
    trace = load(write(tmp_path, launch, ran | {"pid": "GPU 0"}))
    assert (trace.link[trace.on_device] != NONE).all()


def test_beginnings_and_ends(tmp_path: Path) -> None:
    begin, end = {"ph": "B"}, {"ph": "E"}
    outer, inner = host(10, 0, "outer"), host(12, 0, "inner")
    trace = load(
        write(
            tmp_path,
            inner | {"ts": 14} | end,  # in any order
            outer | begin,
            inner | begin,
            outer | {"ts": 20, "name": ""} | end,
            host(30, 0, "open") | begin,
            host(1, 0, "never begun") | end,
        )
    )
    assert [(name, start, dur) for _, name, _, _, start, dur, _ in spans(trace)] == [
        ("outer", 10_000, 10_000),
        ("inner", 12_000, 2_000),
    ]
    assert health(trace, "n_dropped") == 1


# Times and numbers


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1", 1000),
        ('"1.5"', 1500),
        ("-10.001", -10_001),
        ("1743521598000123.456", 1743521598000123456),
        ('"1743521598000123.456"', 1743521598000123456),
        ("1743521598000123", 1743521598000123000),
        ("1.7435215980001234567e15", 1743521598000123457),
        ("1e3", 1_000_000),
        ("0.0004", 0),
        ("1e308", NOT_A_TIME),
        ("1e999999999", NOT_A_TIME),
        ("9999999999999999", NOT_A_TIME),
        ("NaN", NOT_A_TIME),
        ("null", NOT_A_TIME),
        ('"soon"', NOT_A_TIME),
        ("", NOT_A_TIME),
    ],
)
def test_times_from_text(text: str, ns: int) -> None:
    assert from_text(text.encode()) == ns


@given(st.integers(-(2**43) * 1000 + 1, 2**43 * 1000 - 1))
def test_float64_keeps_nanoseconds_below_2_to_the_43rd_microsecond(ns: int) -> None:
    microseconds = float(f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}")
    assert np.array_equal(from_floats(np.array([microseconds])), [ns])


def test_float64_gives_up_beyond_that_and_skips_what_is_no_time() -> None:
    assert from_floats(np.array([1.0, 2.0**43])) is None
    assert np.array_equal(from_floats(np.array([np.nan, np.inf, 1.0])), [NOT_A_TIME, NOT_A_TIME, 1000])


def test_times_since_1970_are_exact(tmp_path: Path) -> None:
    text = text_of(kernel("A", 0.1, correlation=1), kernel("B", "0.25"), kernel("C", 1))
    for letter, time in zip(
        "ABC", ("1743521598000123.456", "1743521598000123.600", '"1743521598000123.999"'), strict=True
    ):
        text = text.replace(f'"{letter}"', time)
    (tmp_path / "t.json").write_text(text)
    trace = load(tmp_path / "t.json")
    assert trace.start_ns.tolist() == [1743521598000123456, 1743521598000123600, 1743521598000123999]
    assert trace.dur_ns.tolist() == [100, 250, 1000]


def test_what_has_no_times_is_dropped_and_counted(tmp_path: Path) -> None:
    bad = [kernel(None, 1), kernel(1, None), kernel("x", 1), kernel(1, -1), kernel(0, 0), kernel(1e300, 1)]
    missing = {key: value for key, value in kernel(1, 1).items() if key != "dur"}
    trace = load(write(tmp_path, *bad, missing, kernel(1, 0), host(0, 0, "kept"), kernel(2, float("nan"))))
    assert [(name, start) for _, name, _, _, start, *_ in spans(trace)] == [("kept", 0), ("gemm", 1000)]
    assert health(trace, "n_dropped") == 8


def test_large_ids_do_not_collide(tmp_path: Path) -> None:
    ids = [2**53, 2**53 + 1, 2**63, 2**64 + 1, "abc", "12", 12.0]
    trace = load(
        write(
            tmp_path,
            *(event for n in ids for event in (call(1, 1, "cudaLaunchKernel", n), kernel(2, 1, correlation=n))),
        )
    )
    links = trace.link.tolist()
    assert links[: len(ids)] == links[len(ids) :]
    assert len(set(links)) == len(ids) - 1  # "12" and 12.0 are one
    assert links[0] == 2**53
    assert min(links) == 12


def test_values_of_odd_types_cost_no_event(tmp_path: Path) -> None:
    odd = [
        kernel(1, 1) | {"name": 7},
        kernel(2, 1) | {"pid": True, "tid": None, "args": {"device": 0.0, "stream": [7]}},
        kernel(3, 1) | {"args": [1, 2]},
        kernel(4, 1) | {"cat": None},
        kernel(5, 1) | {"pid": {"a": 1}, "args": None},
    ]
    trace = load(write(tmp_path, *odd, kernel(6, 1), None, 5, "x", [kernel(7, 1)]))
    assert len(trace) == 6
    assert health(trace, "n_dropped") == 0
    assert trace.complete


# Files that are odd


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_array_form_and_gzip_and_byte_order_mark(tmp_path: Path, packed: bool, mark: bytes) -> None:
    data = mark + json.dumps([kernel(1, 1), kernel(2, 1)], indent=2).encode()
    (tmp_path / "t").write_bytes(gzip.compress(data) if packed else data)
    trace = load(tmp_path / "t")
    assert (len(trace), trace.complete, trace.meta.format) == (2, True, "kineto")


def test_fields_may_stand_after_the_events(tmp_path: Path) -> None:
    events = json.dumps([kernel(1, 1)])
    tail = '"deviceProperties": [{"name": "A"}, {"name": "A"}, {"name": "B"}], "baseTimeNanoseconds": "7"'
    (tmp_path / "t.json").write_text(f'{{"traceEvents": {events}, {tail}}}')
    trace = load(tmp_path / "t.json")
    assert (trace.meta.device, trace.meta.base_time_ns, trace.complete) == ("2 x A, B", 7, True)


@pytest.mark.parametrize(
    ("used", "device"),
    [([0], "B200"), ([3, 5], "2 x B200"), ([7], "A100"), ([0, 7], "B200, A100"), ([9], "7 x B200, A100")],
)
def test_only_gpus_that_ran_something_are_named(tmp_path: Path, used: list[int], device: str) -> None:
    """The file lists every GPU of the machine; where the list has none of those that ran, all of it is named."""
    listed = [{"id": number, "name": "A100" if number == 7 else "B200"} for number in range(8)]
    events = [kernel(number, 1, device=number) for number in used]
    assert load(write(tmp_path, *events, deviceProperties=listed)).meta.device == device


def test_another_tools_trace_has_only_a_host(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [host(1, 2, "main.py:1 f", "FEE")]}))
    trace = load(tmp_path / "t.json")
    assert (trace.meta.format, trace.devices, len(trace)) == ("chrome", (), 1)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (rb"C:\Users\dev\torch\cuda.py(219): f", r"C:\Users\dev" + "\torch" + r"\cuda.py(219): f"),
        (b"\x01\x0bconfig.py", "\x01\x0bconfig.py"),
        (b"a\ttab", "a\ttab"),
        (b"k\xff", "k\N{REPLACEMENT CHARACTER}"),
        (rb"half \ud83d pair", "half \N{REPLACEMENT CHARACTER} pair"),
        (rb"whole \ud83d\ude00 pair", "whole \N{GRINNING FACE} pair"),
        (rb"bad \u12 escape", r"bad \u12 escape"),
    ],
)
def test_invalid_strings_are_repaired(tmp_path: Path, raw: bytes, name: str) -> None:
    data = text_of(kernel(1, 1, "NAME"), kernel(2, 1), kernel(3, 1)).encode().replace(b"NAME", raw)
    (tmp_path / "t.json").write_bytes(data)
    trace = load(tmp_path / "t.json")
    assert (trace.name_of(0), len(trace), trace.complete) == (name, 3, True)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "nan", "inf"])
def test_numbers_that_are_not_finite_are_no_damage(tmp_path: Path, word: str) -> None:
    text = text_of(kernel(1, 1, occupancy="W", list=["W", 1]), kernel("W", 1), kernel(3, 1)).replace('"W"', word)
    (tmp_path / "t.json").write_text(text)
    trace = load(tmp_path / "t.json")
    assert (len(trace), health(trace, "n_dropped"), trace.complete) == (2, 1, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"k2"', '"k2'),
        ('"ts": 2', '"ts" 2'),
        ('{"ph": "X", "cat": "kernel", "name": "k2"', '"ph": "X", "cat": "kernel", "name": "k2"'),
        ('"k2", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "args": {', '"k2", "args": '),
        ('"k2"', '"k2\\"'),
    ],
)
def test_an_event_that_cannot_be_read_costs_no_other(tmp_path: Path, old: str, new: str) -> None:
    text = text_of(*(kernel(ts, 1, f"k{ts}") for ts in range(1, 6)))
    assert old in text
    (tmp_path / "t.json").write_text(text.replace(old, new))
    trace = load(tmp_path / "t.json")
    assert set(trace.names) - {"k2"} == {"k1", "k3", "k4", "k5"}
    assert (trace.complete, health(trace, "n_damaged")) == (False, 1)


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000])
def test_a_nested_bomb_costs_one_event(tmp_path: Path, deep: bytes) -> None:
    close = deep[::-1].translate(bytes.maketrans(b"[{", b"]}")).translate(None, b':"a')
    data = text_of(kernel(1, 1), kernel(2, 1, bomb="B"), kernel(3, 1)).encode()
    (tmp_path / "t.json").write_bytes(data.replace(b'"B"', deep + (b"1" if b"{" in deep else b"") + close))
    trace = load(tmp_path / "t.json")
    assert trace.start_ns.tolist() in ([1000, 3000], [1000, 2000, 3000])


# Files that are cut

TEXT = text_of(*DECODE, *DECODE[1:], deviceProperties=[{"id": 0, "name": "GPU"}, {"id": 1}])
LINES = TEXT.encode().splitlines(keepends=True)


def loaded(path: Path) -> Trace | None:
    """The trace, or None where the file is refused, in one line."""
    try:
        return load(path)
    except DataError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


@given(size=st.integers(0, len(TEXT)), piece=st.sampled_from([64, 300, 4 << 20]), packed=st.booleans())
@SETTINGS
def test_a_cut_file_keeps_every_whole_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, piece: int, packed: bool
) -> None:
    monkeypatch.setattr(stream, "PIECE", piece)
    data = TEXT.encode()[:size]
    path = tmp_path / "cut"
    path.write_bytes(gzip.compress(data) if packed else data)
    events = [len(line.rstrip(b",\n")) for line in LINES[1:-1]]
    starts = np.cumsum([len(line) for line in LINES])[:-2]
    whole = int((starts + events <= size).sum())
    trace = loaded(path)
    if trace is None:
        assert whole == 0
    else:
        assert health(trace, "n_events_recovered") == whole
        assert trace.complete == (size >= len(TEXT.rstrip()))


@given(st.floats(0, 1, exclude_max=True))
@SETTINGS
def test_a_cut_gzip_keeps_what_can_be_inflated(tmp_path: Path, share: float) -> None:
    data = gzip.compress(TEXT.encode(), mtime=0)
    (tmp_path / "cut.gz").write_bytes(data[: int(share * len(data))])
    trace = loaded(tmp_path / "cut.gz")
    assert trace is None or not trace.complete


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 7))
@SETTINGS
def test_a_flipped_bit_is_no_crash(tmp_path: Path, at: int, bit: int) -> None:
    data = bytearray(TEXT.encode())
    data[at] ^= 1 << bit
    (tmp_path / "t.json").write_bytes(data)
    trace = loaded(tmp_path / "t.json")
    if trace is not None and trace.complete:
        assert health(trace, "n_events") >= len(LINES) - 3  # all, or all but one whose phase the bit has hidden


@given(st.integers(20, 2000))
@SETTINGS
def test_the_size_of_the_pieces_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    path = tmp_path / "t.json"
    path.write_text(TEXT)
    whole = load(path)
    monkeypatch.setattr(stream, "PIECE", piece)
    assert spans(load(path)) == spans(whole)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_RATIO_COUNTS_FROM", 1 << 20)
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20)))
    with pytest.raises(DataError, match="inflates more than 300-fold"):
        load(tmp_path / "t.json.gz")


def test_an_endless_event_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbprof.formats.kineto.event_stream.MAX_EVENT", 4096)
    monkeypatch.setattr(stream, "PIECE", 1024)
    endless = text_of(kernel(1, 1), kernel(2, 1, "x" * 20_000), kernel(3, 1))
    (tmp_path / "t.json").write_text(endless)
    trace = load(tmp_path / "t.json")
    assert trace.start_ns.tolist() == [1000, 3000]
    assert (trace.complete, health(trace, "n_damaged")) == (False, 1)


# Two processes


@pytest.mark.parametrize("packed", [False, True])
def test_a_helper_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    begin, end = host(1, 0, "late") | {"ph": "B"}, host(5, 0, "late") | {"ph": "E"}
    steps = [kernel(10 * step, 5, f"k{step % 7}", correlation=step + 2**62) for step in range(3000)]
    text = text_of(begin, *steps, thread_name(HOST, "python"), *DECODE, end).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    alone = load(path)
    monkeypatch.setattr(stream, "PIECE", 20_000)
    monkeypatch.setattr(kineto, "HELPED_FROM", 0)
    monkeypatch.setattr(kineto, "is_worth_it", lambda: True)
    taken = []
    take = kineto_helper.Helper.take
    monkeypatch.setattr(kineto_helper.Helper, "take", lambda *args: taken.append(take(*args)) or taken[-1])
    monkeypatch.setattr("fcntl.fcntl", Mock(side_effect=PermissionError))  # no larger pipe is granted: no matter
    helped = load(path)
    assert any(taken)
    assert [span[:-1] for span in spans(helped)] == [span[:-1] for span in spans(alone)]
    assert len(set(helped.link.tolist())) == len(set(alone.link.tolist()))
    assert helped.meta == alone.meta


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere"])
def test_without_a_helper_that_fails(executable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, *(kernel(10 * step, 5) for step in range(3000)))
    monkeypatch.setattr(stream, "PIECE", 20_000)
    monkeypatch.setattr(kineto, "HELPED_FROM", 0)
    monkeypatch.setattr(kineto, "is_worth_it", lambda: True)
    monkeypatch.setattr(kineto_helper.sys, "executable", executable)
    assert len(load(path)) == 3000


def test_a_helper_runs_no_module_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, *(kernel(10 * step, 5) for step in range(3000)))
    (tmp_path / "queue.py").write_text("open('was run', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with path.open("rb") as file, kineto_helper.Helper(file.fileno()) as helper:
        assert helper.finish().n_events == 0
    assert not Path("was run").exists()


def test_a_helper_reads_the_file_that_was_opened_whatever_has_its_name_now(tmp_path: Path) -> None:
    path = write(tmp_path, *(kernel(10 * step, 5) for step in range(30)))
    text, begin = path.read_bytes(), path.read_bytes().index(b"[") + 1
    with path.open("rb") as file:
        os.replace(write(tmp_path, *(kernel(0, 1) for _ in range(30)), name="other.json"), path)
        with kineto_helper.Helper(file.fileno()) as helper:
            assert helper.take(1, text[begin:], text.rindex(b"]") - begin, begin)
            collected = helper.finish()
    assert collected.spans().start_ns.tolist() == [10_000 * step for step in range(30)]


@pytest.mark.parametrize("helped", [False, True])
def test_a_file_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helped: bool
) -> None:
    path = write(tmp_path, *(kernel(10 * step, 5) for step in range(3000)))
    other = write(tmp_path, *(kernel(10 * step, 9) for step in range(3000)), name="other.json")
    monkeypatch.setattr(stream, "PIECE", 20_000)
    monkeypatch.setattr(kineto, "HELPED_FROM", 0)
    monkeypatch.setattr(kineto, "is_worth_it", lambda: helped)

    def replace(read: int, _: int) -> None:
        if read > 100_000 and other.exists():
            os.replace(other, path)

    with pytest.raises(DataError, match="was replaced or written to while it was read"):
        load(path, progress=replace)
    assert set(load(path).dur_ns.tolist()) == {9000}
