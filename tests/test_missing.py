"""Records that a trace lacks: launched work stands at the head of its stream while nothing is recorded that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_samples import call, kernel, write
from typer.testing import CliRunner

from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.accounting.missing import MISSING_FROM_NS
from cbprof.analysis.summary import Summary, summarize
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.render.words.report import analyse_run, gist


def decode(*, waits_us: float, step: int = 3, device: int = 0) -> list[dict[str, Any]]:
    """Ten steps of 500 us, launched 30 us before they run; one of them begins later than it could."""
    events, at = [], 0.0
    for turn in range(10):
        late = waits_us if turn == step else 0
        events.append(call(at, 10, "cudaLaunchKernel", 100 * device + turn))
        events.append(kernel(at + 15 + late, 500, device=device, correlation=100 * device + turn))
        at += 600 + late
    return events


def summary(folder: Path, *events: Any, name: str = "trace.json", **fields: Any) -> Summary:
    return summarize(load(write(folder, *events, name=name, **fields)))


@pytest.mark.parametrize(("waits_us", "missing"), [(0, False), (994, False), (995, True), (40_000, True)])
def test_work_that_could_have_begun_tells_of_missing_records(tmp_path: Path, waits_us: float, missing: bool) -> None:
    found = summary(tmp_path, *decode(waits_us=waits_us))
    (device,) = found.devices
    head_ns = round((waits_us + 5) * 1000)  # the launch was over 5 us before
    assert (head_ns >= MISSING_FROM_NS) is missing
    assert device.missing_ns == (head_ns if missing else 0)
    assert found.reliable is not missing
    assert any(warning.startswith("records are missing") for warning in found.warnings) is missing
    causes = {total.cause: total.ns for total in device.blame.totals()}
    assert causes.get(Cause.MISSING, 0) == device.missing_ns
    assert sum(causes.values()) == device.idle_ns
    if missing:
        window_ns, idle_ns = device.window.length_ns - head_ns, (device.idle_ns or 0) - head_ns
        assert device.idle_pct_excl_missing == pytest.approx(100 * idle_ns / window_ns)
        assert device.to_json()["idle_pct_excl_missing"] == device.idle_pct_excl_missing
        assert f"idle {device.idle_pct_excl_missing:.2f} %" in found.verdict.sentence
        assert any("records are missing for" in line for line in found.verdict.evidence)
        assert not any("(records are missing)" in line for line in found.verdict.evidence)


def test_doctor_and_report_say_so(tmp_path: Path) -> None:
    path = write(tmp_path, *decode(waits_us=39_995), name="trace.json")
    shown = CliRunner().invoke(app, ["doctor", str(path)])
    text = " ".join(shown.stdout.replace("│", " ").split())
    assert shown.exit_code == 1
    assert "stretches in which records are missing 1" in text
    assert "the longest stretch is 40.00 ms from 1810 us on" in text
    (sentence,) = gist([analyse_run(load(path), "trace.json")])
    assert "(records are missing for the rest)" in sentence
    assert sentence.startswith("The GPU waited 15.18 % of 5.895 ms")


def test_a_short_hole_in_a_long_trace_is_told_and_does_no_harm(tmp_path: Path) -> None:
    long = [kernel(50_000, 500_000, "long", correlation=900), call(10_000, 5, "cudaLaunchKernel", 900)]
    later = [call(560_000, 5, "cudaLaunchKernel", 901), kernel(562_000, 500, correlation=901)]
    found = summary(tmp_path, *long, *later)
    assert found.devices[0].missing_ns == 1_995_000
    assert found.reliable


def test_a_stream_may_wait_for_another_device_of_its_rank(tmp_path: Path) -> None:
    """A pipeline over two GPUs: the second one's kernels are launched early, and wait for the first one's."""
    events = []
    for turn in range(5):
        at = 10_000 * turn
        events += [call(at, 5, "cudaLaunchKernel", turn), kernel(at + 10, 4000, correlation=turn)]
        events += [call(at + 8, 5, "cudaLaunchKernel", 50 + turn)]
        events += [kernel(at + 4020, 4000, device=1, correlation=50 + turn)]
    found = summary(tmp_path, *events)
    assert [device.missing_ns for device in found.devices] == [0, 0]
    assert found.reliable


def test_a_launch_that_blocks_or_is_late_is_no_sign(tmp_path: Path) -> None:
    blocking = [call(600, 40_000, "cudaLaunchKernel", 50), kernel(40_610, 5, correlation=50)]
    late = [call(90_000, 5, "cudaLaunchKernel", 51), kernel(90_010, 5, correlation=51)]
    found = summary(tmp_path, *decode(waits_us=0)[:2], *blocking, *late)
    assert found.devices[0].missing_ns == 0


@pytest.mark.parametrize(
    ("name", "fields", "sampled"),
    [
        ("sampled_rank-0.json", {}, True),
        ("rank0.downsampled.json", {}, True),
        ("trace.json", {"sampled": True}, True),
        ("trace.json", {"note": "Sampled, one in 100"}, True),
        ("trace.json", {"sampled": False}, False),
        ("resampledness.json", {}, False),
        ("trace.json", {"note": "all of it"}, False),
    ],
)
def test_a_file_that_says_that_it_is_sampled_is_not_reliable(
    tmp_path: Path, name: str, fields: dict[str, Any], sampled: bool
) -> None:
    found = summary(tmp_path, *decode(waits_us=0), name=name, **fields)
    assert found.reliable is not sampled
    assert sum("says that it is sampled" in warning for warning in found.warnings) == sampled
