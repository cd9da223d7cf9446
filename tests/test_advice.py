"""What to do about a verdict: a documented table, commands that exist, and nothing beyond the evidence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import cbprof
from kineto_samples import annotation, call, host, kernel, write
from oracle import COMPUTE, ENGINE, Row, trace_of

from cbprof.analysis.accounting.blame import BlameTotal, Cause
from cbprof.analysis.summary import summarize
from cbprof.analysis.verdict.advice import RULES, Advice, Case, Engine, about, advise, engine_of
from cbprof.analysis.verdict.verdict import Bound
from cbprof.cli.main import app
from cbprof.formats import load, save
from cbprof.trace import Kind, Trace

DOCUMENT = Path(__file__).parent.parent / "docs" / "advice.md"
COMMANDS: dict[str, Any] = typer.main.get_group(app).commands
MS = 10**6


def run(*, mode: str, engine: str = "cbprof reference", host_ms: int = 6) -> Trace:
    """Ten steps of 4 ms of compute, each after ``host_ms`` of the host, which waits for it in sync."""
    rows: list[Row] = []
    for step in range(10):
        start = step * (host_ms + 4) * MS
        launched = start + host_ms * MS
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, launched - MS, step),
            (ENGINE, Kind.CPU_WORK, "launch", launched - MS, launched, step),
            (ENGINE, Kind.CPU_WAIT, "wait", launched, launched + 4 * MS, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", launched, launched + 4 * MS, step),
        ]
    return trace_of(*rows, mode=mode, engine=engine, evidence="cuda_events", complete=True)


def case(**facts: Any) -> Case:
    """A healthy host-bound async run, but for these facts."""
    usual = {"bound": Bound.HOST, "engine": Engine.CBPROF, "mode": "async", "reliable": True, "evidence": "cuda_events"}
    more = {"stacks": False, "steps": 10, "has_requests": True, "largest": BlameTotal(Cause.PHASE, "prepare inputs", 1)}
    figures = {"late_pct": 0.0, "blocked_pct": 0.0, "graph_pct": None, "idle_pct": 30.0, "waits_for_ranks": False}
    return Case(**(usual | more | figures | facts))


def test_the_document_is_the_table() -> None:
    rows = [
        "| {} | {} | {} |".format(
            rule.when,
            rule.what,
            "<br>".join(
                f"{f'{engine}: ' if len(rule.commands) > 1 else ''}`{command}`"
                for engine, command in rule.commands.items()
            ),
        )
        for rule in RULES
    ]
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| ")][1:] == rows
    assert all(Engine.OTHER in rule.commands for rule in RULES)


OURS = sorted({command for rule in RULES for command in rule.commands.values() if command.startswith("cbprof ")})


@pytest.mark.parametrize("command", OURS)
def test_our_own_commands_exist(command: str) -> None:
    _, verb, *arguments = shlex.split(command, comments=True)
    if verb in {"lab", "record"}:  # the one takes names of experiments, the other a program
        assert cbprof(verb, "--list" if verb == "lab" else "--help", cwd=Path()).returncode == 0
    COMMANDS[verb].make_context(verb, arguments)


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        ("cbprof reference", "cbprof run --mode async"),
        ("vLLM 0.23.0", "vllm serve MODEL --async-scheduling"),
        ("transformers 5.17.0 continuous batching", "ContinuousBatchingConfig(use_async_batching=True)"),
        ("my own", "cbprof lab async"),
    ],
)
def test_a_sync_run_is_told_to_work_ahead(engine: str, command: str) -> None:
    first, second = summarize(run(mode="sync", engine=engine)).advice
    assert first.command == command
    assert second.command == "cbprof predict FILE"


def test_an_async_run_is_not() -> None:
    (advice,) = advise(case())
    assert advice == Advice(
        'Make "prepare inputs" cheaper, for the GPU waits for it most; see what half of it would bring.',
        "cbprof predict FILE --scale 'prepare inputs=0.5'",
    )


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"reliable": False}, ["cbprof doctor FILE"]),
        ({"bound": Bound.UNKNOWN, "largest": None}, ["cbprof doctor FILE"]),
        ({"bound": Bound.STARVED}, ["cbprof requests FILE"]),
        ({"bound": Bound.STARVED, "has_requests": False}, ["cbprof plot FILE"]),
        ({"largest": BlameTotal(Cause.SYNC_LATENCY, "sync latency", 1)}, ["taskset --cpu-list CORES COMMAND"]),
        ({"bound": Bound.DEVICE, "evidence": "cupti", "idle_pct": 9.0}, ["cbprof report FILE --full"]),
        ({"bound": Bound.DEVICE, "evidence": "cupti", "idle_pct": 9.0, "waits_for_ranks": True},
         ["cbprof report FOLDER", "cbprof report FILE --full"]),
        ({"bound": Bound.DEVICE, "evidence": "emulated", "idle_pct": 1.0},
         ["cbprof predict FILE --gpu-speed 2", "cbprof check FILE --max-idle 5%"]),
        ({"bound": Bound.LAUNCH, "evidence": "cupti", "engine": Engine.TRANSFORMERS},
         ["ContinuousBatchingConfig(use_cuda_graph=True)"]),
        ({"bound": Bound.LAUNCH, "evidence": "cupti", "engine": Engine.VLLM, "graph_pct": 70.0},
         ["vllm serve MODEL --max-cudagraph-capture-size TOKENS"]),
        # A profile does not say whether it is async: the host must be seen to wait, and to launch late.
        ({"mode": None, "evidence": "cupti", "late_pct": 96.0, "blocked_pct": 2.0}, ["cbprof plot FILE"]),
        ({"mode": None, "evidence": "cupti", "late_pct": 10.0, "blocked_pct": 50.0}, ["cbprof plot FILE"]),
        ({"mode": None, "evidence": "cupti", "late_pct": 96.0, "blocked_pct": 50.0, "engine": Engine.VLLM},
         ["vllm serve MODEL --async-scheduling", "cbprof predict FILE"]),
        ({"mode": None, "evidence": "cupti", "stacks": True}, ["torch.profiler.profile(with_stack=False)"]),
        ({"bound": Bound.UNCLEAR, "largest": BlameTotal(Cause.TRANSFER, "transfer", 1)}, ["cbprof lab streams"]),
    ],
)  # fmt: skip
def test_advice_follows_the_evidence(facts: dict[str, Any], told: list[str]) -> None:
    assert [each.command for each in advise(case(**facts))] == told


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("execute_context_0(0)_generation_4(4)", Engine.VLLM),
        ("execute_33_context_1(sq1sk5)_generation_32(sq32)", Engine.VLLM),
        ("/usr/lib/vllm/v1/core/sched/scheduler.py(340): schedule", Engine.VLLM),
        ("step[DECODE bs=32]", Engine.SGLANG),
        ("[Executor] _forward_step 8: 0 ctx reqs, 8 gen reqs", Engine.TENSORRT_LLM),
        ("transformers/generation/continuous_batching/continuous_api.py(9): run", Engine.TRANSFORMERS),
        ("ProfilerStep#1", Engine.OTHER),
    ],
)
def test_an_engine_is_known_by_what_it_writes(name: str, engine: Engine, tmp_path: Path) -> None:
    trace = load(
        write(tmp_path, annotation(0, 50, name), call(1, 2, "cudaLaunchKernel", 1), kernel(5, 5, correlation=1))
    )
    assert engine_of(trace) is engine


def test_a_profile_with_stacks_is_told_what_they_cost(tmp_path: Path) -> None:
    events: list[Any] = []
    for step in range(4):
        at = 1000 * step
        events += [
            host(at, 900, "vllm/v1/engine/core.py(300): step", "python_function"),
            call(at + 880, 5, "cudaGraphLaunch", step + 1),
            kernel(at + 900, 100, correlation=step + 1),
        ]
    write(tmp_path, *events)
    (first, *_) = json.loads(cbprof("report", "--json", "sample.json", cwd=tmp_path).stdout)["advice"]
    assert "without Python stacks" in first["what"]
    assert first["command"].startswith("vllm serve MODEL --profiler-config ")


def test_every_form_of_a_report_says_what_to_do(tmp_path: Path) -> None:
    file = "my trace.json"
    save(run(mode="sync"), tmp_path / file)
    command = "cbprof predict 'my trace.json'"
    text = cbprof("report", file, cwd=tmp_path, columns=40).stdout.splitlines()
    assert f"      {command}" in text  # whole on its line, however narrow the terminal is
    found = json.loads(cbprof("report", "--json", file, cwd=tmp_path).stdout)["advice"]
    assert [each["command"] for each in found] == ["cbprof run --mode async", command]
    assert command in cbprof("report", "--format", "md", file, cwd=tmp_path).stdout
    cbprof("report", "-o", "page.html", file, cwd=tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<code>cbprof predict &#x27;my trace.json&#x27;</code>" in page
    assert cbprof(*shlex.split(command)[1:], cwd=tmp_path).returncode == 0


def test_a_file_is_named_as_a_shell_wants_it() -> None:
    (advice,) = about((Advice("", "cbprof doctor FILE"),), "a\\1 b.json")
    assert shlex.split(advice.command)[2] == "a\\1 b.json"
