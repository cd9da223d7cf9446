"""Many causes as a few that sum to the same, by what encloses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kineto_samples import annotation, call, host, kernel, write
from oracle import trace_of, traces

from cbprof.analysis.accounting.blame import blame_gaps
from cbprof.analysis.accounting.cause_tree import MOST_CAUSES, Branch, causes
from cbprof.analysis.accounting.gaps import find_gaps
from cbprof.analysis.accounting.host import host_timeline
from cbprof.analysis.accounting.states import states
from cbprof.analysis.accounting.window import Window
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.render.charts.run import gap_chart
from cbprof.render.picture.scene import scene
from cbprof.render.tables.summary_sheets import gap_lengths
from cbprof.render.web.viewer_data import run_document
from cbprof.trace import Kind, Lane, Trace

PARTS = 20


def stacks(folder: Path) -> DeviceSummary:
    """One launch late by 1000 us: 600 in 20 parts of ``prepare``, 300 in 20 of ``schedule``, all below wrappers."""
    events = [
        kernel(-10, 10),
        host(0, 1000, "main.py(1): <module>"),
        host(0, 1000, "main.py(9): serve"),
        annotation(0, 600, "execute_context_0(0)_generation_4(4)"),
        host(0, 600, "lib/run.py(7): call"),
        host(0, 600, "lib/work.py(30): prepare"),
        host(600, 300, "lib/plan.py(5): schedule"),
        host(900, 50, "aten::small"),
        host(950, 30, "cudaEventQuery"),
    ]
    for part in range(PARTS):
        events.append(host(30 * part, 30, f"lib/a.py({part}): part_{'abcdefghijklmnopqrstuvwxyz'[part]}"))
        events.append(host(600 + 15 * part, 15, f"lib/b.py({part}): step_{'abcdefghijklmnopqrstuvwxyz'[part]}"))
    events += [call(1000, 5, "cudaLaunchKernel", 1), kernel(1005, 10, correlation=1)]
    (device,) = summarize(load(write(folder, *events))).devices
    return device


def test_many_functions_go_by_what_encloses_them(tmp_path: Path) -> None:
    device = stacks(tmp_path)
    assert len(device.blame.totals()) > 2 * PARTS
    found = {part.label: part.ns for part in device.causes.totals}
    assert len(found) <= MOST_CAUSES
    assert sum(found.values()) == device.gaps.total_ns == 1_005_000
    assert found["launch"] == 5_000
    parts = sum(ns for name, ns in found.items() if name.startswith("a.part_"))
    assert found["work.prepare"] + parts == 600_000
    assert found["plan.schedule"] == 300_000
    assert found["other Python functions"] == 20_000


def test_the_tree_begins_where_the_program_branches_and_names_no_wrapper(tmp_path: Path) -> None:
    tree = stacks(tmp_path).causes.tree
    assert [(branch.name, branch.ns) for branch in tree[:3]] == [
        ("work.prepare", 600_000),
        ("plan.schedule", 300_000),
        ("aten::small", 50_000),
    ]
    assert {child.ns for child in tree[0].children} == {30_000}
    assert len(tree[0].children) == PARTS


def test_a_few_causes_are_left_alone(tmp_path: Path) -> None:
    events = (kernel(0, 10), host(10, 40, "a.py(3): outer"), host(20, 10, "a.py(5): inner"))
    launch = (call(60, 5, "cudaLaunchKernel", 1), kernel(65, 10, correlation=1))
    (device,) = summarize(load(write(tmp_path, *events, *launch))).devices
    assert device.causes.totals == device.blame.totals()
    assert device.to_json()["cause_tree"] == [
        {
            "name": "a.outer",
            "ns": 40_000,
            "own_ns": 30_000,
            "children": [{"name": "a.inner", "ns": 10_000, "own_ns": 10_000, "children": []}],
        }
    ]


def causes_of(trace: Trace, end: int) -> None:
    timeline = host_timeline(trace)
    gaps = find_gaps(trace, states(trace, Window(0, end), 0), timeline)
    blame = blame_gaps(trace, 0, gaps, timeline)
    found = causes(trace, blame, timeline)
    assert len(found.totals) <= MOST_CAUSES
    assert sum(part.ns for part in found.totals) == gaps.total_ns
    assert all(part.ns > 0 for part in found.totals)
    by_part = found.places(blame.parts.cause, blame.parts.span)
    assert np.bincount(by_part, weights=blame.parts.ns, minlength=len(found.totals)).tolist() == [
        part.ns for part in found.totals
    ]

    def check(branch: Branch) -> None:
        assert branch.ns >= branch.own_ns + sum(child.ns for child in branch.children)
        for child in branch.children:
            check(child)

    for branch in found.tree:
        check(branch)


@given(traces())
def test_causes_sum_to_the_idle_time(trace: Trace) -> None:
    causes_of(trace, 40)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60), st.integers(0, 40)), min_size=20, max_size=60))
def test_causes_of_any_nesting_sum_to_the_idle_time(spans: list[tuple[int, int, int]]) -> None:
    engine, compute = Lane("engine"), Lane("compute", device=0)
    rows = [
        (engine, Kind.CPU_WORK, f"f{chr(97 + name % 26)}{chr(97 + name // 26)}", start, start + length, 0)
        for start, length, name in spans
    ]
    causes_of(trace_of(*rows, (compute, Kind.GPU_COMPUTE, "compute", 150, 160, 0)), 160)


def test_a_window_of_vllm_goes_by_names_that_its_developers_know() -> None:
    trace = load(Path(__file__).parent / "data" / "vllm_stacks.json.gz")
    summary = summarize(trace)
    (device,) = summary.devices
    assert len(device.blame.totals()) > 200
    found = {part.in_words: part.ns for part in device.causes.totals}
    assert len(found) <= MOST_CAUSES
    assert sum(found.values()) == device.gaps.total_ns
    assert {
        "scheduler.schedule",
        "scheduler.update_from_output",
        "kv_cache_manager.allocate_slots",
        "model_runner.execute_model",
        "model_runner.prepare_inputs",
        "launch",
        "its turn in the queue",
    } < set(found)
    assert sum(ns for name, ns in found.items() if name.startswith("other ")) < 0.05 * device.gaps.total_ns
    assert (summary.n_steps, summary.tokens) == (2, 64)
    assert device.overlap.graph_coverage_pct == 100

    # The timeline, the gap chart and the table of gaps say the same names as the report.
    names = list(found)
    (shown,) = run_document(scene(trace))["devices"]
    assert [cause["label"] for cause in shown["blame"]["causes"]][:-1] == names[:7]
    assert [bars.name for bars in gap_chart(summary).data][:-1] == names[:7]
    assert {cells[-1] for cells in gap_lengths(device).rows} - {""} <= found.keys()
