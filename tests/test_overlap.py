"""How well host and device overlap, what came only once, and idle time by context: exact on small traces."""

from __future__ import annotations

import pytest
from oracle import COMPUTE, ENGINE, H2D, Row, trace_of

from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.summary import summarize
from cbprof.meta import Meta
from cbprof.trace import Kind, Trace, TraceBuilder


def device_of(trace: Trace) -> DeviceSummary:
    (device,) = summarize(trace).devices
    return device


def one_ahead(*launched: int) -> list[Row]:
    """Computes of 100 ns back to back, each launched (3 ns) so that the launch is over at the time given."""
    rows: list[Row] = []
    for step, over in enumerate(launched):
        rows += [
            (ENGINE, Kind.CPU_WORK, "launch", over - 3, over, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", 10 + 100 * step, 110 + 100 * step, step),
        ]
    return rows


def test_launch_lead_is_the_time_between_the_end_of_the_launch_and_of_the_compute_before() -> None:
    lead = device_of(trace_of(*one_ahead(5, 30, 190, 310, 405))).overlap.launch_lead
    assert lead is not None
    # compute N ends at 110, 210, 310, 410; the launches after it at 30, 190, 310, 405
    assert (lead.n_steps, lead.n_late, lead.late_pct) == (4, 1, 25)
    assert (lead.p1_ns, lead.p50_ns) == (0, 5)


def test_no_launch_lead_without_launches() -> None:
    computes = [row for row in one_ahead(5, 30) if row[0] is COMPUTE]
    assert device_of(trace_of(*computes)).overlap.launch_lead is None
    assert device_of(trace_of(*one_ahead(5))).overlap.launch_lead is None, "one step follows nothing"


def test_efficiency_is_what_was_hidden_of_what_could_be() -> None:
    rows: list[Row] = [
        (ENGINE, Kind.CPU_WORK, "schedule", 0, 60, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 40, 140, 0),
    ]
    overlap = device_of(trace_of(*rows)).overlap
    assert (overlap.hidden_ns, overlap.hideable_ns) == (20, 60)
    assert overlap.efficiency_pct == pytest.approx(100 / 3)
    more_host_than_device = device_of(trace_of(*rows, (ENGINE, Kind.CPU_WORK, "update", 60, 300, 0)))
    assert more_host_than_device.overlap.hideable_ns == 100
    assert device_of(trace_of(rows[1])).overlap.efficiency_pct is None, "no host work to hide"


def test_graph_coverage() -> None:
    steps = one_ahead(5, 30, 190, 250)
    capture: Row = (ENGINE, Kind.CPU_WORK, "capture", 120, 150, 1)

    def coverage(*rows: Row, **meta: object) -> float | None:
        return device_of(trace_of(*rows, **meta)).overlap.graph_coverage_pct

    assert coverage(*steps) is None, "nothing says whether graphs were used"
    assert coverage(*steps, capture) == 75
    assert coverage(*steps, cuda_graphs=True) == 100
    assert coverage(*steps, cuda_graphs=False) == 0


CAPTURED: tuple[Row, ...] = (
    (ENGINE, Kind.CPU_WORK, "warmup", -50, -20, -1),
    (ENGINE, Kind.CPU_WORK, "launch", 0, 100, 0),
    (ENGINE, Kind.CPU_WORK, "capture", 10, 90, 0),
    (COMPUTE, Kind.GPU_COMPUTE, "compute", 5, 80, 0),
    (ENGINE, Kind.CPU_WORK, "schedule", 100, 120, 1),
    (ENGINE, Kind.CPU_WORK, "launch", 120, 130, 1),
    (COMPUTE, Kind.GPU_COMPUTE, "compute", 130, 200, 1),
    (ENGINE, Kind.CPU_WORK, "schedule", 200, 210, 2),
    (ENGINE, Kind.CPU_WORK, "launch", 210, 220, 2),
    (COMPUTE, Kind.GPU_COMPUTE, "compute", 220, 300, 2),
)


def test_a_gap_after_a_capture_is_apart() -> None:
    """The capture overlaps the compute and only its end lies in the gap, yet it made the host late for step 1."""
    summary = summarize(trace_of(*CAPTURED))
    (device,) = summary.devices
    assert device.idle_ns == 5 + 50 + 20
    assert device.one_off_idle_ns == 50
    assert device.idle_pct_excl_one_off == pytest.approx(100 * 25 / 250)
    assert [(once.name, once.n_spans, once.total_ns) for once in summary.one_offs] == [
        ("capture", 1, 80),
        ("warmup", 1, 30),
    ]


def test_copies_are_not_launches_that_a_capture_precedes() -> None:
    copy: tuple[Row, ...] = (
        (ENGINE, Kind.CPU_WORK, "h2d.launch", 100, 105, 1),
        (H2D, Kind.GPU_H2D, "h2d", 105, 110, 1),
    )
    assert device_of(trace_of(*CAPTURED, *copy)).one_off_idle_ns == 50


def with_context(*contexts: int, requests: int = 2) -> Trace:
    """Steps of 10 ns of compute, each followed by a gap as long as its number."""
    builder, time = TraceBuilder(), 0
    lane = builder.lane(COMPUTE)
    for step, context in enumerate(contexts):
        builder.batch(step, tokens=requests, requests=requests, context=context, phase="decode")
        builder.span(lane, Kind.GPU_COMPUTE, "compute", time, 10, step=step)
        time += 10 + step
    builder.span(lane, Kind.GPU_D2H, "d2h", time - 1, 1, step=len(contexts) - 1)
    return builder.build(Meta.parse({"complete": True, "evidence": "emulated"}))


def test_idle_over_context() -> None:
    """Context per request: 10, 10, 12, 13. As many segments as there are lengths, since these are fewer than ten."""
    found = list(device_of(with_context(20, 21, 24, 26)).over_context)
    assert [(part.start, part.end, part.n_steps, part.wall_ns, part.idle_ns) for part in found] == [
        (10, 11, 2, 21, 1),
        (11, 12, 0, 0, 0),
        (12, 13, 1, 12, 2),
        (13, 14, 1, 13, 3),
    ]
    assert [part.idle_pct for part in found] == [100 / 21, None, 200 / 12, 300 / 13]


def test_ten_segments_over_context() -> None:
    found = list(device_of(with_context(*range(0, 200, 2))).over_context)
    assert [part.n_steps for part in found] == [10] * 10
    assert sum(part.wall_ns for part in found) == 100 * 10 + sum(range(100))


def test_no_segments_where_the_context_is_unknown() -> None:
    assert len(device_of(trace_of(*one_ahead(5, 30))).over_context) == 0
    assert len(device_of(with_context(20, 21, requests=0)).over_context) == 0
