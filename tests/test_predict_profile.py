"""Predictions from a profile: the same loops in virtual time, taken as a profiler's records; and blocks by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from virtual_time import record_virtual
from virtual_workloads import CASES, Case

from cbprof.analysis.predict.predict import predict
from cbprof.analysis.summary import summarize
from cbprof.errors import UsageError
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

CLOSED = {
    "GPU-bound",
    "host-bound",
    "balanced",
    "chunked prefill",
    "jitter 20 %",
    "glue of 50 us",
    "glue of 50 us, host-bound",
    "wake-up of 200 us",
    "glue, wake-up and jitter",
    "async on itself",
    "sync on itself, glue and wake-up",
    "bursts of 4",
    "bursts, GPU-bound",
}


def as_profile(trace: Trace) -> Trace:
    """What a profiler would have recorded of the same run: the same spans, but no word on modes or batches."""
    return replace(trace, meta=trace.meta.changed(evidence="cupti", mode=None, config=None, workload=None))


@pytest.mark.parametrize("case", [case for case in CASES if case.name in CLOSED], ids=lambda case: case.name)
def test_a_profile_is_replayed_like_a_trace(case: Case) -> None:
    measured, _ = record_virtual(case.config, case.workload, case.measured, case.costs)
    truth, _ = record_virtual(case.config_of(case.predicted), case.workload, case.predicted, case.costs)
    prediction = predict(as_profile(measured), **case.order)
    assert prediction.measured_mode == case.measured
    wall = summarize(as_profile(truth)).devices[0].window.length_ns
    assert prediction.predicted_wall_ns == pytest.approx(wall, rel=0.01)


def profile(*, steps: int = 4, mark: bool = True, waits: bool = True, launch: int = 2, kernels: int = 3) -> Trace:
    """Steps of 100 ns: 20 of the host, then ``kernels`` launches of ``launch`` ns each, and a wait.

    Each kernel runs for 10 ns, with a hole of 1 between those that were launched in time.
    """
    builder = TraceBuilder()
    host, stream = builder.lane(Lane("thread 1")), builder.lane(Lane("stream 7", 0))
    link, begin = 0, 0
    for step in range(steps):
        said = step if mark else -1
        at, free = begin + 20, 0
        builder.span(host, Kind.CPU_WORK, "prepare", begin, 20, step=said)
        for _ in range(kernels):
            builder.span(host, Kind.CPU_WORK, "cudaLaunchKernel", at, launch, step=said, link=link)
            at += launch
            start = max(at, free + 1 if free else 0)
            builder.span(stream, Kind.GPU_COMPUTE, "kernel", start, 10, step=said, link=link)
            free, link = start + 10, link + 1
        if waits:
            builder.span(host, Kind.CPU_WAIT, "cudaStreamSynchronize", at, free - at, step=said)
        begin = free
    return builder.build(Meta.parse({"evidence": "cupti", "complete": True}))


def test_holes_inside_a_block_stay_and_the_time_between_blocks_goes() -> None:
    """The first kernel starts at 22 and the third is over at 54. The next block, launched meanwhile, follows it."""
    prediction = predict(profile())
    assert prediction.measured_wall_ns == 4 * 54 - 22
    assert prediction.predicted_wall_ns == 4 * 32 + 3 * 0
    assert prediction.predicted_idle_ns == 4 * 2
    assert prediction.measured_idle_ns == 4 * 2 + 3 * 22
    assert predict(profile(), slots=1).predicted_wall_ns == 4 * 54 - 22


def test_a_launch_bound_profile_gains_nothing_from_async_batching() -> None:
    """Each launch takes longer than its kernel: the device waits inside the steps, not between them."""
    trace = profile(launch=50, kernels=20)
    prediction = predict(trace)
    assert prediction.measured_idle_pct is not None
    assert prediction.measured_idle_pct > 75
    assert prediction.speedup == pytest.approx(1, abs=0.02)
    assert len(prediction.host_bound_steps) == 3


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (profile(mark=False), "does not say where a step begins; record steps with"),
        (profile(waits=False), "never blocks for the results"),
    ],
)
def test_a_profile_that_lacks_something_is_refused_and_told_how_to_record_it(trace: Trace, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict(trace)


def test_a_phase_of_a_profile_can_be_scaled() -> None:
    assert predict(profile(), slots=1, scale={"prepare": 0.5}).predicted_wall_ns == 4 * 54 - 22 - 3 * 10
    with pytest.raises(UsageError, match="the host has no phase 'detokenize'"):
        predict(profile(), drop=["detokenize"])
