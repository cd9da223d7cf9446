"""Predictions: exact against a slow simulator, by hand on small traces, and within 1 % on the real pair."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import traces
from replay_oracle import Costs, Span, costs, simulate, trace_of_run
from simulation import serve
from test_tracer import CONFIG, make

from cbprof.analysis.accounting.window import run_window, steps_window
from cbprof.analysis.hazards.hazards import find_hazards
from cbprof.analysis.predict.predict import Prediction, predict
from cbprof.analysis.summary import summarize
from cbprof.engine.request import Request
from cbprof.errors import UsageError
from cbprof.formats import load, save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestEvent, Trace, TraceBuilder

DATA = Path(__file__).parent / "data"
REAL = DATA / "h200_transformers"


def device_spans(trace: Trace) -> list[Span]:
    """What ran on the device, in the words of the oracle."""
    rows = np.flatnonzero(trace.on_device)
    names = {Kind.GPU_H2D: "h2d", Kind.GPU_COMPUTE: "compute", Kind.GPU_D2H: "d2h"}
    found = []
    for row in rows.tolist():
        name = names[Kind(trace.kind[row])]
        found.append(Span(name, int(trace.step[row]), int(trace.start_ns[row]), int(trace.end_ns[row]), name))
    return sorted(found)


def host_spans(trace: Trace) -> list[Span]:
    rows = np.flatnonzero(trace.kind == Kind.CPU_WORK)
    spans = (
        Span(trace.name_of(row), int(trace.step[row]), int(trace.start_ns[row]), int(trace.end_ns[row]))
        for row in rows.tolist()
    )
    return sorted(spans)


def wall(spans: list[Span]) -> int:
    return max(span.end for span in spans) - min(span.start for span in spans)


# Against the simulator ------------------------------------------------------------------------------------------------


@given(st.lists(costs, min_size=1, max_size=6), st.integers(1, 4))
def test_a_sync_trace_gives_the_run_of_the_simulator(steps: list[Costs], slots: int) -> None:
    predicted = predict(trace_of_run(steps, 1), slots=slots)
    expected = simulate(steps, slots)
    assert device_spans(predicted.trace) == sorted(span for span in expected if span.stream)
    assert host_spans(predicted.trace) == sorted(span for span in expected if not span.stream)
    assert predicted.predicted_wall_ns == wall(expected)
    assert predicted.measured_wall_ns == wall(simulate(steps, 1))


@given(st.lists(costs, min_size=1, max_size=6), st.integers(2, 3))
def test_an_async_trace_replays_as_itself(steps: list[Costs], slots: int) -> None:
    measured = trace_of_run(steps, slots)
    predicted = predict(measured, slots=slots)
    assert device_spans(predicted.trace) == device_spans(measured)
    assert predicted.predicted_wall_ns == predicted.measured_wall_ns


@given(st.lists(costs, min_size=1, max_size=5), st.integers(1, 3), st.sampled_from([0.5, 2.0, 3.0]), st.data())
def test_what_ifs_compose(steps: list[Costs], slots: int, speed: float, data: st.DataObject) -> None:
    factors = {name: data.draw(st.integers(0, 3)) for name in ("schedule", "prepare", "update")}
    changed = [
        cost._replace(
            compute=round(cost.compute / speed), **{name: getattr(cost, name) * by for name, by in factors.items()}
        )
        for cost in steps
    ]
    dropped = [name for name, by in factors.items() if not by]
    scaled = {name: float(by) for name, by in factors.items() if by}
    predicted = predict(trace_of_run(steps, 1), slots=slots, gpu_speed=speed, scale=scaled, drop=dropped)
    expected = [span for span in simulate(changed, slots) if span.stream]
    assert device_spans(predicted.trace) == sorted(expected)


@given(st.lists(costs, min_size=1, max_size=6), st.integers(1, 3))
def test_every_figure_agrees_with_the_report_on_the_predicted_trace(steps: list[Costs], slots: int) -> None:
    prediction = predict(trace_of_run(steps, 1), slots=slots)
    device = summarize(prediction.trace).devices[0]
    assert device.window.length_ns == prediction.predicted_wall_ns
    assert device.idle_pct == prediction.predicted_idle_pct
    assert device.ceiling_ns == prediction.ceiling_ns == sum(cost.compute for cost in steps)
    assert sum(device.states) == prediction.predicted_wall_ns
    measured = summarize(trace_of_run(steps, 1)).devices[0]
    assert measured.idle_pct == prediction.measured_idle_pct


@given(st.lists(costs, min_size=2, max_size=8), st.integers(1, 3))
def test_host_bound_steps_are_those_that_the_device_waits_for(steps: list[Costs], slots: int) -> None:
    prediction = predict(trace_of_run(steps, 1), slots=slots)
    computes = sorted(
        (span for span in simulate(steps, slots) if span.name == "compute"), key=lambda span: (span.step, span.start)
    )
    waited = tuple(after.step for before, after in pairwise(computes) if after.start > before.end)
    assert prediction.host_bound_steps == waited


@given(st.lists(costs, min_size=1, max_size=6), st.integers(2, 3))
def test_the_order_of_a_prediction_is_safe(steps: list[Costs], slots: int) -> None:
    hazards = find_hazards(predict(trace_of_run(steps, 1), slots=slots).trace)
    assert all(result.n_found == result.n_possible == 0 for result in hazards.rules)


def test_the_ceiling_is_that_of_the_report_on_the_same_file() -> None:
    """Also where the device worked for no batch: what it did then is not faster in another order of the host's work."""
    trace = trace_of_run([Costs()] * 6, 1)
    rows = np.flatnonzero(trace.kind == Kind.GPU_COMPUTE)
    longer = trace.dur_ns.copy()
    longer[rows[0]] += 3  # begins under the copy to the device
    trace = replace(trace, dur_ns=longer)
    assert predict(trace).ceiling_ns == summarize(trace).devices[0].ceiling_ns
    assert predict(trace, gpu_speed=2).ceiling_ns == round(predict(trace).ceiling_ns / 2)


# By hand --------------------------------------------------------------------------------------------------------------


def test_the_async_time_by_hand() -> None:
    """Sync: 2+3+1 to the H2D call's end, copy 2, compute 20, copy back 1, update 2 = 31 a step.

    Async: compute 0 starts at 8 as before, then one follows the other, and 1 + 2 are left at the end.
    """
    prediction = predict(trace_of_run([Costs()] * 4, 1))
    assert prediction.measured_wall_ns == 4 * 31
    assert prediction.predicted_wall_ns == 8 + 4 * 20 + 1 + 2
    assert prediction.predicted_idle_pct == 100 * 11 / 91
    assert prediction.speedup == 124 / 91
    assert prediction.host_bound_steps == ()


def test_a_gpu_that_is_too_fast_leaves_the_host_bound() -> None:
    """The host needs 2+3+1+1+1+2 = 10 a step, the device 5."""
    prediction = predict(trace_of_run([Costs()] * 6, 1), gpu_speed=4)
    assert prediction.host_bound_steps == (1, 2, 3, 4, 5)
    assert prediction.ceiling_ns == 6 * 5


def small(*rows: tuple[str, Kind, str, int, int, int], mode: str = "sync", **meta: Any) -> Trace:
    """A trace of (lane, kind, name, start, end, step); the host's lane is ``engine``."""
    builder = TraceBuilder()
    for lane, kind, name, start, end, step in rows:
        lane_id = builder.lane(Lane(lane, 0 if kind.on_device else -1))
        builder.span(lane_id, kind, name, start, end - start, step=step)
    return builder.build(Meta.parse({"mode": mode, "evidence": "cuda_events", "complete": True, **meta}))


def nested_sync(*, capture: int = 0, capturing: int = 1) -> Trace:
    """Two steps in the shape of the transformers traces: phases nest, and the copies are part of the host's work.

    Per step: iteration 0-40 {prepare 1-9 {schedule 2-4, inputs 5-8}, dispatch 10-34 {compute.launch 12-15, wait 16-33},
    update 35-39 {read 36-38}}, compute 13-32. Step ``capturing`` is longer by a capture in its launch.
    """
    rows = []
    for step, at in ((0, 0), (1, 40 if capturing else 40 + capture)):
        extra = capture if step == capturing else 0
        rows += [
            ("engine", Kind.CPU_WORK, "iteration", at, at + 40 + extra, step),
            ("engine", Kind.CPU_WORK, "prepare", at + 1, at + 9, step),
            ("engine", Kind.CPU_WORK, "schedule", at + 2, at + 4, step),
            ("engine", Kind.CPU_WORK, "inputs", at + 5, at + 8, step),
            ("engine", Kind.CPU_WORK, "dispatch", at + 10, at + 34 + extra, step),
            ("engine", Kind.CPU_WORK, "compute.launch", at + 12, at + 15 + extra, step),
            ("compute", Kind.GPU_COMPUTE, "compute", at + 13, at + 32 + extra, step),
            ("engine", Kind.CPU_WAIT, "wait", at + 16 + extra, at + 33 + extra, step),
            ("engine", Kind.CPU_WORK, "update", at + 35 + extra, at + 39 + extra, step),
            ("engine", Kind.CPU_WORK, "read", at + 36 + extra, at + 38 + extra, step),
        ]
        if extra:
            rows.append(("engine", Kind.CPU_WORK, "capture", at + 14, at + 14 + extra, step))
    return small(*rows)


def test_nested_phases_keep_their_exclusive_times_and_split_at_the_wait() -> None:
    """Before the wait 16 of each step, after it 7; computes of 19 start 13 into the first step, then back to back."""
    prediction = predict(nested_sync())
    assert [(s.start, s.end) for s in device_spans(prediction.trace)] == [(13, 32), (32, 51)]
    # Step 1 is launched at 16 + 13 and its compute is over at 51; the host wakes up 1 later. It comes to the results of
    # step 0 at 32, just when they are there.
    spans = host_spans(prediction.trace)
    iterations = [(span.step, span.start, span.end) for span in spans if span.name == "iteration"]
    assert iterations == [(0, 0, 16), (0, 32, 39), (1, 16, 32), (1, 52, 59)]
    assert [span[1:] for span in spans if span.name == "inputs"] == [(0, 5, 8, ""), (1, 21, 24, "")]
    assert [span[1:] for span in spans if span.name == "read"] == [(0, 35, 37, ""), (1, 55, 57, "")]
    assert prediction.predicted_wall_ns == 59


def test_a_phase_takes_along_what_is_nested_in_it_and_factors_multiply() -> None:
    prediction = predict(nested_sync(), slots=1, drop=["prepare"])
    assert prediction.predicted_wall_ns == 80 - 2 * 8
    prediction = predict(nested_sync(), slots=1, scale={"prepare": 2, "schedule": 3})
    assert prediction.predicted_wall_ns == 80 + 2 * (6 + 2 * 5)


def captures_of(prediction: Prediction) -> list[tuple[int, int]]:
    """(step, length) of each capture."""
    spans = host_spans(prediction.trace)
    return [(span.step, span.end - span.start) for span in spans if span.name == "capture"]


def test_a_capture_inside_a_compute_span_is_not_compute() -> None:
    """Step 1 captures for 100 ns from 14 into it, at 16 + 14; its compute of 19 follows. No step 2 captures again."""
    prediction = predict(nested_sync(capture=100))
    assert [(s.start, s.end) for s in device_spans(prediction.trace)] == [(13, 32), (130, 149)]
    assert captures_of(prediction) == [(1, 100)]
    assert prediction.one_off_ns == 100
    assert prediction.host_bound_steps == ()


def test_captures_repeat_for_the_other_slot() -> None:
    """Step 0 captures until 114; step 1, from 116 on, captures again just before its launch at 116 + 13."""
    trace = nested_sync(capture=100, capturing=0)
    prediction = predict(trace)
    assert captures_of(prediction) == [(0, 100), (1, 100)]
    assert [(s.start, s.end) for s in device_spans(prediction.trace)] == [(114, 133), (229, 248)]
    assert prediction.one_off_ns == 200
    assert captures_of(predict(trace, slots=1)) == [(0, 100)]
    assert captures_of(predict(trace, drop=["capture"])) == []
    assert captures_of(predict(trace, drop=["compute.launch"])) == [(0, 100), (1, 100)]


def test_an_update_that_waits_first_comes_after_as_a_whole() -> None:
    """Async, as in transformers: update 0 encloses the wait for batch 0 and runs after the launch of batch 1."""
    rows = []
    for step, at in ((0, 0), (1, 5)):
        rows += [
            ("engine", Kind.CPU_WORK, "prepare", at, at + 3, step),
            ("engine", Kind.CPU_WORK, "launch", at + 3, at + 5, step),
            ("compute", Kind.GPU_COMPUTE, "compute", 5 + 20 * step, 25 + 20 * step, step),
            ("engine", Kind.CPU_WORK, "update", 10 + 18 * step, 28 + 22 * step, step),
            ("engine", Kind.CPU_WAIT, "wait", 11 + 18 * step, 25 + 20 * step, step),
        ]
    prediction = predict(small(*rows, mode="async"))
    updates = [span for span in host_spans(prediction.trace) if span.name == "update"]
    assert [(span.step, span.start, span.end) for span in updates] == [(0, 25, 29), (1, 45, 51)]


def test_time_without_a_span_counts_while_the_device_is_idle() -> None:
    rows = []
    for at, step in ((0, 0), (30, 1)):
        rows += [
            ("engine", Kind.CPU_WORK, "prepare", at, at + 2, step),
            ("engine", Kind.CPU_WORK, "launch", at + 5, at + 6, step),  # 3 ns of nothing before it
            ("compute", Kind.GPU_COMPUTE, "compute", at + 6, at + 26, step),
            ("engine", Kind.CPU_WAIT, "wait", at + 9, at + 26, step),  # 3 ns of nothing while the device runs
            ("engine", Kind.CPU_WORK, "update", at + 28, at + 30, step),  # 2 ns of nothing before it
        ]
    prediction = predict(small(*rows), slots=1)
    assert prediction.predicted_wall_ns == prediction.measured_wall_ns == 60
    # The time before update belongs to batch 0 and follows its results at 26.
    updates = [span[1:4] for span in host_spans(predict(small(*rows)).trace) if span.name == "update"]
    assert updates[0] == (0, 28, 30)


def test_without_wait_spans_the_host_waits_from_its_launch_until_the_device_is_done() -> None:
    """An update that blocks for 18 of its 20 ns, as `tokens.tolist()` does."""
    rows = []
    for at, step in ((0, 0), (26, 1)):
        rows += [
            ("engine", Kind.CPU_WORK, "launch", at, at + 4, step),
            ("compute", Kind.GPU_COMPUTE, "compute", at + 4, at + 24, step),
            ("engine", Kind.CPU_WORK, "update", at + 6, at + 26, step),
        ]
    prediction = predict(small(*rows))
    assert prediction.predicted_wall_ns == 4 + 20 + 20 + 2
    assert "no wait spans" in prediction.notes[0]


def test_requests_arrive_when_they_did() -> None:
    """Batch 1 has to wait for its request until 100, however fast batch 0 is; batch 0 is landed before that."""
    rows = [
        ("engine", Kind.CPU_WORK, "launch", 0, 10, 0),
        ("compute", Kind.GPU_COMPUTE, "compute", 10, 30, 0),
        ("engine", Kind.CPU_WAIT, "wait", 10, 30, 0),
        ("engine", Kind.CPU_WORK, "update", 30, 35, 0),
        ("engine", Kind.CPU_WORK, "schedule", 35, 36, 1),
        ("engine", Kind.CPU_WAIT, "no_requests", 36, 100, 1),
        ("engine", Kind.CPU_WORK, "launch", 100, 110, 1),
        ("compute", Kind.GPU_COMPUTE, "compute", 110, 130, 1),
        ("engine", Kind.CPU_WAIT, "wait", 110, 130, 1),
    ]
    prediction = predict(small(*rows), gpu_speed=2)
    assert [(s.start, s.end) for s in device_spans(prediction.trace)] == [(10, 20), (110, 120)]
    starved = prediction.trace.names.index("no_requests")
    (row,) = np.flatnonzero(prediction.trace.name_id == starved)
    assert (prediction.trace.start_ns[row], prediction.trace.end_ns[row]) == (26, 100)
    assert prediction.host_bound_steps == ()
    assert "requests arrive when they did" in prediction.notes[0]


# The predicted trace --------------------------------------------------------------------------------------------------


def test_the_predicted_trace_is_a_trace_like_any_other(tmp_path: Path) -> None:
    source = trace_of_run([Costs()] * 4, 1, tokens=4, device="toy")
    trace = predict(source, gpu_speed=2).trace
    assert (trace.mode, trace.evidence, trace.complete) == ("async", "predicted", True)
    assert trace.meta.extra["predicted_from"] == {
        "mode": "sync",
        "evidence": "emulated",
        "wall_ns": 124,
        "what_if": {"mode": "async", "slots": 2, "steps_per_sync": 1, "gpu_speed": 2, "scale": {}},
    }
    assert not trace.meta.edges
    assert sorted(set(trace.slot[trace.on_device].tolist())) == [0, 1]
    assert {trace.name_of(row) for row in range(len(trace))} == {
        "schedule", "prepare", "h2d", "launch", "fetch", "wait", "update", "compute", "d2h",
    }  # fmt: skip
    summary = summarize(trace)
    assert summary.n_steps == 4
    assert summary.devices[0].blame.totals()
    save(trace, tmp_path / "predicted.json")
    again = load(tmp_path / "predicted.json")
    assert device_spans(again) == device_spans(trace)
    assert again.evidence == "predicted"


def test_links_join_a_launch_to_its_work() -> None:
    trace = predict(trace_of_run([Costs()] * 3, 1), drop=["launch"]).trace
    for row in np.flatnonzero(trace.on_device).tolist():
        (launch,) = np.flatnonzero((trace.link == trace.link[row]) & ~trace.on_device)
        assert trace.step[launch] == trace.step[row]
        assert trace.slot[launch] == trace.slot[row] == trace.step[row] % 2


def test_tokens_move_with_the_update_that_brought_them() -> None:
    trace = predict(trace_of_run([Costs()] * 3, 1)).trace
    updates = [span.end for span in host_spans(trace) if span.name == "update"]
    tokens = trace.requests.time_ns[trace.requests.event == RequestEvent.TOKEN]
    assert tokens.tolist() == sorted(updates)
    assert trace.requests.time_ns[0] == 0


def test_the_json_has_the_promised_keys() -> None:
    report = predict(trace_of_run([Costs()] * 4, 1)).to_json()
    assert report["predicted_wall_ns"] == 91
    assert report["predicted_idle_pct"] == 100 * 11 / 91
    assert report["speedup"] == 124 / 91
    assert report["host_bound_steps"] == []
    assert report["schema"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 0}, "0 slots: a batch needs one"),
        ({"gpu_speed": 0}, "a GPU 0 times as fast"),
        ({"gpu_speed": float("nan")}, "a GPU nan times as fast"),
        ({"scale": {"update": -1}}, "scale update=-1"),
        ({"drop": ["detokenize"]}, "its phases are fetch, h2d, launch, prepare, schedule, update"),
        ({"scale": {"wait": 0.5}}, "the host has no phase 'wait'"),
        ({"drop": "update"}, "give a list of phases"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict(trace_of_run([Costs()], 1), **changes)


@pytest.mark.parametrize(
    "trace",
    [
        TraceBuilder().build(),
        small(("engine", Kind.CPU_WORK, "schedule", 0, 5, 0)),
        small(("compute", Kind.GPU_COMPUTE, "compute", 0, 5, -1), ("engine", Kind.CPU_WORK, "schedule", 0, 5, -1)),
        small(("compute", Kind.GPU_COMPUTE, "compute", 0, 5, 0)),
        trace_of_run([Costs()], 1, evidence="cupti"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(trace: Trace) -> None:
    with pytest.raises(UsageError, match="nothing to replay"):
        predict(trace)


@given(traces(), st.sampled_from(["sync", "async", None]), st.integers(1, 3), st.sampled_from([1.0, 2.0]))
def test_any_trace_is_replayed_or_refused(trace: Trace, mode: str | None, slots: int, speed: float) -> None:
    """Spans of every kind without any order between them: no crash, and a window that holds all compute."""
    trace = replace(trace, meta=trace.meta.changed(mode=mode))
    try:
        prediction = predict(trace, slots=slots, gpu_speed=speed)
    except UsageError:
        return
    assert 0 <= prediction.ceiling_ns <= prediction.predicted_wall_ns
    assert prediction.trace.evidence == "predicted"
    assert (prediction.trace.dur_ns >= 0).all()
    steps = trace.step[trace.kind == Kind.GPU_COMPUTE]
    assert set(prediction.trace.step.tolist()) <= set(steps.tolist())


# Recorded runs --------------------------------------------------------------------------------------------------------


def test_a_sync_run_of_the_engine_itself() -> None:
    """The sync loop under the tracer, on fake clocks: every batch is there, and overlap never costs time."""
    requests = [Request(index, [1 + index] * (3 + index), 4) for index in range(4)]
    tracer, sink, _ = make()
    serve(CONFIG, requests, "sync", seed=1, vocab_size=97, hooks=tracer)
    tracer.close()
    measured = sink.build(Meta.parse({"mode": "sync", "complete": True}))
    prediction = predict(measured)
    assert prediction.n_steps == len(measured.steps)
    computes = prediction.trace.mask(kinds=[Kind.GPU_COMPUTE])
    assert prediction.trace.step[computes].tolist() == measured.steps.step.tolist()
    assert prediction.predicted_wall_ns <= prediction.measured_wall_ns
    assert not find_hazards(prediction.trace).found


def error(prediction: Prediction, measured: Trace, steps: int | None = None) -> float:
    """The relative error of a prediction over the first ``steps`` steps."""
    if steps is None:
        window = run_window(measured)
        assert window is not None
        return abs(prediction.predicted_wall_ns / window.length_ns - 1)
    lengths = [steps_window(trace, None, steps).length_ns for trace in (prediction.trace, measured)]
    return abs(lengths[0] / lengths[1] - 1)


def test_a_recorded_pair_on_the_device_process() -> None:
    sync, overlapped = (load(DATA / f"host_{mode}.json.gz") for mode in ("sync", "async"))
    assert error(predict(sync), overlapped) < 0.05
    assert error(predict(overlapped), overlapped) < 0.01


def test_the_real_pair_within_one_percent() -> None:
    sync, overlapped = (load(REAL / f"{mode}_8b_bs32_8k.json.gz") for mode in ("sync", "async"))
    prediction = predict(sync)
    assert error(prediction, overlapped, 7900) < 0.01
    assert error(predict(overlapped), overlapped) < 0.001
    captures = (
        int(((trace.name_id == trace.names.index("capture")) & (trace.step < 7900)).sum())
        for trace in (prediction.trace, overlapped)
    )
    assert next(captures) == next(captures) == 36
    assert error(predict(sync, slots=1), sync) < 0.001
