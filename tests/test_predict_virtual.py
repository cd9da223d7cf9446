"""Predictions against the truth in virtual time: the table of docs/predict.md, row by row, and a run on itself."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from virtual_time import Costs, record_virtual
from virtual_workloads import BARS, CASES, Case

from cbprof.analysis.accounting.window import run_window
from cbprof.analysis.predict.predict import predict
from cbprof.analysis.predict.uncertainty import Doubt, another_run, interval_of
from cbprof.analysis.requests.lives import lives
from cbprof.analysis.summary import summarize
from cbprof.engine.config import EngineConfig
from cbprof.engine.workload import Workload
from cbprof.trace import Kind, RequestEvent, Trace

TABLE = Path(__file__).parent.parent / "docs" / "predict.md"


def length_ns(trace: Trace) -> int:
    window = run_window(trace)
    assert window is not None
    return window.length_ns


def row_of(case: Case) -> tuple[float, str]:
    """The error of the prediction, and its row in the table. Raises AssertionError for another count of lost tokens."""
    measured, _ = record_virtual(case.config_of(case.measured), case.workload, case.measured, case.costs)
    truth, run = record_virtual(case.config_of(case.predicted), case.workload, case.predicted, case.costs)
    prediction = predict(measured, **case.order)
    assert prediction.dropped_tokens in (None, run.scheduler.counters.dropped)
    shortest, longest = prediction.interval_ns
    assert shortest <= length_ns(truth) <= longest
    error = prediction.predicted_wall_ns / length_ns(truth) - 1
    return error, (
        f"| {case.name} | {case.measured} to {case.predicted} | {length_ns(measured) / 1e6:.1f} | "
        f"{prediction.predicted_wall_ns / 1e6:.1f} | {length_ns(truth) / 1e6:.1f} | "
        f"{round(100 * error, 2) + 0:+.2f} % |"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_workload_in_virtual_time(case: Case) -> None:
    """As the table of the documentation says, and within the bar of its kind."""
    error, row = row_of(case)
    assert row in TABLE.read_text(encoding="utf-8").splitlines()
    assert abs(error) <= BARS[case.kind]


def nobody_is_early(trace: Trace) -> None:
    """Every request arrives, then rides, then gets its tokens."""
    decided = {
        int(trace.step[row]): int(trace.end_ns[row]) for row in np.flatnonzero(trace.kind == Kind.CPU_WORK)[::-1]
    }
    arrived = {
        int(request): int(time)
        for request, time, event in zip(
            trace.requests.request, trace.requests.time_ns, trace.requests.event, strict=True
        )
        if event == RequestEvent.ARRIVE
    }
    for step, request in zip(trace.riders.step.tolist(), trace.riders.request.tolist(), strict=True):
        assert decided[step] >= arrived.get(request, 0) - 1  # times are rounded
    for life in lives(trace):
        assert life.ttft_ns is None or life.ttft_ns >= 0
        assert (life.itl_ns >= 0).all()


def test_what_is_assumed_of_time_without_a_span_weighs_most_where_there_is_much_of_it() -> None:
    measured, _ = record_virtual(EngineConfig(), Workload(requests=8, new_tokens=(20, 20)), "sync", Costs(glue=400))
    first, *others = predict(measured, slots=1).doubts
    assert first.what == "host time without a span counts as work"
    # Before five phases; what comes before `fetch` and the wait passes while the device computes.
    glue_ns = 5 * 400_000 * predict(measured).n_steps
    assert first.low_ns == pytest.approx(-glue_ns, rel=0.02)
    assert first.high_ns == 0
    assert {doubt.what: doubt.low_ns for doubt in others}["the host wakes up as late as it was measured"] == 0


def test_what_another_run_would_draw() -> None:
    """95 % of the differences between two sums of steps; steps that only grow are no chance."""
    draw = np.random.default_rng(0)
    sums = [int(draw.normal(5e6, 3e5, 400).sum()) for _ in range(2000)]
    lengths = np.rint(draw.normal(5e6, 3e5, 400)).astype(np.int64)
    doubt = another_run(np.concatenate(([0], np.cumsum(lengths))))
    beyond = np.abs(np.subtract(sums[::2], sums[1::2])) > doubt.high_ns
    assert 0.02 < beyond.mean() < 0.1
    growing = another_run(np.cumsum(np.arange(5_000_000, 6_000_000, 1000)))
    assert growing.high_ns < 100_000
    two_kinds = another_run(np.cumsum([9, 9, 9, 9, 2, 2, 2, 2]), kind=np.array([9, 9, 9, 9, 2, 2, 2, 2]))
    assert (two_kinds.low_ns, two_kinds.high_ns) == (0, 0)
    assert another_run(np.array([0, 5])).what == "too few steps are alike to know what another run would draw"


def test_doubts_add_up_by_their_squares() -> None:
    assert interval_of(100, [Doubt("a", -3, 6), Doubt("b", -4, 8)]) == (95, 110)
    assert interval_of(2, [Doubt("a", -3, 0)]) == (0, 2)


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_batches_that_the_policy_does_not_form_keep_their_requests(speed: float) -> None:
    """Here the engine took half of what its configuration would allow. Requests still arrive before they ride."""
    config = EngineConfig(max_batch=8, max_batch_tokens=64, prefill_chunk=64, max_context=64)
    workload = Workload(requests=20, prompt_len=(4, 8), new_tokens=(10, 20), rate=100.0)
    measured, _ = record_virtual(replace(config, max_batch=2), workload, "sync", Costs())
    claims = replace(measured, meta=measured.meta.changed(config={**asdict(config)}))
    prediction = predict(claims, gpu_speed=speed)
    assert prediction.dropped_tokens is None
    assert prediction.predicted_steps == prediction.n_steps
    nobody_is_early(prediction.trace)


def test_late_ends_are_told_in_words() -> None:
    case = next(case for case in CASES if case.name == "stop tokens, mean 6")
    measured, _ = record_virtual(case.config, case.workload, "sync", case.costs)
    assert predict(measured).notes == (
        "5.2 tokens a request, and 100 of 100 end by a stop token, seen late: 1.0 more are computed for each; "
        "slower by 6.31 %",
    )


def test_a_gpu_that_waits_for_requests_still_waits_at_the_ceiling() -> None:
    workload = Workload(requests=5, prompt_len=(4, 4), new_tokens=(2, 2), rate=5.0)
    measured, _ = record_virtual(EngineConfig(max_batch=2), workload, "sync", Costs())
    prediction = predict(measured)
    last = measured.requests.time_ns[measured.requests.event == RequestEvent.ARRIVE].max()
    assert last < prediction.ceiling_ns <= prediction.predicted_wall_ns


def test_the_ceiling_of_a_report_counts_the_time_without_requests() -> None:
    """And so does that of a prediction which keeps the batches, and replays the run on itself."""
    workload = Workload(requests=5, prompt_len=(4, 4), new_tokens=(2, 2), rate=5.0)
    measured, _ = record_virtual(EngineConfig(max_batch=2), workload, "sync", Costs())
    (device,) = summarize(measured).devices
    starved = measured.dur_ns[np.isin(measured.name_id, measured.ids_of("no_requests"))].sum()
    assert device.starved_ns == starved > 0
    assert device.ceiling_ns == device.active_ns + starved == predict(measured, slots=1).ceiling_ns


@pytest.mark.parametrize("seed", range(60))
def test_a_run_replayed_on_itself_takes_as_long(seed: int) -> None:
    """Random loops. (Drawn here, not by hypothesis: to shrink a whole run takes minutes.)"""
    draw = random.Random(seed)
    names = ("schedule", "prepare", "h2d_call", "launch", "fetch", "update", "glue", "wake", "latency", "h2d", "d2h")
    costs = Costs(
        **{name: draw.choice((1, 5, draw.randint(1, 400))) for name in names},
        compute=draw.choice((1, draw.randint(1, 3000))),
        compute_token=draw.randint(0, 50),
        jitter=draw.choice((0.0, 0.3, 0.9)),
    )
    workload = Workload(
        requests=draw.randint(1, 8),
        prompt_len=(1, 20),
        new_tokens=(1, 12),
        rate=draw.choice((0.0, 100.0, 2000.0)),
        stop_tokens=draw.choice(((), tuple(range(200)))),
        seed=seed,
    )
    config = EngineConfig(max_batch=4, max_batch_tokens=16, prefill_chunk=8, max_context=40)
    for mode, slots in (("sync", 1), ("async", 2)):
        measured, _ = record_virtual(config, workload, mode, costs)
        nobody_is_early(predict(measured, slots=3 - slots).trace)
        assert predict(measured, slots=slots).predicted_wall_ns == pytest.approx(length_ns(measured), rel=0.003)
