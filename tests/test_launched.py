"""Nothing that rests on launches is said where few are joined, or clocks disagree; what is odd about them is told."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kineto_samples import annotation, call, host, kernel, write
from typer.testing import CliRunner

import cbprof
from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.accounting.host import host_timeline, waiting_lanes
from cbprof.analysis.accounting.launched import CLOCKS_AGREE_WITHIN_NS, LEAST_JOINED_PCT
from cbprof.analysis.profiles.health import Health, examine
from cbprof.analysis.summary import Summary, summarize
from cbprof.analysis.verdict.verdict import Bound
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.render.charts.steps import steps_chart
from cbprof.render.tables.csv_files import write_csv
from cbprof.render.tables.health import health_sheet

STEPS = 20
PERIOD = 1000


def summary(folder: Path, *events: Any) -> Summary:
    return summarize(load(write(folder, *events)))


def health(folder: Path, *events: Any) -> Health:
    return examine(load(write(folder, *events)))


def serial(*, n_joined: int = STEPS, late_us: float = 0) -> Iterator[dict[str, Any]]:
    """Work, launch, wait, again and again. The device's clock runs late by so much."""
    for step in range(STEPS):
        at, link = PERIOD * step, step if step < n_joined else 1000 + step
        yield annotation(at, 300, "schedule")
        yield call(at + 300, 10, "cudaLaunchKernel", step)
        yield kernel(at + 320 + late_us, 500, correlation=link)
        yield call(at + 310, 520, "cudaDeviceSynchronize", 5000 + step)


def says_nothing(found: Summary) -> bool:
    """Whether no figure is given that rests on launches, though idle time is."""
    (device,) = found.to_json(gaps="all")["devices"]
    assert device["idle_pct"] > 0
    assert {part for gap in device["gaps"] for part in (gap["host_late_ns"], gap["in_launch_ns"], gap["queue_ns"])}
    unknown = [gap[part] for gap in device["gaps"] for part in ("host_late_ns", "in_launch_ns", "queue_ns")]
    unknown += [device["states_ns"][name] for name in ("overlap", "gpu_only", "cpu_only", "neither")]
    unknown += [device["overlap"][name] for name in ("efficiency_pct", "launch_lead_ns", "launch_late_pct")]
    unknown += [device["verdict"]["shortened_ns"]]
    blamed = [cause for gap in device["gaps"] for cause in gap["blame_ns"]]
    return not found.phases and not blamed and all(value is None for value in unknown)


@pytest.mark.parametrize(
    ("n_joined", "enough"), [(STEPS, True), (STEPS // 2, True), (STEPS // 2 - 1, False), (0, False)]
)
def test_half_of_the_launches_must_be_joined(tmp_path: Path, n_joined: int, enough: bool) -> None:
    assert (100 * (n_joined / STEPS) >= LEAST_JOINED_PCT) is enough
    found = summary(tmp_path, *serial(n_joined=n_joined))
    assert says_nothing(found) is not enough
    shown = CliRunner().invoke(app, ["doctor", str(tmp_path / "sample.json")])
    told = f"{n_joined} of {STEPS} device events are joined to their launch"
    assert (told in " ".join(shown.stdout.split())) is not enough
    assert enough or (shown.exit_code, "can be trusted" in shown.stdout) == (1, False)
    if not enough:
        assert found.verdict.bound is Bound.UNCLEAR
        assert not any("hidden" in line or "ran dry" in line for line in found.verdict.evidence)


@pytest.mark.parametrize("understood", [True, False])
def test_what_the_host_did_for_a_step_is_null_where_launches_are_not_understood(
    tmp_path: Path, understood: bool
) -> None:
    frames = (annotation(PERIOD * step, 990, f"ProfilerStep#{step}") for step in range(STEPS))
    recording = cbprof.load(write(tmp_path, *serial(late_us=0 if understood else 100), *frames), cached=False)
    (device,) = recording.steps().to_json()["devices"]
    table = recording.steps().to_pandas()
    columns = ("cpu_work_ns", "cpu_exposed_ns", "wait_ns")
    for name in columns:
        assert {value is None for value in device[name]} == {not understood}
        assert table[name].isna().all() == (not understood)
    with write_csv(summarize(recording.trace), tmp_path)[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(device["step"]) == STEPS
    assert {row[name] == "" for row in rows for name in columns} == {not understood}
    (shown,) = recording.steps().sheets()
    assert ("unknown" in shown.rows[0]) is not understood
    assert ("max(CPU, GPU)" in {line.name for line in steps_chart(recording.trace).data}) is understood


def test_a_device_alone_has_no_launches_to_join(tmp_path: Path) -> None:
    found = summary(tmp_path, kernel(0, 5), kernel(15, 5), kernel(40, 5))
    assert says_nothing(found)
    assert found.reliable


def test_each_device_is_judged_by_its_own_launches(tmp_path: Path) -> None:
    other = [kernel(PERIOD * step + 500, 100, device=1, correlation=7000 + step) for step in range(STEPS)]
    found = summary(tmp_path, *serial(), *other)
    known, unknown = found.devices
    assert (known.gaps.known.all(), unknown.gaps.known.any()) == (True, False)
    assert "0 of 20 device events on device 1 are joined" in " ".join(found.warnings)


# Clocks


@pytest.mark.parametrize(("late_us", "agree"), [(0, True), (19.9, True), (20, True), (20.1, False), (4000, False)])
def test_a_wait_that_returns_before_the_work_has_ended_tells_a_late_clock(
    tmp_path: Path, late_us: float, agree: bool
) -> None:
    slack_us = 10  # the wait returns so long after the kernel ended
    assert (late_us - slack_us) * 1000 <= CLOCKS_AGREE_WITHIN_NS or not agree
    found = summary(tmp_path, *serial(late_us=late_us))
    assert found.reliable is agree
    assert says_nothing(found) is not agree
    told = f"the clocks of host and device disagree by at least {late_us - slack_us:g} us"
    assert any(told in warning for warning in found.warnings) is not agree


def test_a_kernel_long_before_its_launch_tells_an_early_clock(tmp_path: Path) -> None:
    assert says_nothing(summary(tmp_path, *serial(late_us=-250)))


def test_one_slip_among_many_is_no_clock(tmp_path: Path) -> None:
    events = [
        event
        for step in range(200)
        for event in (
            call(PERIOD * step + 300, 10, "cudaLaunchKernel", step),
            kernel(PERIOD * step + (280 if step == 7 else 320), 500, correlation=step),
        )
    ]
    found = summary(tmp_path, *events)
    assert found.reliable
    assert found.health["n_negative_launch_delay"] == 1


def test_work_of_another_stream_or_behind_an_event_may_go_on(tmp_path: Path) -> None:
    launch = (call(0, 10, "cudaLaunchKernel", 1), kernel(20, 100, correlation=1))
    other = (call(10, 10, "cudaLaunchKernel", 2), kernel(30, 900, stream=8, correlation=2))
    assert summary(tmp_path, *launch, *other, call(25, 100, "cudaStreamSynchronize", 3)).reliable
    ahead = (call(0, 10, "cudaLaunchKernel", 1), kernel(20, 900, correlation=1))
    assert summary(tmp_path, *ahead, call(25, 100, "cudaEventSynchronize", 3)).reliable
    assert not summary(tmp_path, *ahead, call(25, 100, "cudaStreamSynchronize", 3)).reliable


# Launches


def test_a_wrapper_and_what_it_calls_are_one_launch(tmp_path: Path) -> None:
    both = (host(0, 10, "cudaLaunchKernel", "cuda_runtime", correlation=1), call(2, 5, "cudaLaunchKernel_v7000", 1))
    found = health(tmp_path, *both, kernel(20, 5, correlation=1))
    assert (found.reliable, found.counts["n_launches_without_gpu_events"]) == (True, 0)


def test_a_launch_whose_kernel_is_lost(tmp_path: Path) -> None:
    later = (call(100, 10, "cudaLaunchKernel", 2), kernel(120, 5, correlation=2))
    found = health(tmp_path, call(0, 10, "cudaLaunchKernel", 1), *later)
    assert (found.reliable, found.counts["n_lost_launches"]) == (False, 1)
    assert "1 of 2 plain launches has no device event, though later ones have" in " ".join(found.warnings)
    cut = health(tmp_path, *later, call(200, 10, "cudaLaunchKernel", 3))  # it had no time to run
    assert (cut.reliable, cut.counts["n_lost_launches"], cut.counts["n_launches_without_gpu_events"]) == (True, 0, 1)


def test_a_plain_launch_owns_one_kernel(tmp_path: Path) -> None:
    kernels = (kernel(20, 5, correlation=1), kernel(30, 5, correlation=1))
    found = health(tmp_path, call(0, 10, "cudaLaunchKernel", 1), *kernels)
    assert (found.reliable, found.counts["n_shared_launches"]) == (False, 1)
    for several in ("cudaGraphLaunch", "cuLaunchCooperativeKernelMultiDevice"):
        found = health(tmp_path, call(0, 10, several, 1), *kernels)
        assert (found.reliable, found.counts["n_shared_launches"]) == (True, 0), several


def test_a_graph_without_an_id_is_not_joined(tmp_path: Path) -> None:
    found = health(tmp_path, host(0, 10, "cudaGraphLaunch", "cuda_runtime"), kernel(20, 5), kernel(30, 5))
    assert (found.reliable, found.counts["n_graph_launches_without_gpu_events"]) == (False, 1)


# Kernels that were launched before the recording began


def test_what_was_launched_before_the_recording_began_was_queued(tmp_path: Path) -> None:
    early = [kernel(100 * step, 60, correlation=900 + step) for step in range(5)]
    later = [
        event
        for step in range(6)
        for event in (
            call(500 + 100 * step, 10, "cudaLaunchKernel", step),
            kernel(520 + 100 * step, 60, correlation=step),
        )
    ]
    found = summary(tmp_path, host(90, 5, "schedule"), *early, *later)
    (device,) = found.devices
    causes = [[part.cause for part in device.blame.of_gap(row)] for row in range(len(device.gaps))]
    # The host is recorded from 90 us on; the first gap begins at 60.
    assert causes[:4] == [[Cause.UNKNOWN], [Cause.QUEUED], [Cause.QUEUED], [Cause.QUEUED]]
    assert all(Cause.QUEUED in each or Cause.LAUNCH in each for each in causes[4:])
    assert "the GPU ran dry 6 times in 11 operations" in found.verdict.evidence


def test_a_thread_that_only_waits_is_known_and_one_that_launches_is_none(tmp_path: Path) -> None:
    threads = {
        2: [("threading.py(359): wait", 960), ("loop.py(3): run", 40)],
        3: [("threading.py(359): wait", 940), ("loop.py(3): run", 60)],
    }
    events = list(serial())
    for tid, parts in threads.items():
        at = 0
        for name, dur in parts:
            events.append(host(at, dur, name, "python_function", tid=tid))
            at += dur
    trace = load(write(tmp_path, *events))
    (waiting,) = waiting_lanes(trace, host_timeline(trace))
    assert "2" in trace.lanes[waiting].name
    alone = load(write(tmp_path, *(event for event in serial() if event["name"] == "cudaDeviceSynchronize")))
    assert len(waiting_lanes(alone, host_timeline(alone))) == 1


def test_work_whose_launch_is_lost_in_the_middle_is_told(tmp_path: Path) -> None:
    events = []
    for number in range(10):
        events += [kernel(100 * number + 50, 40, correlation=number + 1)]
        events += [call(100 * number, 10, "cudaLaunchKernel", number + 1)] if number not in {2, 4, 7, 8} else []
    trace = load(write(tmp_path, *events))
    verdict = summarize(trace).verdict
    assert verdict.sentence.endswith("what the GPU waited for is unknown for 44.44 % of it.")
    assert not any("unknown" in line for line in verdict.evidence)
    health = examine(trace)
    assert health.reliable
    assert health.warnings[-1].startswith("of 10 device events 4 have no launch in the file")
    assert "can be trusted" not in health_sheet(health).notes[-1]


def test_work_that_was_launched_before_the_recording_began_is_no_fault(tmp_path: Path) -> None:
    events = [kernel(0, 40, correlation=90), kernel(50, 40, correlation=91)]
    for number in range(4):
        events += [call(100 * number + 100, 10, "cudaLaunchKernel", number + 1)]
        events += [kernel(100 * number + 150, 40, correlation=number + 1)]
    health = examine(load(write(tmp_path, *events)))
    assert health.warnings == ()
    assert health_sheet(health).notes[-1] == "The figures of this trace can be trusted."


def test_without_a_record_of_the_host_only_the_idle_time_can_be_relied_on(tmp_path: Path) -> None:
    health = examine(load(write(tmp_path, kernel(0, 40), kernel(50, 40))))
    assert health_sheet(health).notes[-1].startswith("When the GPU was idle can be relied on")


def test_a_long_value_breaks_no_label(tmp_path: Path) -> None:
    path = write(tmp_path, annotation(0, 90, "ProfilerStep#1"), host(5, 50, "aten::add"))
    shown = CliRunner().invoke(app, ["doctor", str(path), "--no-cache"]).output
    assert "steps known by  " in shown
