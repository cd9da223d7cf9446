"""Predictions against the truth in virtual time: the table of docs/predict.md, row by row, and a run on itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from virtual_time import Costs, record_virtual
from virtual_workloads import BARS, BEYOND_THE_BAR, CASES, Case

from cbprof.analysis.accounting.window import run_window
from cbprof.analysis.predict.predict import predict
from cbprof.engine.config import EngineConfig
from cbprof.engine.workload import Workload
from cbprof.trace import Trace

TABLE = Path(__file__).parent.parent / "docs" / "predict.md"


def length_ns(trace: Trace) -> int:
    window = run_window(trace)
    assert window is not None
    return window.length_ns


def row_of(case: Case) -> tuple[float, str]:
    """The error of the prediction, and its row in the table."""
    measured, _ = record_virtual(case.config, case.workload, case.measured, case.costs)
    truth, _ = record_virtual(case.config, case.workload, case.predicted, case.costs)
    prediction = predict(measured, slots=case.slots)
    error = prediction.predicted_wall_ns / length_ns(truth) - 1
    return error, (
        f"| {case.name} | {case.measured} to {case.predicted} | {length_ns(measured) / 1e6:.1f} | "
        f"{prediction.predicted_wall_ns / 1e6:.1f} | {length_ns(truth) / 1e6:.1f} | "
        f"{round(100 * error, 2) + 0:+.2f} % |"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_workload_in_virtual_time(case: Case) -> None:
    """As the table of the documentation says, and within the bar of its kind, but for those known to be beyond it."""
    error, row = row_of(case)
    assert row in TABLE.read_text(encoding="utf-8").splitlines()
    assert (abs(error) <= BARS[case.kind]) != (case.name in BEYOND_THE_BAR)


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
        assert predict(measured, slots=slots).predicted_wall_ns == pytest.approx(length_ns(measured), rel=0.003)
