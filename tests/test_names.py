"""Names of one thing are one, and names of different things are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kineto_samples import annotation, call, host, kernel, write

from cbprof.analysis.gate.compare import compare
from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.names import FEW, any_matches, labels_of, naming, short, waits
from cbprof.trace import Trace

HASH = "f" + "a2b3c" * 10 + "q"


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (["ProfilerStep#7", "ProfilerStep#8"], "ProfilerStep#"),
        (["aten::addmm, seq = 1, op_id = 2", "aten::addmm, seq = 3, op_id = 9, sizes = [[8, 4]]"], "aten::addmm"),
        (
            ["evaluate: MulBackward0, op_id = 7, seq = 2", "evaluate: MulBackward0, op_id = 5, seq = 1"],
            "evaluate: MulBackward0",
        ),
        (
            ["<built-in method get of dict object at 0x7fad7b>", "<built-in method get of dict object at 0x7fa9fc>"],
            "<built-in method get of dict object>",
        ),
        (["<frozen> 0x7f01ab", "<frozen> 0x7f01cd"], "<frozen>"),
        ([f"## Call CompiledFxGraph {each} ##" for each in (HASH, HASH[::-1])], "## Call CompiledFxGraph # ##"),
        ([f"/root/p6/{HASH}.py(903): call", f"/root/qh/{HASH[::-1]}.py(17): call"], "/root/#.py: call"),
        (["run 0123456789abcdef01", "run 9123456789abcdef01"], "run #"),
        (
            [f"execute_33_context_1(sq1sk5sqsq1sqsk5)_generation_32(sq32sk{keys})" for keys in (55, 87)],
            "execute_33_context_1(..)_generation_32(..)",
        ),
        (["scheduler.py(340): schedule", "scheduler.py(344): schedule"], "scheduler.py: schedule"),
        (["nn.Module: DecoderLayer_0", "nn.Module: DecoderLayer_31"], "nn.Module: DecoderLayer"),
        ([f"forward {step}, {step * 3} tokens" for step in range(FEW + 1)], "forward #, # tokens"),
    ],
)  # fmt: skip
def test_names_of_one_thing(names: list[str], one: str) -> None:
    assert naming([*names, "other"]) == ([0] * len(names) + [1], (one, "other"))


def test_a_name_that_stands_alone_stays_as_it_is() -> None:
    names = ["ProfilerStep#7", "a.py(3): f", "aten::conv1d", "aten::conv2d", "layer 1", "layer 2", "odd\0name", "", "#"]
    assert naming(names) == (list(range(len(names))), tuple(names))


def test_up_to_a_few_names_with_numbers_stay_apart() -> None:
    names = [f"stage {number}" for number in range(FEW)]
    assert naming(names).labels == tuple(names)
    assert naming([*names, "stage #"]).labels == ("stage #",)


def test_short_names() -> None:
    assert short("vllm/v1/core/sched/scheduler.py(340): schedule") == "scheduler.schedule"
    assert short("torch/nn/__init__.py(7): <lambda>") == "nn.<lambda>"
    assert short("a.py: f") == "a.f"
    assert short("nn.Module: LlamaForCausalLM_0") == "LlamaForCausalLM"
    assert short("<built-in method get of dict object at 0x7fad>") == "get (built-in)"
    assert short("gpu_model_runner: preprocess") == "gpu_model_runner: preprocess"


def steps(folder: Path, *, first: int, address: str) -> Trace:
    """Four steps of 100 us; the host works 40 us of each in a function of some address, 10 us in the frame alone."""
    events = []
    for number in range(4):
        at = 100 * number
        events += [
            annotation(at, 95, f"ProfilerStep#{first + number}"),
            host(at + 5, 40, f"<built-in method run of Loop object at 0x{address}{number}>"),
            call(at + 50, 5, "cudaLaunchKernel", number + 1),
            kernel(at + 55, 40, correlation=number + 1),
        ]
    return load(write(folder, *events))


def test_the_frames_of_steps_are_one_cause_which_is_no_phase(tmp_path: Path) -> None:
    summary = summarize(steps(tmp_path, first=1, address="7f00"))
    (device,) = summary.devices
    assert {part.label: part.ns for part in device.blame.totals()} == {
        "<built-in method run of Loop object>": 120_000,
        "(in step)": 30_000,
        "launch": 15_000,
        "(untraced)": 15_000,
    }
    gap = device.to_json("all")["gaps"][0]
    assert gap["blame_ns"] == {
        "<built-in method run of Loop object>": 40_000,
        "ProfilerStep#": 10_000,
        "(untraced)": 5_000,
    }
    assert gap["cause_ns"] == {
        "run (built-in)": 40_000,
        "(inside the step, no record)": 10_000,
        "(host time without a record)": 5_000,
        "launch": 5_000,
    }


def test_a_comparison_finds_the_phases_of_other_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    found = compare(steps(tmp_path / "a", first=1, address="7f00"), steps(tmp_path / "b", first=20, address="5555"))
    assert {change.name: change.ratio for change in found.phases} == {
        "<built-in method run of Loop object>": 1.0,
        "ProfilerStep#": 1.0,
        "cudaLaunchKernel": 1.0,
    }


def test_annotations_with_numbers_are_one_in_phases_and_in_what_was_hidden(tmp_path: Path) -> None:
    events = []
    for number in range(30):
        at = 100 * number
        events += [
            annotation(at, 90, f"aten::mm, seq = {number}, op_id = {3 * number}"),
            call(at + 50, 5, "cudaLaunchKernel", number + 1),
            kernel(at + 55, 40, correlation=number + 1),
        ]
    summary = summarize(load(write(tmp_path, *events)))
    (device,) = summary.devices
    assert {phase.name: phase.count for phase in summary.phases} == {"aten::mm": 30, "cudaLaunchKernel": 29}
    assert device.profile is not None
    assert device.profile.hidden_ns == {"aten::mm": 30 * 35_000}


def test_functions_that_only_wait_are_known_by_name() -> None:
    waiting = (
        "threading.py(359): wait",
        "zmq/sugar/poll.py(80): poll",
        "<built-in method acquire of lock object at 0x7f>",
    )
    working = ("wait_for_requests", "model.py(3): poll_weights", "<built-in method append of list object at 0x7f>")
    assert [waits(name) for name in (*waiting, *working)] == [True] * 3 + [False] * 3


def test_labels_are_what_tells_files_apart() -> None:
    assert labels_of(["out/trace.json"]) == ["trace.json"]
    assert labels_of(["out/a.json", "out/b.json"]) == ["a.json", "b.json"]
    assert labels_of(["x/out/a.json", "y/out/a.json", "b.json"]) == ["x/out/a.json", "y/out/a.json", "b.json"]
    assert labels_of(["/1/a.json", "/2/a.json"]) == ["1/a.json", "2/a.json"]
    assert labels_of(["a.json", "a.json"]) == ["a.json", "a.json"]


def test_any_of_many_names_matches_where_it_has_a_word() -> None:
    names = [f"aten::addmm, seq = {number}" for number in range(40_000)]
    assert not any_matches(names, re.compile(r"^step\[\d"), ("step[",))
    assert not any_matches([*names, "a step[1"], re.compile(r"^step\[\d"), ("step[",))
    assert any_matches([*names, "step[1"], re.compile(r"^step\[\d"), ("step[", "other"))
