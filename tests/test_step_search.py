"""Steps without annotations: as many as there are, where they are, and none where that cannot be told."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cbprof.analysis.accounting.steps import StepSource, step_source
from cbprof.cli.main import app
from cbprof.formats import load, save
from cbprof.formats.kineto import read as kineto
from cbprof.formats.steps.marks import with_steps
from cbprof.formats.steps.search import LEAST_STEPS, with_searched_steps
from cbprof.meta import Meta
from cbprof.trace import NONE, Kind, Lane, Trace, TraceBuilder

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from gen_kineto import Loop, generate

WINDOWS = Path(__file__).parent / "data" / "h200_transformers"


@pytest.mark.parametrize(
    ("name", "steps", "source"),
    [
        ("kineto_sync_graph", 12, "graph launches"),
        ("kineto_async_graph", 11, "graph launches"),
        ("kineto_sync_eager", 9, "sampling copies"),
    ],
)
def test_an_engine_without_annotations(name: str, steps: int, source: str) -> None:
    trace = load(WINDOWS / f"{name}.json.gz")
    assert trace.meta.steps_from == source
    assert trace.meta.steps_confidence == 1.0
    found = trace.step[trace.step != NONE]
    assert np.array_equal(np.unique(found), np.arange(steps))
    kernels = np.bincount(trace.step[(trace.kind == Kind.GPU_COMPUTE) & (trace.step != NONE)])
    assert kernels.max() - kernels.min() <= 0.1 * np.median(kernels)
    copies = np.bincount(trace.step[(trace.kind == Kind.GPU_D2H) & (trace.step != NONE)])
    assert (copies == 1).all()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_steps_are_those_that_annotations_tell(mode: str, graph: bool, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    generate(path, 30_000, Loop(mode=mode, graph=graph))
    bare = kineto.load(path)
    told, found = with_steps(bare), with_searched_steps(bare)
    assert found.meta.steps_from == ("graph launches" if graph else "sampling copies")
    computing = (bare.kind == Kind.GPU_COMPUTE) & (found.step != NONE)
    assert len(np.unique(found.step[computing])) >= len(np.unique(told.step[told.step != NONE])) - 2
    pairs = set(zip(told.step[computing].tolist(), found.step[computing].tolist(), strict=True))
    first = min(told for told, _ in pairs)
    assert pairs == {(step + first, step) for step in range(len(pairs))}


def loop(kernels_of_step: list[int], *, copies: int = 1) -> Trace:
    """Steps that launch some kernels each, one after the other, and then copy to the host."""
    builder = TraceBuilder()
    host, stream = builder.lane(Lane("thread 1")), builder.lane(Lane("stream 7", device=0))
    at = link = 0
    for kernels in kernels_of_step:
        for place in range(kernels + copies):
            kind, name = (Kind.GPU_COMPUTE, "gemm") if place < kernels else (Kind.GPU_D2H, "Memcpy DtoH")
            call = "cudaLaunchKernel" if place < kernels else "cudaMemcpyAsync"
            builder.span(host, Kind.CPU_WORK, call, at, 5, link=link)
            builder.span(stream, kind, name, at + 100, 8, link=link)
            at, link = at + 10, link + 1
    return builder.build(Meta.parse({"evidence": "cupti", "complete": True}))


def test_a_prefill_among_many_steps_is_a_step() -> None:
    found = with_searched_steps(loop([20] * 15 + [40] + [20] * 14))
    assert found.meta.steps_confidence == 28 / 29  # the first is not between two copies
    kernels = np.bincount(found.step[(found.kind == Kind.GPU_COMPUTE) & (found.step != NONE)])
    assert sorted(kernels.tolist()) == [20] * 29 + [40]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(loop([20] * LEAST_STEPS), id="too few"),
        pytest.param(loop([20, 40, 30, 90, 10] * 8), id="irregular"),
        pytest.param(loop([2] * 40), id="no forward pass between the copies"),
        pytest.param(loop([20] * 40, copies=0), id="no copy"),
        pytest.param(loop([20] * 40, copies=2), id="two copies a step"),
        pytest.param(loop([]), id="empty"),
        pytest.param(replace(loop([20] * 40), meta=Meta(evidence="cuda_events")), id="no profile"),
    ],
)
def test_where_it_cannot_be_told_there_are_no_steps(trace: Trace) -> None:
    assert with_searched_steps(trace) is trace


def test_steps_that_are_known_stay() -> None:
    trace = loop([20] * 40)
    known = replace(trace, step=np.zeros(len(trace), dtype=np.int32))
    assert with_searched_steps(known) is known


# What users are told of it


def test_how_steps_are_known(tmp_path: Path) -> None:
    bare = loop([20] * 40)
    assert step_source(bare) is None
    assert step_source(with_searched_steps(bare)) == StepSource("sampling copies", 1.0)
    recorded = replace(bare, step=np.zeros(len(bare), dtype=np.int32))
    assert step_source(recorded) == StepSource("recorded")
    generate(tmp_path / "trace.json", 3000, Loop())
    assert step_source(load(tmp_path / "trace.json")) == StepSource("annotations")
    odd = replace(
        recorded, meta=Meta.parse({"steps_from": ["graph"], "steps_confidence": None})
    )  # in a file, anything may stand
    assert step_source(odd) == StepSource("recorded")


def shown(*command: str) -> str:
    result = CliRunner().invoke(app, list(command))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_reports_say_how_surely_steps_were_found(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.json")
    save(with_searched_steps(loop([20] * 15 + [40] + [20] * 14)), Path(path))
    for command in (["doctor", path, "--json"], ["report", path, "--json"]):
        steps = json.loads(shown(*command))["steps"]
        assert (steps["source"], steps["confidence"]) == ("sampling copies", 28 / 29)
    assert "sampling copies, 96.55 % of the steps alike" in shown("doctor", path)
    assert "steps found by  sampling copies, 96.55 % of the steps alike" in shown("report", path)
    assert "Steps found by sampling copies, 96.55 % of the steps alike." in shown("report", path, "--format", "md")


def test_steps_that_were_told_need_no_word(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.json")
    generate(Path(path), 3000, Loop())
    assert "steps found by" not in shown("report", path)
    assert json.loads(shown("report", path, "--json"))["steps"]["confidence"] is None
    assert "annotations" in shown("doctor", path)
