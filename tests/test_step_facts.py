"""What the steps of a profile tell beside their times: tokens a second, replays of graphs, and what ended a gap."""

from __future__ import annotations

import csv
from pathlib import Path

from kineto_samples import annotation, call, kernel, write

from cbprof.analysis.summary import Summary, summarize
from cbprof.formats import load
from cbprof.render.tables.csv_files import write_csv
from cbprof.render.tables.summary_sheets import gap_lengths, overlap


def served(folder: Path, *names: str) -> Summary:
    """Steps of 1000 us under these annotations. The first launches a kernel, the others a graph."""
    events = []
    for number, name in enumerate(names):
        at = 1000 * number
        launch = "cudaGraphLaunch" if number else "cudaLaunchKernel"
        events += [
            annotation(at, 900, name),
            call(at + 400, 100, launch, number + 1),
            kernel(at + 500, 400, f"void gemm<{number}>(int)", correlation=number + 1),
        ]
    return summarize(load(write(folder, *events)))


def test_tokens_a_second(tmp_path: Path) -> None:
    summary = served(
        tmp_path,
        "execute_context_4(512)_generation_0(0)",
        "execute_context_1(128)_generation_4(4)",
        "execute_context_0(0)_generation_5(5)",
    )
    assert (summary.tokens, summary.wall_ns) == (9, 2_400_000)
    assert summary.tokens_per_s == 9 / 0.0024
    assert summary.to_json()["tokens_per_s"] == summary.tokens_per_s


def test_tokens_are_unknown_where_a_step_does_not_tell(tmp_path: Path) -> None:
    assert served(tmp_path, "step[DECODE bs=4]", "step[TARGET_VERIFY bs=4]").tokens is None


def test_the_steps_that_launched_no_graph(tmp_path: Path) -> None:
    (device,) = served(tmp_path, *(f"ProfilerStep#{number}" for number in range(7, 11))).devices
    assert device.to_json()["overlap"]["graph_coverage_pct"] == 75
    assert device.to_json()["overlap"]["steps_without_graph"] == [7]
    assert ("steps that do not", "7") in overlap(device).rows


def test_a_gap_names_what_ended_it(tmp_path: Path) -> None:
    summary = served(tmp_path, "step[DECODE bs=4]", "step[DECODE bs=4]")
    (gap,) = summary.to_json()["devices"][0]["gaps"]
    assert (gap["step"], gap["ended_by"]) == (
        1,
        {
            "name": "void gemm<1>(int)",
            "stream": "stream 7",
            "launch": "cudaGraphLaunch",
            "launch_start_ns": 1_400_000,
        },
    )
    text = [row[0] for row in gap_lengths(summary.devices[0]).rows]
    assert "before step 1: gemm, by cudaGraphLaunch, stream 7" in text
    _, gaps, _ = write_csv(summary, tmp_path / "tables")
    with gaps.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["ended_by"], row["stream"], row["launch"]) == ("void gemm<1>(int)", "stream 7", "cudaGraphLaunch")
