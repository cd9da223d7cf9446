"""One sentence on what bounds a run: each verdict on a trace that deserves it."""

from __future__ import annotations

from pathlib import Path

import kineto_samples as kineto
import numpy as np
import pytest
from oracle import COMPUTE, ENGINE, H2D, Row, trace_of

from cbprof.analysis.accounting.blame import BlameTotal, Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.states import StateTotals
from cbprof.analysis.summary import summarize
from cbprof.analysis.verdict.blocked import Blocked
from cbprof.analysis.verdict.overlap import Overlap
from cbprof.analysis.verdict.shortened import Shortened
from cbprof.analysis.verdict.verdict import Bound, Findings, Verdict, judge
from cbprof.formats import load
from cbprof.meta import Meta
from cbprof.numbers import part_of_it
from cbprof.trace import Kind, TraceBuilder


def verdict_of(rows: list[Row], **meta: object) -> Verdict:
    return summarize(trace_of(*rows, **{"evidence": "cuda_events", **meta})).verdict


def sync(*, host: int, gpu: int, wait: str = "wait") -> list[Row]:
    """Ten steps: the host works (its last ns is the launch), then waits for the device."""
    rows: list[Row] = []
    for step in range(10):
        start = step * (host + gpu)
        launched = start + host
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, launched - 1, step),
            (ENGINE, Kind.CPU_WORK, "launch", launched - 1, launched, step),
            (ENGINE, Kind.CPU_WAIT, wait, launched, launched + gpu, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", launched, launched + gpu, step),
        ]
    return rows


def one_ahead(*, host: int, gpu: int) -> list[Row]:
    """Ten steps: the host prepares the next batch while the device computes, and waits if it is done first."""
    rows: list[Row] = []
    start = ended = 0
    for step in range(10):
        launched = start + host
        begin = max(launched, ended)
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, launched - 1, step),
            (ENGINE, Kind.CPU_WORK, "launch", launched - 1, launched, step),
            (ENGINE, Kind.CPU_WAIT, "wait", launched, begin, step - 1),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", begin, begin + gpu, step),
        ]
        start, ended = begin, begin + gpu
    return rows


def test_serialised_by_a_blocking_wait() -> None:
    verdict = verdict_of(sync(host=20, gpu=80, wait="item"))
    assert verdict.bound is Bound.SERIALISED
    assert verdict.sentence == (
        'Serialised by a blocking wait: the host sits in "item" while the GPU works, '
        "and the GPU is idle 20.00 % of the time, while the host works."
    )
    assert verdict.evidence == (
        "the GPU waited 95.00 % of its idle time for schedule",
        "0.00 % of the host work that could be hidden is hidden",
        "100.00 % of steps were launched only after the compute before them had ended",
        "the host was blocked in a wait for 100.00 % of the GPU's active time",
        "launch-bound holes inside a span cannot be seen: that needs CUPTI records",
    )


def test_device_bound() -> None:
    verdict = verdict_of(one_ahead(host=20, gpu=80))
    assert verdict.bound is Bound.DEVICE
    assert verdict.sentence.startswith("Device-bound: the GPU is idle 2.44 % of the time")
    assert "0.00 % of steps were launched only after the compute before them had ended" in verdict.evidence


def test_host_bound_although_one_batch_ahead() -> None:
    verdict = verdict_of(one_ahead(host=80, gpu=20))
    assert verdict.bound is Bound.HOST
    assert verdict.sentence == (
        "Host-bound: the GPU is idle 75.61 % of the time because the host is late, most of it in schedule."
    )
    hidden = "22.50 % of the host work is hidden; the GPU is active too little to hide more than 25.00 %"
    assert hidden in verdict.evidence


def test_more_host_than_device_work_is_host_bound_even_where_a_wait_blocks() -> None:
    assert verdict_of(sync(host=80, gpu=20)).bound is Bound.HOST


def test_bound_by_both_where_less_gpu_work_brings_more() -> None:
    """The host hides 40 of its 60 ns, and the GPU works alone for 40 of its 80."""
    rows: list[Row] = []
    for step in range(10):
        start = 100 * step
        rows += [
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start, start + 80, step),
            (ENGINE, Kind.CPU_WAIT, "wait", start, start + 40, step),
            (ENGINE, Kind.CPU_WORK, "schedule", start + 40, start + 99, step + 1),
            (ENGINE, Kind.CPU_WORK, "launch", start + 99, start + 100, step + 1),
        ]
    verdict = verdict_of(rows)
    assert verdict.bound is Bound.BOTH
    assert verdict.shortened is not None
    assert verdict.shortened.host_ns is not None
    assert verdict.shortened.device_ns > verdict.shortened.host_ns
    assert "less GPU work would bring more than less host work" in verdict.sentence


def test_most_is_said_of_more_than_half_of_what_was_named() -> None:
    """Before each launch 30 ns of three phases, then 10 ns in the queue: of the 40, 30 are the host's."""
    rows: list[Row] = []
    for step in range(10):
        start = 100 * step
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, start + 12, step),
            (ENGINE, Kind.CPU_WORK, "prepare", start + 12, start + 22, step),
            (ENGINE, Kind.CPU_WORK, "inputs", start + 22, start + 29, step),
            (ENGINE, Kind.CPU_WORK, "launch", start + 29, start + 30, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start + 40, start + 100, step),
        ]
    verdict = verdict_of(rows)
    assert verdict.bound in (Bound.HOST, Bound.BOTH)
    assert "% of that because the host is late, the largest part, 40.00 %, in schedule" in verdict.sentence
    assert "most" not in verdict.sentence
    assert part_of_it(51, 100) == "most of it"
    assert part_of_it(50, 100) == "the largest part, 50.00 %,"


def test_the_wait_of_a_thread_that_launches_no_compute_does_not_serialise(tmp_path: Path) -> None:
    """One thread launches all the time; another copies the results and waits for them."""
    events = []
    for step in range(10):
        start = 1000 * step
        events += [
            kineto.host(start, 900, "prepare"),
            kineto.call(start + 900, 100, "cudaGraphLaunch", 2 * step + 1),
            kineto.kernel(start + 1000, 700, correlation=2 * step + 1),
            kineto.call(start + 1000, 5, "cudaMemcpyAsync", 2 * step + 2, tid=77),
            kineto.copy(start + 1700, 3, "DtoH (Device -> Pinned)", correlation=2 * step + 2, stream=9),
            kineto.call(start + 1005, 698, "cudaStreamSynchronize", 1000 + step, tid=77),
        ]
    verdict = summarize(load(kineto.write(tmp_path, *events))).verdict
    assert verdict.bound is not Bound.SERIALISED
    assert not any("blocked in a wait" in line for line in verdict.evidence)


@pytest.mark.parametrize("n_devices", [2, 3])
def test_a_host_that_waits_for_several_gpus_is_blocked_for_at_most_all_of_each(tmp_path: Path, n_devices: int) -> None:
    events = []
    for step in range(6):
        for device in range(n_devices):
            start = 1000 * (step * n_devices + device)
            number = step * n_devices + device + 1
            events += [
                kineto.call(start, 50, "cudaLaunchKernel", number),
                kineto.kernel(start + 50, 900, device=device, correlation=number),
                kineto.call(start + 50, 900, "cudaDeviceSynchronize", 1000 + number),
            ]
    for device in summarize(load(kineto.write(tmp_path, *events))).devices:
        assert "the host was blocked in a wait for 100.00 % of the GPU's active time" in device.verdict.evidence


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "cross_device_reduce_1stage"])
def test_exposed_collectives_are_named_and_are_not_the_gpus_own_work(tmp_path: Path, name: str) -> None:
    events = []
    for step in range(10):
        start = 1000 * step
        events += [
            kineto.call(start, 5, "cudaLaunchKernel", 2 * step + 1),
            kineto.kernel(start + 5, 395, correlation=2 * step + 1),
            kineto.call(start + 5, 5, "cudaLaunchKernel", 2 * step + 2),
            kineto.kernel(start + 400, 600, name, correlation=2 * step + 2),
            kineto.call(start + 10, 990, "cudaDeviceSynchronize", 1000 + step),
        ]
    verdict = summarize(load(kineto.write(tmp_path, *events))).verdict
    assert verdict.bound is Bound.DEVICE
    assert "are collectives without compute beside them, which may wait for another rank" in verdict.sentence
    assert any(line.startswith("communication takes 60.3") for line in verdict.evidence)
    assert verdict.shortened is not None
    assert verdict.shortened.device_ns == pytest.approx(395_000, rel=0.01)


def test_all_gpu_work_counts_not_only_that_inside_steps() -> None:
    """Half of the GPU's work is of no step: a tenth of all of it is what could be saved."""
    rows = sync(host=20, gpu=80)
    rows += [(COMPUTE, Kind.GPU_COMPUTE, "other", start + 20, start + 60, -1) for start in range(1000, 3000, 100)]
    rows += [(ENGINE, Kind.CPU_WAIT, "wait", 1000, 3000, 9), (ENGINE, Kind.CPU_WORK, "update", 2995, 3000, 9)]
    shortened = verdict_of(rows).shortened
    assert shortened is not None
    assert shortened.device_ns == 80 + 80


def test_starved() -> None:
    rows = sync(host=5, gpu=20)
    last = rows[-1][4]
    rows += [
        (ENGINE, Kind.CPU_WAIT, "no_requests", last, last + 500, 10),
        (ENGINE, Kind.CPU_WORK, "launch", last + 500, last + 501, 10),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", last + 501, last + 521, 10),
    ]
    assert verdict_of(rows).bound is Bound.STARVED


def kernels(count: int, *, gap: int, late: bool, evidence: str = "cupti", then_host: int = 0) -> Verdict:
    """On kernels of 10 ns; between two of them a gap, because of a late launch or on the device's side.

    ``then_host``: at the end the host works for so long before it launches one more.
    """
    builder = TraceBuilder()
    engine, compute = builder.lane(ENGINE), builder.lane(COMPUTE)

    def launch(link: int, launched: int, begin: int) -> None:
        builder.span(engine, Kind.CPU_WORK, "cudaLaunchKernel", launched - 1, 1, link=link)
        builder.span(compute, Kind.GPU_COMPUTE, "kernel", begin, 10, link=link)

    for index in range(count):
        begin = 5 + index * (10 + gap)
        launch(index, begin if late else 5 + index, begin)
    if then_host:
        builder.span(engine, Kind.CPU_WORK, "schedule", begin + 10, then_host - 1)
        launch(count, begin + 10 + then_host, begin + 10 + then_host)
    return summarize(builder.build(Meta.parse({"complete": True, "evidence": evidence}))).verdict


def test_launch_bound_needs_cupti() -> None:
    seen = kernels(20, gap=5, late=True)
    assert seen.bound is Bound.LAUNCH
    assert seen.evidence[-1] == "the GPU ran dry 19 times in 20 operations"
    unseen = kernels(20, gap=5, late=True, evidence="cuda_events")
    assert unseen.bound is not Bound.LAUNCH
    assert "cannot be seen" in unseen.evidence[-1]


def test_a_late_launch_once_a_step_is_not_launch_bound() -> None:
    assert kernels(20, gap=5, late=False, then_host=600).bound is Bound.HOST


def test_holes_between_queued_kernels_are_the_devices_own() -> None:
    verdict = kernels(20, gap=3, late=False)
    assert verdict.bound is Bound.DEVICE
    assert "idle 22.18 % of the time, and has work queued for all but 0.00 %" in verdict.sentence


def test_a_device_that_is_idle_much_of_the_time_is_not_the_bound_whatever_was_queued() -> None:
    verdict = kernels(20, gap=5, late=False)
    assert verdict.bound is Bound.UNCLEAR
    assert "idle 32.20 % of the time" in verdict.sentence
    assert verdict.sentence.endswith("it waited most of it for its turn in the queue.")
    assert verdict.evidence[0] == "the GPU waited 100.00 % of its idle time for its turn in the queue"


def test_unclear_where_the_device_waits_for_copies_or_nothing_is_known_of_the_host() -> None:
    rows: list[Row] = []
    for step in range(10):
        start = 100 * step
        rows += [
            (ENGINE, Kind.CPU_WORK, "launch", start, start + 5, step),
            (H2D, Kind.GPU_H2D, "h2d", start + 5, start + 60, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start + 60, start + 100, step),
        ]
    verdict = verdict_of(rows)
    assert verdict.bound is Bound.UNCLEAR
    assert "it waited most of it for a copy" in verdict.sentence
    assert verdict_of([row for row in rows if row[0] is not ENGINE]).bound is Bound.UNCLEAR


def test_unknown_without_device_activity() -> None:
    nothing = summarize(TraceBuilder().build()).verdict
    assert (nothing.bound, nothing.evidence, nothing.shortened) == (Bound.UNKNOWN, (), None)
    copies_only: list[Row] = [(COMPUTE, Kind.GPU_H2D, "h2d", 0, 50, 0)]
    assert verdict_of(copies_only).bound is Bound.UNKNOWN


def test_captures_do_not_count() -> None:
    rows = one_ahead(host=20, gpu=80)
    shifted: list[Row] = [(lane, kind, name, a + 400, b + 400, step + 1) for lane, kind, name, a, b, step in rows]
    captured: list[Row] = [
        (ENGINE, Kind.CPU_WORK, "launch", 0, 401, 0),
        (ENGINE, Kind.CPU_WORK, "capture", 2, 400, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 1, 40, 0),
    ]
    assert summarize(trace_of(*captured, *shifted)).devices[0].idle_pct == pytest.approx(100 * 381 / 1220)
    verdict = verdict_of(captured + shifted)
    assert verdict.bound is Bound.DEVICE
    assert "captures and warm-up cost 31.15 % of the time, once" in verdict.evidence


@pytest.mark.parametrize(
    ("rows", "device_ns", "host_ns"),
    [
        (sync(host=20, gpu=80), 80, 20),  # nothing overlaps: each tenth counts in full
        (one_ahead(host=20, gpu=80), 80, 2),  # the host works alone only in the first step
        (one_ahead(host=80, gpu=20), 2, 80),  # the device works alone only in the last step
    ],
    ids=["sync", "device-bound", "host-bound"],
)
def test_what_a_tenth_less_could_bring(rows: list[Row], device_ns: int, host_ns: int) -> None:
    shortened = verdict_of(rows).shortened
    assert shortened is not None
    assert (shortened.device_ns, shortened.host_ns) == (device_ns, host_ns)


def test_host_work_outside_the_window_is_not_saved(tmp_path: Path) -> None:
    """The host began 500 us before the window of the device's own records, 100 us long."""
    step = kineto.annotation(0, 700, "ProfilerStep#1")
    launch = kineto.call(590, 5, "cudaLaunchKernel", 2)
    first, second = kineto.kernel(500, 10, correlation=1), kineto.kernel(595, 5, correlation=2)
    early = kineto.host(0, 590, "work")
    trace = load(kineto.write(tmp_path, step, early, kineto.call(490, 5, "cudaLaunchKernel", 1), first, launch, second))
    found = summarize(trace)
    assert found.devices[0].window.length_ns == 100_000
    assert found.verdict.shortened is not None
    assert 0 < found.verdict.shortened.host_ns <= 10_000


@pytest.mark.parametrize(("mode", "bound"), [("sync", Bound.SERIALISED), ("async", Bound.DEVICE)])
def test_real_runs(mode: str, bound: Bound) -> None:
    """transformers on an H200: away from captures, async is idle 0.06 % of the time."""
    path = Path(__file__).parent / f"data/h200_transformers/{mode}_8b_bs32_8k.json.gz"
    summary = summarize(load(path))
    assert summary.verdict.bound is bound
    lead = summary.devices[0].overlap.launch_lead
    assert lead is not None
    if mode == "async":
        assert summary.devices[0].idle_pct_excl_one_off == pytest.approx(0.06, abs=0.005)
        assert summary.devices[0].overlap.efficiency_pct == pytest.approx(99.3, abs=0.1)
        assert lead.late_pct < 1
    else:
        assert lead.late_pct == 100


# --- the thresholds, exactly as docs/accounting.md states them ---


def bound_at(  # of 1000 ns
    *,
    idle: int,
    causes: dict[Cause, int] | None = None,
    cpu: int = 100,
    hidden: int = 0,
    blocked: int = 0,
    dry: int = 0,
    events: int = 2,
    steps: int = 0,
    longest: int = 1,
) -> Bound:
    """The verdict on a window of 1000 ns with so much idle time; what no cause is given for is a phase of the host."""
    gpu, causes = 1000 - idle, causes or {}
    rest = idle - sum(causes.values())
    times = np.zeros(dry, dtype=np.int64)
    ends = times + 1
    ends[:1] = longest
    gaps = Gaps(times, ends, times, times, times.astype(np.int32), times > 0, times + 1, times, times)
    found = Findings(
        evidence_level="cupti",
        n_gpu_events=events,
        states=StateTotals(hidden, gpu - hidden, 0, 0, cpu - hidden, idle - cpu + hidden),
        gaps=gaps,
        causes=[BlameTotal(cause, cause.label, ns) for cause, ns in {**causes, Cause.PHASE: rest}.items()],
        one_off_idle_ns=0,
        overlap=Overlap(hidden, min(cpu, gpu), True, None, steps, None),
        blocked=Blocked(blocked, "wait"),
        shortened=Shortened(0, 0),
    )
    return judge(found).bound


def test_little_idle_time_is_less_than_5_percent() -> None:
    assert bound_at(idle=49) is Bound.DEVICE
    assert bound_at(idle=50) is Bound.HOST
    assert bound_at(idle=120, causes={Cause.QUEUED: 71}) is Bound.DEVICE
    assert bound_at(idle=120, causes={Cause.QUEUED: 70, Cause.CAPTURE: 50}) is Bound.UNCLEAR


def test_much_idle_time_is_25_percent_whatever_was_queued() -> None:
    assert bound_at(idle=249, causes={Cause.QUEUED: 249}) is Bound.DEVICE
    assert bound_at(idle=250, causes={Cause.QUEUED: 250}) is Bound.UNCLEAR


def test_starved_is_more_than_half_of_the_idle_time_and_5_percent() -> None:
    assert bound_at(idle=400, causes={Cause.STARVED: 201}) is Bound.STARVED
    assert bound_at(idle=400, causes={Cause.STARVED: 200}) is Bound.HOST
    assert bound_at(idle=50, causes={Cause.STARVED: 50}) is Bound.STARVED
    assert bound_at(idle=49, causes={Cause.STARVED: 49}) is Bound.DEVICE


def test_launch_bound_is_dry_before_at_least_half_of_what_ran() -> None:
    assert bound_at(idle=400, dry=5, events=10) is Bound.LAUNCH
    assert bound_at(idle=400, dry=4, events=10) is Bound.HOST
    assert bound_at(idle=400, dry=5, events=10, longest=5) is Bound.HOST  # most of it in one gap
    assert bound_at(idle=400, dry=5, events=10, steps=5) is Bound.HOST  # once a step
    assert bound_at(idle=400, dry=5, events=10, steps=4) is Bound.LAUNCH
    assert bound_at(idle=49, dry=5, events=10) is Bound.DEVICE


def test_unclear_is_more_than_half_not_for_the_host() -> None:
    assert bound_at(idle=400, causes={Cause.TRANSFER: 101, Cause.QUEUED: 100}) is Bound.UNCLEAR
    assert bound_at(idle=400, causes={Cause.TRANSFER: 100, Cause.QUEUED: 100}) is Bound.HOST


def test_serialised_hides_less_than_half_and_waits_for_more_than_half_of_the_gpus_time() -> None:
    assert bound_at(idle=400, cpu=200, hidden=99, blocked=301) is Bound.SERIALISED
    assert bound_at(idle=400, cpu=200, hidden=100, blocked=301) is Bound.HOST
    assert bound_at(idle=400, cpu=200, hidden=99, blocked=300) is Bound.HOST
    assert bound_at(idle=500, cpu=499, hidden=99, blocked=301) is Bound.SERIALISED
    assert bound_at(idle=500, cpu=500, hidden=99, blocked=301) is Bound.HOST


def test_figures_of_the_host_need_a_record_of_95_percent_of_its_time() -> None:
    assert StateTotals(250, 230, 20, 30, 250, 220).host_known
    assert not StateTotals(250, 230, 20, 31, 250, 219).host_known
