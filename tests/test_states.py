"""Who was active when: the innermost host span, the lanes that drive a device, the four states, the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from oracle import (
    BUSY,
    CALLER,
    COMPUTE,
    ENGINE,
    H2D,
    LENGTH,
    STEP,
    Oracle,
    Row,
    cells,
    pairs_of,
    trace_of,
    traces,
)

from cbprof.analysis.accounting.host import driving_lanes, host_timeline
from cbprof.analysis.accounting.states import cpu_active, gpu_active, states
from cbprof.analysis.accounting.window import Window, run_window, steps_window
from cbprof.errors import UsageError
from cbprof.trace import Kind, Trace, TraceBuilder


def test_a_wait_inside_work_is_idle() -> None:
    trace = trace_of(*STEP)
    assert pairs_of(cpu_active(trace)) == [(0, 50), (90, 100)]
    assert states(trace, Window(0, 100), 0).totals() == (15, 35, 0, 0, 45, 5)


@given(traces())
def test_innermost_span_at_each_instant(trace: Trace) -> None:
    host, oracle = host_timeline(trace), Oracle(trace)
    found = {
        (int(lane), t): int(span)
        for lane, span, start, end in zip(host.lane, host.span, host.start, host.end, strict=True)
        for t in range(start, end)
    }
    expected = {
        (lane, t): row
        for lane in oracle.host_lanes()
        for t in range(LENGTH)
        if (row := oracle.innermost(lane, t)) is not None
    }
    assert found == expected
    assert int(host.length_ns.sum()) == len(found), "the segments of a lane are disjoint"


@given(traces())
def test_launches_and_the_lanes_that_drive(trace: Trace) -> None:
    host, oracle = host_timeline(trace), Oracle(trace)
    expected = [oracle.launch(row) if oracle.kind[row].on_device else None for row in oracle.rows]
    assert host.launch_of.tolist() == [-1 if launch is None else launch for launch in expected]
    for device in (None, 0, 1):
        assert set(driving_lanes(trace, host, device).tolist()) == oracle.driving_lanes(device)


@given(traces())
def test_states_partition_the_window(trace: Trace) -> None:
    oracle = Oracle(trace)
    for device in (0, 1):
        for activity, kinds in (("compute", (Kind.GPU_COMPUTE,)), ("busy", BUSY)):
            window = Window(3, LENGTH - 5)
            inside = set(range(window.start_ns, window.end_ns))
            found = states(trace, window, device, activity)
            gpu, cpu = oracle.gpu(device, kinds) & inside, oracle.cpu(device) & inside
            assert cells(pairs_of(found.overlap)) == gpu & cpu
            assert cells(pairs_of(found.gpu_only)) == gpu - cpu
            assert cells(pairs_of(found.cpu_only)) == cpu - gpu
            assert cells(pairs_of(found.neither)) == inside - gpu - cpu
            totals = found.totals()
            assert totals == tuple(each.total_ns for each in found.parts)
            assert totals.untraced == 0  # an engine's own spans leave nothing unrecorded
            assert sum(totals) == window.length_ns


def test_a_thread_that_launches_nothing_does_not_count() -> None:
    trace = trace_of(*STEP, (CALLER, Kind.CPU_WORK, "tokenize", 40, 100, -1))
    assert pairs_of(cpu_active(trace, 0)) == [(0, 50), (90, 100)]


def test_copies_count_only_as_busy() -> None:
    trace = trace_of(*STEP, (H2D, Kind.GPU_H2D, "h2d", 20, 36, 0))
    assert pairs_of(gpu_active(trace, 0)) == [(35, 85)]
    assert pairs_of(gpu_active(trace, 0, "busy")) == [(20, 85)]


def test_the_run_leaves_out_what_lies_before_the_steps_and_what_never_ran() -> None:
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "load", -900, -500, -1),
        (ENGINE, Kind.CPU_WORK, "capture", -500, -100, -1),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", -400, -300, -1),
        *STEP,
        (ENGINE, Kind.CPU_WORK, "schedule", 100, 130, 1),  # the run stopped here: step 1 reached no device
    )
    assert run_window(trace) == Window(0, 100, "run")


def test_a_trace_without_steps_spans_from_the_first_host_span_to_the_last_device_span() -> None:
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "f", 5, 50, -1),
        (COMPUTE, Kind.GPU_COMPUTE, "g", 20, 40, -1),
    )
    assert run_window(trace) == Window(5, 40, "run")
    assert run_window(trace_of((ENGINE, Kind.CPU_WORK, "f", 5, 50, -1))) is None
    assert run_window(TraceBuilder().build()) is None


def steps_at(*starts: int) -> Trace:
    rows: list[Row] = [(ENGINE, Kind.CPU_WORK, "schedule", 0, 5, 0)]
    rows += [(COMPUTE, Kind.GPU_COMPUTE, "compute", start, start + 8, step) for step, start in enumerate(starts)]
    return trace_of(*rows)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 2, (10, 30, "steps 0:2")),
        (1, None, (20, 48, "steps 1:")),
        (None, 1, (0, 20, "steps :1")),
        (2, 99, (30, 48, "steps 2:99")),
    ],
)
def test_steps_windows(first: int | None, last: int | None, expected: tuple[int, int, str]) -> None:
    assert steps_window(steps_at(10, 20, 30, 40), first, last) == Window(*expected)


@pytest.mark.parametrize(("first", "last"), [(2, 2), (3, 1), (4, None), (9, 12)])
def test_steps_that_are_not_there(first: int, last: int | None) -> None:
    with pytest.raises(UsageError, match=r"the trace has steps 0 to 3; give --steps first:last"):
        steps_window(steps_at(10, 20, 30, 40), first, last)


def test_steps_of_a_trace_without_a_device() -> None:
    with pytest.raises(UsageError, match="no span on a device"):
        steps_window(trace_of((ENGINE, Kind.CPU_WORK, "f", 0, 5, 0)), 0, 1)
