"""What to do about a verdict, and the next command: a table of rules, each with the evidence that it needs.

docs/advice.md is the same table for readers; a test holds both together. A rule that lacks its evidence says nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cbprof.analysis.accounting.blame import BlameTotal, Cause
from cbprof.analysis.verdict.verdict import LITTLE_IDLE_PCT, Bound
from cbprof.meta import Evidence
from cbprof.names import any_matches
from cbprof.trace import Trace

MOST_ADVICE = 3
FEW_GRAPHS_PCT = 90
"""Where fewer of the steps replay a graph, larger graphs are worth a look."""


class Engine(StrEnum):
    """Whose options a command is written in."""

    CBPROF = "cbprof"
    VLLM = "vLLM"
    SGLANG = "SGLang"
    TRANSFORMERS = "transformers"
    TENSORRT_LLM = "TensorRT-LLM"
    OTHER = "other"


# What the names of spans tell of an engine: annotations of its steps, or its source files; and words that these hold.
_MARKS = {
    Engine.VLLM: (re.compile(r"\bexecute_(context|new|\d+_context)_\d|(^|/)vllm/"), ("execute_", "vllm/")),
    Engine.SGLANG: (re.compile(r"^step\[[A-Z_]+ |(^|/)sglang/"), ("step[", "sglang/")),
    Engine.TENSORRT_LLM: (
        re.compile(r"^\[Executor\] _forward_step|(^|/)tensorrt_llm/"),
        ("[Executor]", "tensorrt_llm/"),
    ),
    Engine.TRANSFORMERS: (re.compile(r"(^|/)transformers/generation/continuous_batching"), ("continuous_batching",)),
}
_STACK = re.compile(r"\.py\(\d+\): ")


def engine_of(trace: Trace) -> Engine:
    """Which engine ran: as the file says, else by the names of its spans."""
    stated = (trace.meta.engine or "").lower()
    for engine in Engine:
        if engine is not Engine.OTHER and stated.startswith(engine.value.lower()):
            return engine
    for engine, (mark, words) in _MARKS.items() if not stated else ():
        if any_matches(trace.names, mark, words):
            return engine
    return Engine.OTHER


def records_stacks(trace: Trace) -> bool:
    """Whether a profiler recorded every Python function, which takes the host time of its own."""
    return trace.is_profile and any_matches(trace.names, _STACK, (".py(",))


@dataclass(frozen=True, slots=True)
class Case:
    """What the rules ask about: the device that waited longest, and what the trace holds.

    ``late_pct``: of steps launched only after the compute before them had ended; ``blocked_pct``: of the device's
    active time, while the host sits in a wait; ``graph_pct``: of steps that replay a graph. None is unknown.
    """

    bound: Bound
    engine: Engine
    mode: str | None
    reliable: bool
    evidence: Evidence
    stacks: bool
    steps: int
    has_requests: bool
    largest: BlameTotal | None
    late_pct: float | None
    blocked_pct: float
    graph_pct: float | None
    idle_pct: float
    waits_for_ranks: bool

    @property
    def is_profile(self) -> bool:
        return self.evidence == "cupti"

    @property
    def cause(self) -> Cause | None:
        return None if self.largest is None else self.largest.cause

    @property
    def host_counts(self) -> bool:
        """Less host work, or host work at another time, would bring something."""
        return self.bound in {Bound.SERIALISED, Bound.HOST, Bound.BOTH}

    @property
    def in_turns(self) -> bool:
        """Host and device wait for each other in every step, as far as the trace tells."""
        if self.mode is not None or self.bound is Bound.SERIALISED:
            return self.host_counts and self.mode != "async"
        late = self.late_pct is not None and self.late_pct >= 50
        return self.host_counts and late and self.blocked_pct >= 25


class Advice(NamedTuple):
    """``what`` to do, in a sentence; ``command``: what to type for it."""

    what: str
    command: str

    def to_json(self) -> dict[str, str]:
        return self._asdict()


class Rule(NamedTuple):
    """``when``: what must hold, in words. ``FILE`` and ``PHASE`` in ``what`` and ``commands`` stand for the case's own.

    ``commands``: by engine; that of ``Engine.OTHER`` holds for all that have none of their own.
    """

    when: str
    holds: Callable[[Case], bool]
    what: str
    commands: Mapping[Engine, str]


def _any(command: str) -> Mapping[Engine, str]:
    return {Engine.OTHER: command}


RULES = (
    Rule(
        "the trace cannot be relied on, or nothing is known of the device",
        lambda case: not case.reliable or case.bound is Bound.UNKNOWN or case.cause is Cause.UNKNOWN,
        "Find out what the trace lacks before you act on its figures.",
        _any("cbprof doctor FILE"),
    ),
    Rule(
        "a profile with Python stacks, and the host is late",
        lambda case: case.stacks and (case.host_counts or case.bound is Bound.LAUNCH),
        "Profile again without Python stacks: recording them takes host time, which counts as idle time of the GPU.",
        {
            Engine.VLLM: "vllm serve MODEL --profiler-config "
            """'{"profiler": "torch", "torch_profiler_dir": "DIR", "torch_profiler_with_stack": false}'""",
            Engine.OTHER: "torch.profiler.profile(with_stack=False)",
        },
    ),
    Rule(
        "the GPU waits for requests",
        lambda case: case.bound is Bound.STARVED and case.has_requests,
        "Send more requests at once, or serve the same on fewer GPUs; see when they came and how long each took.",
        _any("cbprof requests FILE"),
    ),
    Rule(
        "launch-bound, or the largest part of the idle time passes inside launches, and less than half of the steps "
        "replay a graph",
        lambda case: (
            (case.bound is Bound.LAUNCH or (case.host_counts and case.cause is Cause.LAUNCH))
            and (case.graph_pct is None or case.graph_pct < 50)
        ),
        "Replay a step as a CUDA graph, so that one launch takes the place of many.",
        {
            Engine.CBPROF: "cbprof run --device cuda",
            Engine.VLLM: "vllm serve MODEL  # without --enforce-eager",
            Engine.SGLANG: "python -m sglang.launch_server --model-path MODEL  # without --disable-cuda-graph",
            Engine.TRANSFORMERS: "ContinuousBatchingConfig(use_cuda_graph=True)",
            Engine.OTHER: 'torch.compile(model, mode="reduce-overhead")',
        },
    ),
    Rule(
        "the host is late, and at least half, but less than 90 %, of the steps replay a graph",
        lambda case: (
            (case.host_counts or case.bound is Bound.LAUNCH)
            and case.graph_pct is not None
            and 50 <= case.graph_pct < FEW_GRAPHS_PCT
        ),
        "Capture graphs for larger batches, so that more of the steps replay one.",
        {
            Engine.VLLM: "vllm serve MODEL --max-cudagraph-capture-size TOKENS",
            Engine.SGLANG: "python -m sglang.launch_server --model-path MODEL --cuda-graph-max-bs REQUESTS",
            Engine.OTHER: "cbprof report FILE --full  # which steps replay none",
        },
    ),
    Rule(
        "the host is late, and the run is sync; where the trace does not say: the host sits in a wait for a quarter of "
        "the GPU's active time, and launches at least half of the steps late",
        lambda case: case.in_turns,
        "Let the host work one batch ahead, so that it schedules and prepares while the GPU computes.",
        {
            Engine.CBPROF: "cbprof run --mode async",
            Engine.VLLM: "vllm serve MODEL --async-scheduling",
            Engine.SGLANG: "python -m sglang.launch_server --model-path MODEL  # without --disable-overlap-schedule",
            Engine.TRANSFORMERS: "ContinuousBatchingConfig(use_async_batching=True)",
            Engine.TENSORRT_LLM: "trtllm-serve MODEL --extra_llm_api_options CONFIG.yaml  "
            "# without disable_overlap_scheduler",
            Engine.OTHER: "cbprof lab async",
        },
    ),
    Rule(
        "the same, and the trace has steps",
        lambda case: case.in_turns and case.steps > 1,
        "See what working one batch ahead would bring, before you change anything.",
        _any("cbprof predict FILE"),
    ),
    Rule(
        "the host is late although it works ahead, and a phase of it is the largest cause",
        lambda case: (
            case.host_counts
            and not case.in_turns
            and not case.is_profile
            and case.steps > 1
            and case.cause is Cause.PHASE
        ),
        'Make "PHASE" cheaper, for the GPU waits for it most; see what half of it would bring.',
        _any("cbprof predict FILE --scale PHASE=0.5"),
    ),
    Rule(
        "the largest part of the idle time passes while the host wakes up from a wait",
        lambda case: case.host_counts and case.cause is Cause.SYNC_LATENCY,
        "Give the host cores of its own: the results were there, and the thread that waits for them still slept.",
        _any("taskset --cpu-list CORES COMMAND"),
    ),
    Rule(
        "no record says what the host did in the largest part of the idle time",
        lambda case: (
            case.cause in {Cause.UNTRACED, Cause.IN_STEP, Cause.UNATTRIBUTED}
            and (case.host_counts or case.bound in {Bound.UNCLEAR, Bound.LAUNCH})
        ),
        "Record the host by phase: the largest part of the idle time passed without a record of its work.",
        {
            Engine.VLLM: "cbprof record -o trace.json -- vllm serve MODEL",
            Engine.OTHER: "cbprof record -o trace.json -- python serve.py",
        },
    ),
    Rule(
        "the largest part of the idle time passes while a copy runs",
        lambda case: case.bound is Bound.UNCLEAR and case.cause is Cause.TRANSFER,
        "Start copies earlier, from page-locked memory and on a stream of their own.",
        _any("cbprof lab streams"),
    ),
    Rule(
        "the GPU is the bound, and collectives run without compute beside them",
        lambda case: case.bound is Bound.DEVICE and case.waits_for_ranks,
        "Compare the traces of all ranks: a collective lasts until the slowest rank is there.",
        _any("cbprof report FOLDER"),
    ),
    Rule(
        "the GPU is the bound, or counts for more than the host, in a profile",
        lambda case: case.bound in {Bound.DEVICE, Bound.BOTH} and case.is_profile,
        "See which kernels take the time: only faster GPU work brings more.",
        _any("cbprof report FILE --full"),
    ),
    Rule(
        "the same in a recording of CUDA events, which has no kernels",
        lambda case: case.bound in {Bound.DEVICE, Bound.BOTH} and case.evidence == "cuda_events",
        "Profile a few steps, to see which kernels take the time and the holes between them.",
        {
            Engine.CBPROF: "cbprof run --device cuda --cupti 100:120",
            Engine.VLLM: "cbprof record --cupti -o trace.json -- vllm serve MODEL",
            Engine.OTHER: "cbprof record --cupti -o trace.json -- python serve.py",
        },
    ),
    Rule(
        "the GPU is the bound, in a recording with steps",
        lambda case: case.bound is Bound.DEVICE and not case.is_profile and case.steps > 1,
        "See what a GPU twice as fast, or half the work for it, would bring.",
        _any("cbprof predict FILE --gpu-speed 2"),
    ),
    Rule(
        "the GPU is idle less than 5 % of the time",
        lambda case: case.bound is Bound.DEVICE and case.idle_pct < LITTLE_IDLE_PCT,
        "Keep it so: hold every change against a limit.",
        _any("cbprof check FILE --max-idle 5%"),
    ),
    Rule(
        "none of the above",
        lambda case: True,
        "Look at the longest gaps on the timeline, and at what the host does in them.",
        _any("cbprof plot FILE"),
    ),
)
"""In the order of use. The first stands alone where it holds, the last where nothing else does."""


def advise(case: Case) -> tuple[Advice, ...]:
    """What to do, the first thing first; at most :data:`MOST_ADVICE`."""
    unreliable, *rules, otherwise = RULES
    found = [unreliable] if unreliable.holds(case) else [rule for rule in rules if rule.holds(case)]
    return tuple(_for(case, rule) for rule in (found or [otherwise])[:MOST_ADVICE])


def _for(case: Case, rule: Rule) -> Advice:
    phase = case.largest.label if case.largest else ""
    command = rule.commands.get(case.engine) or rule.commands[Engine.OTHER]
    return Advice(rule.what.replace("PHASE", phase), command.replace("PHASE=0.5", shlex.quote(f"{phase}=0.5")))


def about(advice: tuple[Advice, ...], file: str | None) -> tuple[Advice, ...]:
    """The same with the name of the trace in place of ``FILE``, where it is known."""
    if file is None:
        return advice
    return tuple(
        each._replace(command=re.sub(r"\bFILE\b", lambda _: shlex.quote(file), each.command)) for each in advice
    )
