"""Where steps end and what they are called: the last one ends with its work, gaps lie before or inside a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_samples import annotation, call, host, kernel, write
from oracle import COMPUTE, ENGINE, Row, trace_of

from cbprof.analysis.summary import Summary, summarize
from cbprof.formats import load
from cbprof.render.picture.scene import scene
from cbprof.render.picture.step_raster import usual_length
from cbprof.render.static.figure import _steps_title
from cbprof.render.tables.summary import place_of
from cbprof.trace import Kind, Trace


def profiled(folder: Path, *, recorded_us: int) -> Trace:
    """Five steps of 100 us with two kernels each; the host is recorded for so long after the last one."""
    events = []
    for step in range(5):
        start = 100 * step
        events += [
            annotation(start, 95, f"ProfilerStep#{step}"),
            call(start, 5, "cudaLaunchKernel", 2 * step + 1),
            kernel(start + 5, 30, correlation=2 * step + 1),
            call(start + 10, 50, "cudaLaunchKernel", 2 * step + 2),
            kernel(start + 60, 30, correlation=2 * step + 2),
        ]
    return load(write(folder, *events, host(500, recorded_us, "export")))


@pytest.mark.parametrize("recorded_us", [1, 1000, 100_000])
def test_the_last_step_ends_with_its_work_however_long_the_recording_goes_on(tmp_path: Path, recorded_us: int) -> None:
    trace = profiled(tmp_path, recorded_us=recorded_us)
    found = summarize(trace)
    assert found.devices[0].steps.period_ns.tolist() == [100_000] * 4 + [85_000]
    assert found.step_percentile_ns(99) == 100_000
    assert found.to_json()["steps"]["p99_ns"] == 100_000
    seen = scene(trace)
    assert usual_length(trace, seen.devices[0]) <= 104_000


def test_in_a_run_of_our_own_the_last_step_ends_when_its_results_were_read() -> None:
    rows: list[Row] = [
        (ENGINE, Kind.CPU_WORK, "launch", 0, 10, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 10, 50, 0),
        (ENGINE, Kind.CPU_WAIT, "wait", 10, 50, 0),
        (ENGINE, Kind.CPU_WORK, "update", 50, 65, 0),
        (ENGINE, Kind.CPU_WORK, "shut down", 65, 900, -1),
    ]
    assert summarize(trace_of(*rows)).devices[0].steps.period_ns.tolist() == [55]


def places(found: Summary) -> list[str]:
    gaps = found.devices[0].gaps
    return [place_of(gaps, row) for row in range(len(gaps))]


def test_a_gap_between_two_kernels_of_a_step_is_inside_it(tmp_path: Path) -> None:
    found = summarize(profiled(tmp_path, recorded_us=1))
    assert places(found) == ["inside step 0", *(f"{at} step {n}" for n in range(1, 5) for at in ("before", "inside"))]


def test_a_gap_that_ends_with_no_step_has_no_place(tmp_path: Path) -> None:
    events = (call(0, 5, "cudaLaunchKernel", 1), kernel(5, 5, correlation=1), kernel(20, 5, correlation=2))
    assert places(summarize(load(write(tmp_path, *events)))) == [""]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_picture_names_the_steps_whose_compute_it_shows(ahead: int) -> None:
    """While step N computes, the host works for the step that is so many ahead."""
    rows: list[Row] = []
    for step in range(100):
        start = 1000 * step
        rows.append((COMPUTE, Kind.GPU_COMPUTE, "compute", start, start + 990, step))
        if step + ahead < 100:
            rows.append((ENGINE, Kind.CPU_WORK, "schedule", start, start + 300, step + ahead))
    seen = scene(trace_of(*rows))
    assert seen.steps.numbers_between(10_000, 14_000).tolist() == [10, 11, 12, 13]
    assert seen.steps.numbers_between(9_900, 14_050).tolist() == [10, 11, 12, 13]  # slivers at the edges have no name
    assert _steps_title(seen, 10_000, 14_000).startswith("steps 10 to 13")
