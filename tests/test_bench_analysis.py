"""The benchmark of the analysis: its generated trace is the async run that it claims to be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from cbprof.analysis.summary import summarize
from cbprof.analysis.verdict.verdict import Bound

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench_analysis.py"


def bench() -> Any:
    spec = importlib.util.spec_from_file_location("bench_analysis", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_trace_is_an_async_run() -> None:
    summary = summarize(bench().generated(10_000))
    (device,) = summary.devices
    assert summary.n_steps == 1000
    assert summary.verdict.bound is Bound.DEVICE
    assert device.overlap.launch_lead is not None
    assert device.overlap.launch_lead.n_late == 0
    assert {phase.name for phase in summary.phases} == {
        "schedule",
        "prepare",
        "h2d",
        "launch",
        "fetch",
        "wait",
        "update",
    }
    assert device.idle_pct is not None
    assert 0 < device.idle_pct < 1
