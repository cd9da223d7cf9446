"""The summary and its JSON: exact on a small trace, right on the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from oracle import COMPUTE, ENGINE, H2D, STEP, trace_of, traces

from cbprof.analysis.summary import summarize
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestEvent, Trace, TraceBuilder

TWO_STEPS = (
    *STEP,
    (ENGINE, Kind.CPU_WORK, "schedule", 104, 120, 1),
    (ENGINE, Kind.CPU_WORK, "launch", 125, 135, 1),
    (ENGINE, Kind.CPU_WAIT, "wait", 135, 165, 1),
    (H2D, Kind.GPU_H2D, "h2d", 100, 110, 1),
    (COMPUTE, Kind.GPU_COMPUTE, "compute", 140, 160, 1),
)

DEPTH = (
    "gap_percentiles_ns",
    "one_off_idle_ns",
    "idle_pct_excl_one_off",
    "overlap",
    "over_time",
    "over_context",
    "verdict",
)


def test_report_of_two_steps() -> None:
    report = summarize(trace_of(*TWO_STEPS, mode="sync", evidence="emulated")).to_json(file="trace.json")
    verdict, (device,) = report.pop("verdict"), report["devices"]
    assert [each["command"] for each in report.pop("advice")] == ["cbprof lab async", "cbprof predict trace.json"]
    ends = [(gap.pop("step"), *gap.pop("ended_by").values()) for gap in device["gaps"]]
    assert ends == [(1, "compute", "compute", "launch", 125), (0, "compute", "compute", "launch", 30), (None,) * 5]
    causes, tree = device.pop("causes"), device.pop("cause_tree")
    assert sum(cause["ns"] for cause in causes) == 95
    assert [branch["name"] for branch in tree] == ["iteration", "schedule"]
    depth = {key: device.pop(key) for key in DEPTH}
    assert report == {
        "schema": 1,
        "file": "trace.json",
        "format": "chrome",
        "evidence": "emulated",
        "mode": "sync",
        "complete": True,
        "reliable": True,
        "warnings": [],
        "health": {},
        "window": "run",
        "devices": [
            {
                "device": 0,
                "rank": 0,
                "window_ns": [0, 165],
                "active_ns": 70,
                "busy_ns": 80,
                "kernel_busy_ns": 70,
                "comm_busy_ns": 0,
                "exposed_comm_ns": 0,
                "idle_ns": 95,
                "idle_pct": pytest.approx(100 * 95 / 165),
                "idle_pct_excl_overhead": None,
                "missing_ns": 0,
                "idle_pct_excl_missing": None,
                "n_gpu_events": 3,
                "n_streams": 2,
                "n_graph_launches": None,
                "n_gaps": 3,
                "longest_gap_ns": 55,
                "gaps": [
                    {
                        "start_ns": 85,
                        "end_ns": 140,
                        "host_late_ns": 40,
                        "in_launch_ns": 10,
                        "queue_ns": 5,
                        "cause_ns": {
                            "schedule": 16,
                            "iteration": 10,
                            "launch": 10,
                            "the host to wake up": 5,
                            "(no host span)": 5,
                            "its turn in the queue": 5,
                            "a copy": 4,
                        },
                        "blame_ns": {
                            "schedule": 16,
                            "iteration": 10,
                            "transfer": 4,
                            "sync latency": 5,
                            "unattributed": 5,
                        },
                    },
                    {
                        "start_ns": 0,
                        "end_ns": 35,
                        "host_late_ns": 30,
                        "in_launch_ns": 5,
                        "queue_ns": 0,
                        "cause_ns": {"schedule": 20, "iteration": 10, "launch": 5},
                        "blame_ns": {"schedule": 20, "iteration": 10},
                    },
                    {
                        "start_ns": 160,
                        "end_ns": 165,
                        "host_late_ns": 5,
                        "in_launch_ns": 0,
                        "queue_ns": 0,
                        "cause_ns": {"the host to wake up": 5},
                        "blame_ns": {"sync latency": 5},
                    },
                ],
                "states_ns": {"overlap": 15, "gpu_only": 55, "cpu_only": 71, "neither": 24, "untraced": 0},
                "untraced_ns": {"gpu_active": 0, "gpu_idle": 0},
                "ceiling_ns": 70,
                "speedup_bound": pytest.approx(165 / 70),
                "device_work": [],
            }
        ],
        "phases": [
            {"name": "schedule", "total_ns": 36, "exposed_ns": 36, "count": 2, "p50_ns": 16, "p99_ns": 20},
            {"name": "iteration", "total_ns": 30, "exposed_ns": 20, "count": 1, "p50_ns": 30, "p99_ns": 30},
            {"name": "wait", "total_ns": 70, "exposed_ns": 15, "count": 2, "p50_ns": 30, "p99_ns": 40},
            {"name": "launch", "total_ns": 20, "exposed_ns": 15, "count": 2, "p50_ns": 10, "p99_ns": 10},
        ],
        "steps": {"count": 2, "p50_ns": 25, "p99_ns": 105, "source": "recorded", "confidence": None},
        "tokens": None,
        "tokens_per_s": None,
        "latency": None,
        "lost": None,
        "one_off": {},
    }
    json.dumps(report)  # plain Python values only

    assert depth["gap_percentiles_ns"] == {"p50": 35, "p90": 55, "p99": 55}
    assert (depth["one_off_idle_ns"], depth["idle_pct_excl_one_off"]) == (0, pytest.approx(100 * 95 / 165))
    assert depth["overlap"] == {
        "hidden_ns": 15,
        "hideable_ns": 70,
        "efficiency_pct": pytest.approx(100 * 15 / 70),
        "graph_coverage_pct": None,
        "steps_without_graph": None,
        "launch_lead_ns": {"p1": -50, "p50": -50},
        "launch_late_pct": 100,
    }
    assert [(part["start"], part["idle_ns"], part["n_steps"]) for part in depth["over_time"]] == [
        (0, 16, 0),
        (16, 17, 0),
        (33, 2, 1),
        (49, 0, 0),
        (66, 0, 0),
        (82, 14, 0),
        (99, 16, 0),
        (115, 17, 0),
        (132, 8, 1),
        (148, 5, 0),
    ]
    assert depth["over_context"] == []
    assert depth["verdict"] == verdict
    assert (verdict["bound"], verdict["shortened_ns"]) == ("host-bound", {"device": 7, "host": 8})


def test_all_gaps_in_the_order_of_time() -> None:
    report = summarize(trace_of(*TWO_STEPS)).to_json(gaps="all")
    assert [gap["start_ns"] for gap in report["devices"][0]["gaps"]] == [0, 85, 160]


def test_busy_counts_copies() -> None:
    device = summarize(trace_of(*TWO_STEPS), activity="busy").devices[0]
    assert (device.idle_ns, device.ceiling_ns, device.active_ns) == (85, 80, 70)


def test_a_stretch_of_steps() -> None:
    trace = trace_of(*TWO_STEPS)
    first = summarize(trace, steps=(0, 1))
    assert first.window is not None
    assert (first.window.start_ns, first.window.end_ns, first.window.name) == (35, 140, "steps 0:1")
    assert first.devices[0].steps.step.tolist() == [0]
    whole = summarize(trace).devices[0].steps
    assert first.devices[0].steps.cpu_work_ns[0] == whole.cpu_work_ns[0], "a row does not depend on the window"
    with pytest.raises(UsageError, match="holds no step"):
        summarize(trace, steps=(5, None))


def test_the_step_table() -> None:
    steps = summarize(trace_of(*TWO_STEPS)).devices[0].steps
    assert steps.step.tolist() == [0, 1]
    assert steps.period_ns.tolist() == [105, 25]
    assert steps.cpu_work_ns.tolist() == [60, 26]
    assert steps.cpu_exposed_ns.tolist() == [45, 26]
    assert steps.gap_ns.tolist() == [35, 55]
    assert steps.h2d_ns.tolist() == [0, 10]
    assert steps.tokens.tolist() == [-1, -1], "unknown"
    assert list(steps.to_pandas().columns[:2]) == ["step", "start_ns"]


def test_facts_of_batches() -> None:
    builder = TraceBuilder()
    builder.batch(0, tokens=64, requests=2, context=64, phase="prefill")
    builder.span(builder.lane(ENGINE), Kind.CPU_WORK, "launch", 0, 5, step=0)
    builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 2, 9, step=0, slot=1)
    builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 20, 9, step=1, slot=0)
    steps = summarize(builder.build()).devices[0].steps
    assert (steps.tokens.tolist(), steps.requests.tolist(), steps.context.tolist()) == ([64, -1], [2, -1], [64, -1])
    assert (steps.phase.tolist(), steps.slot.tolist()) == ([0, -1], [1, 0])


def test_nothing_on_a_device_is_unknown_rather_than_idle() -> None:
    summary = summarize(trace_of((ENGINE, Kind.CPU_WORK, "schedule", 0, 50, 0)))
    report = summary.to_json()
    assert report["devices"] == []
    assert report["window"] is None
    assert report["steps"] == {"count": 0, "p50_ns": None, "p99_ns": None, "source": "recorded", "confidence": None}
    assert summary.warnings == ("no span on a device: idle time is unknown",)
    assert summary.tokens_per_s is None


def test_a_device_without_a_compute_is_unknown_rather_than_idle() -> None:
    trace = trace_of(*STEP, (Lane("h2d", 1), Kind.GPU_H2D, "h2d", 20, 30, 0), evidence="emulated")
    device = summarize(trace).to_json()["devices"][1]
    assert (device["device"], device["n_gpu_events"], device["busy_ns"]) == (1, 1, 10)
    unknown = ("idle_ns", "idle_pct", "n_gaps", "longest_gap_ns", "states_ns", "ceiling_ns", "speedup_bound")
    assert {key: device[key] for key in unknown} == dict.fromkeys(unknown)
    assert summarize(trace).warnings == ("device 1 ran no compute in the window: its idle time is unknown",)


def test_an_empty_trace() -> None:
    assert summarize(TraceBuilder().build()).to_json()["devices"] == []


def test_warnings_in_plain_words() -> None:
    trace = trace_of(*STEP, complete=False, evidence="cuda_events", health={"n_dropped": 3})
    summary = summarize(trace)
    assert not summary.reliable
    assert [warning.split(":")[0] for warning in summary.warnings] == [
        "incomplete trace",
        "3 events of the file could not be read",
        "no clock error stated",
    ]
    only_device = trace_of((COMPUTE, Kind.GPU_COMPUTE, "compute", 0, 5, 0), evidence="emulated")
    assert summarize(only_device).warnings == ("no span of the host: what the device waited for is unknown",)


def with_tokens(*times: int, **meta: object) -> Trace:
    builder = TraceBuilder()
    for lane, kind, name, start, end, step in TWO_STEPS:
        builder.span(builder.lane(lane), kind, name, start, end - start, step=step)
    builder.request(RequestEvent.ARRIVE, 0, 0)
    for number, time in enumerate(times):
        builder.request(RequestEvent.TOKEN if number else RequestEvent.FIRST, 0, time)
    return builder.build(Meta.parse(meta))


def test_tokens_as_the_run_says_or_as_its_requests_show() -> None:
    assert summarize(with_tokens(tokens=7)).tokens == 7
    assert summarize(with_tokens(workload={"tokens": 8})).tokens == 8
    assert summarize(with_tokens(95, 165)).tokens == 2
    assert summarize(with_tokens(95, 165, tokens=7), steps=(0, 1)).tokens == 1
    assert summarize(with_tokens(95, 165)).tokens_per_s == pytest.approx(2 / 165e-9)
    assert summarize(with_tokens()).tokens is None


@given(traces())
def test_figures_agree_with_each_other(trace: Trace) -> None:
    summary = summarize(trace)
    for device in summary.devices:
        assert sum(device.states) == device.window.length_ns
        assert device.states.overlap + device.states.gpu_only == device.active_ns
        assert device.gaps.total_ns == sum(part.ns for part in device.blame.totals())
        assert device.idle_ns in {None, device.gaps.total_ns}
        if device.idle_ns is None:
            assert not device.over_time
        else:
            assert sum(part.idle_ns for part in device.over_time) == device.idle_ns
            assert sum(part.wall_ns for part in device.over_time) == device.window.length_ns
        assert 0 <= device.one_off_idle_ns <= device.gaps.total_ns
        assert 0 <= device.overlap.hidden_ns <= device.overlap.hideable_ns
        assert device.active_ns <= device.kernel_busy_ns <= device.busy_ns
    json.dumps(summary.to_json(gaps="all"))


@pytest.fixture(scope="module", params=["sync", "async"])
def real(request: pytest.FixtureRequest) -> tuple[str, Trace]:
    path = Path(__file__).parent / f"data/h200_transformers/{request.param}_8b_bs32_8k.json.gz"
    return request.param, load(path)


def test_a_real_run(real: tuple[str, Trace]) -> None:
    """transformers on an H200: the published figures of data/h200_transformers/README.md."""
    mode, trace = real
    summary = summarize(trace)
    device = summary.devices[0]
    assert device.idle_pct == pytest.approx({"sync": 24.336, "async": 0.232}[mode], abs=0.001)
    assert (summary.n_steps, summary.tokens) == {"sync": (7935, 253_888), "async": (8193, 262_144)}[mode]
    assert sum(part.ns for part in device.blame.totals()) == device.idle_ns
    assert sum(device.states) == summary.wall_ns


def test_idle_time_grows_with_the_context(real: tuple[str, Trace]) -> None:
    mode, trace = real
    if mode == "sync":
        assert summarize(trace, steps=(0, 1000)).devices[0].idle_pct == pytest.approx(15.7, abs=0.05)
        assert summarize(trace, steps=(7000, None)).devices[0].idle_pct == pytest.approx(25.0, abs=0.05)


def test_between_computes_the_host_is_late(real: tuple[str, Trace]) -> None:
    """Of the 837 ms between the computes of the async run, 825 ms are host-late."""
    mode, trace = real
    if mode == "async":
        gaps = summarize(trace).devices[0].gaps
        between = slice(1, -1)  # the first gap precedes all computes, the last follows them
        assert gaps.length_ns[between].sum() / 1e6 == pytest.approx(837, abs=1)
        assert gaps.host_late_ns[between].sum() / 1e6 == pytest.approx(825, abs=1)
