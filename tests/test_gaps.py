"""Gaps and their blame, phases and steps, against the oracle and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import BUSY, CALLER, COMPUTE, ENGINE, H2D, LENGTH, STEP, Oracle, Row, trace_of, traces

from cbprof.analysis.accounting.blame import Cause, blame_gaps, blame_pieces
from cbprof.analysis.accounting.gaps import Gaps, find_gaps, gaps_within
from cbprof.analysis.accounting.host import host_timeline
from cbprof.analysis.accounting.intervals import union
from cbprof.analysis.accounting.phases import phase_times
from cbprof.analysis.accounting.states import states
from cbprof.analysis.accounting.steps import step_times
from cbprof.analysis.accounting.window import Window
from cbprof.trace import Kind, Lane, Trace


def gaps_of(trace: Trace, start: int, end: int) -> Gaps:
    return find_gaps(trace, states(trace, Window(start, end), 0), host_timeline(trace))


def blame_of(trace: Trace, start: int, end: int) -> list[dict[str, int]]:
    """The blame of each gap of device 0, by label."""
    gaps = gaps_of(trace, start, end)
    blame = blame_gaps(trace, 0, gaps, host_timeline(trace))
    return [{part.label: part.ns for part in blame.of_gap(gap)} for gap in range(len(gaps))]


@given(traces())
def test_every_gap_and_its_blame(trace: Trace) -> None:
    oracle, host = Oracle(trace), host_timeline(trace)
    for device in (0, 1):
        for activity, kinds in (("compute", (Kind.GPU_COMPUTE,)), ("busy", BUSY)):
            gaps = find_gaps(trace, states(trace, Window(2, LENGTH - 3), device, activity), host, activity)
            expected = oracle.gaps(device, 2, LENGTH - 3, kinds)
            assert list(zip(gaps.start.tolist(), gaps.end.tolist(), strict=True)) == expected
            ends = [oracle.ends_with(device, end, kinds) for _, end in expected]
            assert gaps.ends_with.tolist() == [-1 if end is None else end for end in ends]
            assert (gaps.host_late_ns + gaps.in_launch_ns + gaps.queue_ns == gaps.length_ns).all()

            blame = blame_gaps(trace, device, gaps, host)
            for row, gap in enumerate(expected):
                parts = blame.of_gap(row)
                named = {f"phase {part.label}" if part.cause is Cause.PHASE else part.label: part.ns for part in parts}
                assert named == oracle.blame(device, gap, kinds)
                assert sum(named.values()) == gap[1] - gap[0]
            assert sum(total.ns for total in blame.totals()) == gaps.total_ns


@given(traces(), st.integers(0, LENGTH - 1), st.integers(1, LENGTH))
def test_gaps_of_a_shorter_window_are_those_found_there(trace: Trace, start: int, length: int) -> None:
    host, run = host_timeline(trace), states(trace, Window(0, LENGTH), 0)
    here = run.within(Window(start, min(start + length, LENGTH)))
    gaps = gaps_within(trace, find_gaps(trace, run, host), here, host)
    expected = find_gaps(trace, here, host)
    for column in fields(Gaps):
        assert getattr(gaps, column.name).tolist() == getattr(expected, column.name).tolist()


@given(traces())
def test_the_pieces_of_blame_partition_the_gaps(trace: Trace) -> None:
    host = host_timeline(trace)
    gaps = find_gaps(trace, states(trace, Window(2, LENGTH - 3), 0), host)
    pieces = blame_pieces(trace, 0, gaps, host)
    assert union(pieces.start, pieces.end).total_ns == int((pieces.end - pieces.start).sum()) == gaps.total_ns
    assert (pieces.start[1:] >= pieces.end[:-1]).all()
    by_cause = Counter[int]()
    for cause, length in zip(pieces.cause.tolist(), (pieces.end - pieces.start).tolist(), strict=True):
        by_cause[cause] += length
    totals = Counter[int]()
    for part in blame_gaps(trace, 0, gaps, host).totals():
        totals[int(part.cause)] += part.ns
    assert by_cause == totals


@given(traces())
def test_exclusive_phases_sum_to_host_time(trace: Trace) -> None:
    oracle, host = Oracle(trace), host_timeline(trace)
    window = Window(4, LENGTH - 4)
    phases = phase_times(trace, window, host)
    found = {(phase.name, phase.waiting): (phase.total_ns, phase.exposed_ns) for phase in phases if phase.total_ns}
    assert found == oracle.phases(window.start_ns, window.end_ns, (Kind.GPU_COMPUTE,))
    assert sum(phase.total_ns for phase in phases) == sum(
        oracle.innermost(lane, t) is not None
        for lane in oracle.driving_lanes(None)
        for t in range(window.start_ns, window.end_ns)
    )


@given(traces())
def test_step_rows(trace: Trace) -> None:
    oracle, host = Oracle(trace), host_timeline(trace)
    run = states(trace, Window(0, LENGTH), 0)
    gaps = find_gaps(trace, run, host)
    table = step_times(trace, run, gaps, host)
    gpu, lanes = oracle.gpu(0), oracle.driving_lanes(0)
    for row, step in enumerate(table.step.tolist()):
        spent: Counter[str] = Counter()
        for t in range(LENGTH):
            inner = [span for lane in lanes if (span := oracle.innermost(lane, t)) is not None]
            for span in (span for span in inner if oracle.step[span] == step):
                working = oracle.kind[span] == Kind.CPU_WORK
                spent["work" if working else "wait"] += 1
                spent["exposed"] += working and t not in gpu
            running = {
                oracle.kind[span]
                for span in oracle.rows
                if oracle.step[span] == step and oracle.device[span] == 0 and oracle.covers(span, t)
            }
            spent.update(kind.category for kind in running)
        assert table.cpu_work_ns[row] == spent["work"]
        assert table.cpu_exposed_ns[row] == spent["exposed"]
        assert table.wait_ns[row] == spent["wait"]
        assert table.compute_ns[row] == spent["gpu.compute"]
        assert table.h2d_ns[row] == spent["gpu.h2d"]
        assert table.d2h_ns[row] == spent["gpu.d2h"]
        ended = [end for _, end in oracle.gaps(0, 0, LENGTH, (Kind.GPU_COMPUTE,))]
        causes = [oracle.ends_with(0, end, (Kind.GPU_COMPUTE,)) for end in ended]
        mine = [span is not None and oracle.step[span] == step for span in causes]
        assert table.gap_ns[row] == sum(length for length, own in zip(gaps.length_ns, mine, strict=True) if own)


def test_the_gap_between_two_steps() -> None:
    trace = trace_of(
        *STEP,
        (ENGINE, Kind.CPU_WORK, "update", 90, 96, 0),  # inside the iteration of step 0
        (ENGINE, Kind.CPU_WORK, "schedule", 104, 120, 1),
        (ENGINE, Kind.CPU_WORK, "launch", 125, 135, 1),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 140, 150, 1),
    )
    assert blame_of(trace, 0, 150) == [
        {"iteration": 10, "schedule": 20, "launch": 5},
        {"sync latency": 5, "update": 6, "iteration": 4, "schedule": 16, "unattributed": 9, "launch": 10, "queued": 5},
    ]
    gaps = gaps_of(trace, 0, 150)
    assert gaps.step.tolist() == [0, 1]
    assert (gaps.host_late_ns[1], gaps.in_launch_ns[1], gaps.queue_ns[1]) == (40, 10, 5)
    assert gaps.longest_ns == 55
    assert gaps.longest(1).tolist() == [1]


ONE_GAP: dict[str, tuple[tuple[Row, ...], dict[str, int]]] = {
    "starved, then scheduling": (
        ((ENGINE, Kind.CPU_WAIT, "no_requests", 0, 70, 0), (ENGINE, Kind.CPU_WORK, "schedule", 70, 80, 0)),
        {"starved": 70, "schedule": 10, "launch": 10, "queued": 10},
    ),
    "a copy runs while the host waits": (
        ((ENGINE, Kind.CPU_WAIT, "wait", 0, 80, 0), (H2D, Kind.GPU_H2D, "h2d", 20, 50, 7)),
        {"transfer": 30, "sync latency": 50, "launch": 10, "queued": 10},
    ),
    "host work hides a copy": (
        ((ENGINE, Kind.CPU_WORK, "prepare", 0, 80, 0), (H2D, Kind.GPU_H2D, "h2d", 20, 50, 0)),
        {"prepare": 80, "launch": 10, "queued": 10},
    ),
    "after the launch its own copy delays it": (
        ((ENGINE, Kind.CPU_WORK, "prepare", 0, 100, 0), (H2D, Kind.GPU_H2D, "h2d", 85, 96, 0)),
        {"prepare": 80, "launch": 10, "transfer": 6, "queued": 4},
    ),
    "another step's copy does not": (
        ((ENGINE, Kind.CPU_WORK, "prepare", 0, 100, 0), (H2D, Kind.GPU_H2D, "h2d", 85, 96, 1)),
        {"prepare": 80, "launch": 10, "queued": 10},
    ),
    "a capture comes first wherever it lies": (
        ((ENGINE, Kind.CPU_WORK, "prepare", 0, 75, 0), (ENGINE, Kind.CPU_WORK, "capture", 75, 88, 0)),
        {"prepare": 75, "capture": 13, "launch": 2, "queued": 10},
    ),
    "warm-up on another thread": (
        ((ENGINE, Kind.CPU_WORK, "prepare", 0, 80, 0), (CALLER, Kind.CPU_WORK, "warmup", 10, 40, -1)),
        {"warmup": 30, "prepare": 50, "launch": 10, "queued": 10},
    ),
    "another thread's work is not what the launch waited for": (
        ((CALLER, Kind.CPU_WORK, "tokenize", 0, 80, -1),),
        {"unattributed": 80, "launch": 10, "queued": 10},
    ),
}


@pytest.mark.parametrize("case", ONE_GAP)
def test_one_gap(case: str) -> None:
    """One gap [0, 100) that a compute launched during [80, 90) ends."""
    rows, expected = ONE_GAP[case]
    launch: Row = (ENGINE, Kind.CPU_WORK, "launch", 80, 90, 0)
    compute: Row = (COMPUTE, Kind.GPU_COMPUTE, "compute", 100, 120, 0)
    assert blame_of(trace_of(*rows, launch, compute), 0, 120) == [expected]


def test_a_compute_that_starts_before_its_launch() -> None:
    """Clock jitter: all of the gap lies before the launch."""
    trace = trace_of(
        (ENGINE, Kind.CPU_WORK, "prepare", 0, 50, 0),
        (ENGINE, Kind.CPU_WORK, "launch", 52, 60, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 50, 70, 0),
    )
    assert blame_of(trace, 0, 70) == [{"prepare": 50}]


def test_the_end_of_a_run_counts_as_before_a_launch() -> None:
    trace = trace_of(*STEP)
    assert blame_of(trace, 85, 100) == [{"sync latency": 5, "iteration": 10}]
    assert gaps_of(trace, 85, 100).step.tolist() == [-1]


def test_a_gap_has_the_same_cause_whatever_the_window() -> None:
    trace = trace_of(*STEP)
    assert blame_of(trace, 0, 35) == blame_of(trace, 0, 85) == [{"iteration": 10, "schedule": 20, "launch": 5}]


def test_an_empty_span_splits_no_gap() -> None:
    trace = trace_of(*STEP, (COMPUTE, Kind.GPU_COMPUTE, "compute", 20, 20, 0))
    assert gaps_of(trace, 0, 85).length_ns.tolist() == [35]


@pytest.mark.parametrize("begin", [35, 100])
def test_an_empty_span_ends_no_gap(begin: int) -> None:
    """Neither where a compute starts at the same instant on another stream, nor alone at the end of the window."""
    empty = (Lane("first", 0), Kind.GPU_COMPUTE, "compute", begin, begin, 7)
    assert gaps_of(trace_of(empty, *STEP), 0, 100).step.tolist() == [0, -1]
