"""The accounting of a profiler's trace: windows, causes of gaps, untraced time, overhead, steps, and its health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kineto_samples import DECODE, annotation, call, copy, host, kernel, write
from typer.testing import CliRunner

from cbprof.analysis.profiles.health import Health, examine
from cbprof.analysis.summary import Summary, summarize
from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.formats.steps.marks import Mark, read_mark


def summary(folder: Path, *events: Any, window: str | None = None, **fields: Any) -> Summary:
    return summarize(load(write(folder, *events, **fields)), window=window)


def device(folder: Path, *events: Any, window: str | None = None, **fields: Any) -> dict[str, Any]:
    """The only device, as `report --json --gaps all` has it."""
    (only,) = summary(folder, *events, window=window, **fields).to_json(gaps="all")["devices"]
    assert isinstance(only, dict)
    return only


def health(folder: Path, *events: Any) -> Health:
    return examine(load(write(folder, *events)))


# Windows


def test_by_default_the_window_is_what_the_device_ran_and_copies_keep_it_busy(tmp_path: Path) -> None:
    found = device(tmp_path, *DECODE)
    assert found["window_ns"] == [1_000_000, 13_020_001]
    assert (found["active_ns"], found["busy_ns"], found["idle_ns"]) == (8_000_000, 8_002_000, 4_018_001)
    assert device(tmp_path, *DECODE, window="run")["window_ns"] == [900_000, 13_020_001]


def test_each_device_has_its_own_span(tmp_path: Path) -> None:
    found = summary(tmp_path, kernel(10, 5, device=0), kernel(100, 5, device=3), kernel(120, 5, device=3))
    assert [(each.device, each.window.start_ns, each.window.end_ns) for each in found.devices] == [
        (0, 10_000, 15_000),
        (3, 100_000, 125_000),
    ]
    assert [each.idle_pct for each in found.devices] == [0, 60]
    assert found.health["mean_idle_pct"] == 30


def test_an_annotation_is_a_window(tmp_path: Path) -> None:
    events = (kernel(0, 100), annotation(50, 100, "a"), annotation(10, 40, "a"), annotation(0, 5, "a#2"))
    assert device(tmp_path, *events, window="annotation:a")["window_ns"] == [10_000, 50_000]
    found = device(tmp_path, *events, window="annotation:a#1")
    assert found["window_ns"] == [10_000, 50_000]
    assert found["idle_pct"] == 0
    # A name that has the sign in itself goes first.
    assert device(tmp_path, *events, window="annotation:a#2")["window_ns"] == [0, 5_000]
    second = device(tmp_path, kernel(0, 100), *events[1:3], window="annotation:a#2")
    assert (second["window_ns"], second["idle_ns"]) == ([50_000, 150_000], 50_000)
    assert [gap["start_ns"] for gap in second["gaps"]] == [100_000]


@pytest.mark.parametrize(
    ("window", "part"),
    [
        ("annotation:b", "no annotation of this name; it has 'a'"),
        ("annotation:a#3", "has 1 annotation 'a', counted from 1"),
        ("annotation:a#0", "has 1 annotation 'a', counted from 1"),
        ("explicit:1", "give two times in microseconds"),
        ("explicit:a:b", "give two times in microseconds"),
        ("whole", "'whole' is no window"),
        ("gpu_span:1", "'gpu_span:1' is no window"),
    ],
)
def test_windows_that_are_not_there(tmp_path: Path, window: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        summary(tmp_path, kernel(0, 100), annotation(50, 100, "a"), window=window)


def test_explicit_times_are_exact_and_cut_to_what_was_recorded(tmp_path: Path) -> None:
    base = 1743521598000000
    events = (host(base, 100, "op"), kernel(base + 10, 20), host(base - 50, 500, "all", cat="Trace"))
    found = device(tmp_path, *events, window=f"explicit:{base}.001:{base + 25}.999")
    assert found["window_ns"] == [base * 1000 + 1, base * 1000 + 25_999]
    assert found["busy_ns"] == 15_999
    whole = device(tmp_path, *events, window="explicit:0:1e18")
    assert whole["window_ns"] == [base * 1000, base * 1000 + 100_000]
    outside = device(tmp_path, *events, window="explicit:0:5000")
    assert (outside["window_ns"], outside["idle_pct"], outside["n_gaps"], outside["gaps"]) == (None, None, 0, [])


def test_steps_and_a_window_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        summarize(load(write(tmp_path, *DECODE)), steps=(0, 1), window="gpu_span")


# Causes


def test_causes_of_a_decode_bubble(tmp_path: Path) -> None:
    first, second = device(tmp_path, *DECODE)["gaps"]
    assert first == {
        "start_ns": 5_000_000,
        "end_ns": 5_005_000,
        "host_late_ns": 0,
        "in_launch_ns": 5_000,
        "queue_ns": 0,
        "cause_ns": {"launch": 5_000},
        "blame_ns": {},
        "step": None,
        "ended_by": {
            "name": "Memcpy DtoH (Device -> Pageable)",
            "stream": "stream 7",
            "launch": "cudaMemcpyAsync",
            "launch_start_ns": 1_100_000,
        },
    }
    assert (second["host_late_ns"], second["in_launch_ns"], second["queue_ns"]) == (3_993_000, 20_001, 0)
    assert second["blame_ns"] == {
        "schedule": 3_787_250,
        "(untraced)": 200_750,
        "cudaMemcpyAsync": 3_000,
        "cudaStreamSynchronize": 2_000,
    }


def test_only_the_thread_that_launches_is_to_blame(tmp_path: Path) -> None:
    events = (
        kernel(0, 10, correlation=1),
        host(10, 80, "elsewhere", tid=9),
        host(10, 20, "here"),
        call(90, 5, "cuLaunchKernel", 2) | {"cat": "cuda_driver"},
        kernel(100, 10, correlation=2),
    )
    (gap,) = device(tmp_path, *events)["gaps"]
    assert gap["blame_ns"] == {"(untraced)": 60_000, "here": 20_000}
    assert (gap["in_launch_ns"], gap["queue_ns"]) == (5_000, 5_000)


def test_the_innermost_frame_is_to_blame_and_frames_may_outlive_their_callers(tmp_path: Path) -> None:
    frames = [(0, 100, "outer"), (10, 50, "inner"), (30, 40, "late"), (35, 5, "twin"), (35, 2, "short")]
    events = [host(ts, dur, name, "python_function") for ts, dur, name in frames]
    launch = (call(90, 5, "cudaLaunchKernel", 1), kernel(0, 5), kernel(95, 5, correlation=1))
    (gap,) = device(tmp_path, *events, *launch)["gaps"]
    assert gap["blame_ns"] == {"late": 35_000, "outer": 25_000, "inner": 20_000, "twin": 3_000, "short": 2_000}


def test_of_a_launch_that_is_not_recorded_nothing_is_said(tmp_path: Path) -> None:
    (gap,) = device(tmp_path, kernel(0, 5), kernel(15, 5, correlation=4))["gaps"]
    assert [gap[key] for key in ("host_late_ns", "in_launch_ns", "queue_ns", "blame_ns")] == [None, None, None, {}]


# States


def test_host_time_without_a_record_is_in_no_state(tmp_path: Path) -> None:
    launch = (call(0, 10, "cudaLaunchKernel", 1), kernel(0, 500, correlation=1))
    most = host(10, 960, "work")  # of 1000 us, 970 are recorded
    found = device(tmp_path, *launch, most, kernel(990, 10))
    assert found["states_ns"] == {
        "overlap": 500_000,
        "gpu_only": 0,
        "cpu_only": 470_000,
        "neither": 0,
        "untraced": 30_000,
    }
    little = (*launch, host(10, 400, "work"), kernel(990, 10))
    known = {"overlap": 410_000, "gpu_only": 0, "cpu_only": 0, "neither": 0}
    assert device(tmp_path, *little)["states_ns"] == known | {"untraced": 590_000}
    assert any(
        "the host is not recorded for 59.00 % of the time" in warning for warning in summary(tmp_path, *little).warnings
    )


def test_the_frame_of_a_step_says_nothing_about_the_host(tmp_path: Path) -> None:
    events = (call(0, 10, "cudaLaunchKernel", 1), kernel(10, 90, correlation=1))
    framed = device(tmp_path, *events, annotation(0, 100, "ProfilerStep#3"))
    assert framed["states_ns"]["untraced"] == 90_000
    told = device(tmp_path, *events, annotation(0, 100, "detokenize"))
    assert told["states_ns"]["untraced"] == 0
    assert told["host_overlap_ns"] == {"detokenize": 90_000}


def test_overhead_of_the_profiler_can_be_left_out(tmp_path: Path) -> None:
    events = (kernel(0, 40), host(30, 40, "Buffer Flush", "overhead"), kernel(80, 20))
    found = device(tmp_path, *events)
    assert (found["idle_pct"], found["overhead_ns"]) == (40, 40_000)
    assert found["idle_pct_excl_overhead"] == pytest.approx(100 * 10 / 60)
    assert device(tmp_path, *events[::2])["idle_pct_excl_overhead"] is None


def test_collectives_are_busy_and_counted_apart(tmp_path: Path) -> None:
    found = device(tmp_path, kernel(0, 10), kernel(5, 45, "ncclDevKernel_AllReduce", stream=20), kernel(90, 10))
    keys = ("kernel_busy_ns", "comm_busy_ns", "exposed_comm_ns", "compute_excl_comm_busy_ns", "sum_gpu_ns")
    assert [found[key] for key in keys] == [60_000, 45_000, 40_000, 20_000, 65_000]
    assert found["not_computing_pct"] == 80


def test_a_device_may_have_a_name(tmp_path: Path) -> None:
    assert device(tmp_path, kernel(0, 10) | {"pid": "gpu-a", "args": {"stream": 1}})["device"] == "gpu-a"


# Health


def test_nothing_odd(tmp_path: Path) -> None:
    found = health(tmp_path, *DECODE)
    assert (found.reliable, found.warnings) == (True, ())
    counts = ("n_gpu_events", "n_streams", "n_gpu_without_launch", "n_graph_launches", "n_launches_without_gpu_events")
    assert [found.counts[key] for key in counts] == [3, 1, 0, 2, 0]
    details = found.details()
    assert details["launch_delay_us"] == [100, 3905, 20.001]
    assert details["gpu_events_per_correlation"] == {"1": 1, "5": 1, "9": 1}


def test_graph_launches_without_kernels(tmp_path: Path) -> None:
    found = health(tmp_path, *DECODE[:-1])
    assert not found.reliable
    assert found.counts["n_graph_launches_without_gpu_events"] == 1
    assert found.warnings == (
        "1 graph launch has no device events: what they ran was launched, not recorded, and shows as idle",
    )


def test_kernels_before_their_launch_are_kept_and_flagged(tmp_path: Path) -> None:
    found = health(tmp_path, call(10, 5, "cudaLaunchKernel", 1), kernel(6.5, 5, correlation=1))
    assert found.reliable
    assert found.counts["n_negative_launch_delay"] == 1
    assert "by up to 3.5 us" in found.warnings[0]


def test_twins_are_counted_once(tmp_path: Path) -> None:
    twin, other = kernel(10, 5, correlation=1), kernel(10, 5, "other", correlation=2)
    found = health(tmp_path, twin, other, twin, kernel(10, 5, stream=9, correlation=1), twin)
    assert (found.counts["n_gpu_events"], found.counts["n_gpu_events_dedup"]) == (5, 3)
    assert found.counts["n_duplicates"] == 2


def test_a_duration_that_ran_away(tmp_path: Path) -> None:
    events = (kernel(0, 10), kernel(20, 5000), kernel(40, 10), kernel(60, 10))
    assert not health(tmp_path, *events).reliable
    clipped = device(tmp_path, *events)["clip_to_next_start"]
    assert (clipped["window_ns"], clipped["busy_ns"], clipped["n_gaps"]) == ([0, 70_000], 50_000, 2)
    # Branches of one graph, and a kernel that begins early, are no such thing.
    graph = [kernel(0, 100, correlation=1), kernel(10, 5, correlation=1), kernel(95, 50, correlation=2)]
    found = health(tmp_path, *graph)
    assert (found.reliable, found.counts["same_stream_overlaps"]) == (True, 2)


def test_a_cut_file_is_not_reliable(tmp_path: Path) -> None:
    path = write(tmp_path, *DECODE)
    path.write_text(path.read_text()[:-100])
    found = summarize(load(path)).to_json()
    assert (found["complete"], found["reliable"], found["health"]["complete"]) == (False, False, False)
    assert "cut" in " ".join(found["warnings"])


def test_no_device_at_all(tmp_path: Path) -> None:
    found = summary(tmp_path, call(10, 5, "cudaLaunchKernel", 1)).to_json()
    assert (found["devices"], found["health"]["n_launches_without_gpu_events"]) == ([], 1)
    assert "no span on a device: idle time is unknown" in found["warnings"]


def test_doctor(tmp_path: Path) -> None:
    good = CliRunner().invoke(app, ["doctor", str(write(tmp_path, *DECODE))])
    assert (good.exit_code, "can be trusted" in good.stdout) == (0, True)
    bad = write(tmp_path, *DECODE[:-1], name="bad.json")
    shown = CliRunner().invoke(app, ["doctor", str(bad)])
    assert (shown.exit_code, "should not be trusted" in shown.stdout) == (1, True)
    told = json.loads(CliRunner().invoke(app, ["doctor", str(bad), "--json"]).stdout)
    assert (told["reliable"], told["health"]["n_graph_launches_without_gpu_events"]) == (False, 1)


# Steps


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("execute_context_0(0)_generation_4(4)", Mark(0, tokens=4, requests=4, phase=1)),
        ("execute_context_2(700)_generation_0(0)", Mark(0, tokens=700, requests=2, phase=0)),
        ("execute_context_1(512)_generation_31(31)", Mark(0, tokens=543, requests=32, phase=2)),
        (
            "execute_33_context_1(sq1sk5sqsq1sqsk5)_generation_32(sq32sk55086sqsq32sqsk55086)",
            Mark(0, tokens=33, requests=33, context=55091, phase=2),
        ),
        ("step[DECODE bs=32]", Mark(1, tokens=32, requests=32, phase=1)),
        ("step[EXTEND bs=4 toks=512]", Mark(1, tokens=512, requests=4, phase=0)),
        ("step[IDLE bs=0]", Mark(1, requests=0)),
        ("execute_context_1(512_16)_generation_32(32)", Mark(0, tokens=544, requests=33, phase=2)),
        ("execute_context_1(888_788544)_generation_0(0_0)", Mark(0, tokens=888, requests=1, phase=0)),
        ("execute_context_1(many)_generation_2(2)", Mark(0, requests=3, phase=2)),
        ("execute_new_1_cached_31", Mark(2, requests=32, phase=2)),
        ("execute_new_4_cached_0", Mark(2, requests=4, phase=0)),
        ("execute_new_0_cached_32", Mark(2, tokens=32, requests=32, phase=1)),
        ("[Executor] _forward_step 7: 1 ctx reqs, 8 gen reqs", Mark(3, step=7, requests=9, phase=2)),
        ("[Executor] _forward_step 8: 0 ctx reqs, 8 gen reqs", Mark(3, step=8, tokens=8, requests=8, phase=1)),
        ("[Executor] _forward_step 9: 2 ctx reqs, 70 ctx tokens, 1 gen reqs", Mark(3, 9, 71, 3, phase=2)),
        ("prefill[bs=1 tok=512 ctx=0]", Mark(4, tokens=512, requests=1, phase=0)),
        ("decode[bs=32 ctx=9]", Mark(4, requests=32, phase=1)),
        ("ProfilerStep#12", Mark(5, step=12)),
        ("schedule", None),
        ("execute_model", None),
    ],
)
def test_annotations_of_steps(name: str, mark: Mark | None) -> None:
    found = read_mark(name)
    assert (found and found._replace(generated=-1)) == mark


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("execute_context_0(0)_generation_4(4)", 4),
        ("execute_context_2(700)_generation_0(0)", 0),
        ("execute_context_1(512)_generation_31(31)", 31),
        ("execute_context_0(0)_generation_8(32)", -1),  # drafts, of which some are dropped
        ("execute_33_context_1(sq1sk5sqsq1sqsk5)_generation_32(sq32sk55086sqsq32sqsk55086)", 32),
        ("execute_96_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq96sk55086sqsq32sqsk55086)", -1),
        ("execute_context_1(many)_generation_2(2)", 2),
        ("execute_new_1_cached_31", 31),
        ("step[DECODE bs=32]", 32),
        ("step[EXTEND bs=4 toks=512]", 0),
        ("step[MIXED bs=4]", -1),
        ("step[TARGET_VERIFY bs=4]", -1),
        ("decode[bs=32 ctx=9]", 32),
        ("prefill[bs=1 tok=512 ctx=0]", 0),
        ("mixed[bs=9 tok=512]", -1),
        ("[Executor] _forward_step 7: 1 ctx reqs, 8 gen reqs", 8),
        ("ProfilerStep#12", -1),
    ],
)
def test_tokens_that_a_step_generated(name: str, tokens: int) -> None:
    assert getattr(read_mark(name), "generated", None) == tokens


def test_steps_of_an_engine(tmp_path: Path) -> None:
    events = [
        annotation(0, 100, "ProfilerStep#7"),
        annotation(0, 50, "execute_context_1(512)_generation_0(0)"),
        call(10, 5, "cudaGraphLaunch", 1),
        kernel(20, 60, correlation=1),
        annotation(200, 50, "execute_context_0(0)_generation_4(4)"),
        call(210, 5, "cudaGraphLaunch", 2),
        kernel(220, 60, correlation=2),
        copy(290, 2, "DtoH (Device -> Pinned)", correlation=3),
        call(260, 5, "cudaMemcpyAsync", 3),
    ]
    trace = load(write(tmp_path, *events))
    assert [(trace.name_of(row), step) for row, step in enumerate(trace.step.tolist()) if step != -1] == [
        ("ProfilerStep#7", 0),
        ("execute_context_1(512)_generation_0(0)", 0),
        ("cudaGraphLaunch", 0),
        ("gemm", 0),
        ("execute_context_0(0)_generation_4(4)", 1),
        ("cudaGraphLaunch", 1),
        ("gemm", 1),
    ]
    assert (trace.steps.tokens.tolist(), trace.steps.phase.tolist()) == ([512, 4], [0, 1])
    (gpu,) = summarize(trace).devices
    assert (gpu.steps.start_ns.tolist(), gpu.steps.requests.tolist()) == ([20_000, 220_000], [1, 4])
    (second,) = summarize(trace, steps=(1, None)).devices
    assert second.window.start_ns == 220_000


def test_steps_of_the_profiler_keep_their_numbers(tmp_path: Path) -> None:
    events = (annotation(0, 50, "ProfilerStep#7"), call(10, 5, "cudaLaunchKernel", 1), kernel(60, 5, correlation=1))
    trace = load(write(tmp_path, *events))
    assert trace.step.tolist() == [7, 7, 7]
    assert len(trace.steps) == 0
