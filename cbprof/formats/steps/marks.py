"""Steps in a profiler's trace: found by the annotations that inference engines put around each of them.

====================================================================  =======================================
``execute_context_1(512)_generation_31(31)``                          vLLM: requests (tokens) of either phase
``execute_context_1(888_788544)_generation_0(0_0)``                   the same; tokens, and the sum of their squares
``execute_543_context_1(sq512sk512..)_generation_31(sq31sk992..)``    the same, with lengths of queries and keys
``execute_new_1_cached_31``                                           vLLM up to 0.10: new and running requests
``step[DECODE bs=32]``, ``step[EXTEND bs=4 toks=512]``                SGLang
``prefill[bs=1 tok=512]``, ``decode[bs=32 tok=32]``                   ATOM
``[Executor] _forward_step 7: 1 ctx reqs, 8 gen reqs``                TensorRT-LLM, with its own number of the step
``ProfilerStep#7``                                                    torch.profiler's own ``step()``
====================================================================  =======================================

Where a trace has several kinds, the first in this order counts. Steps of engines are numbered from 0, in their order.
Names with a number of more than 15 digits say nothing: no sum of such numbers fits a column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cbprof.trace import BATCH_PHASES, NONE, Int32, Int64, Kind, StepTable, Trace

_VLLM = re.compile(
    r"execute(?:_\d+)?_context_(?P<prefills>\d{1,15})\((?P<prefill>\w+)\)_generation_(?P<decodes>\d{1,15})\((?P<decode>\w+)\)"
)
_OLDER_VLLM = re.compile(r"execute_new_(?P<new>\d{1,15})_cached_(?P<cached>\d{1,15})")
_ATOM = re.compile(
    r"(?P<mode>prefill|decode|mixed)\[bs=(?P<requests>\d{1,15})(?:.*\btok(?:en)?s?=(?P<tokens>\d{1,15}))?.*\]"
)
_TENSORRT = re.compile(
    r"\[Executor\] _forward_step (?P<step>\d{1,9}): "
    r"(?P<prefills>\d{1,15}) ctx reqs, (?:(?P<prefill>\d{1,15}) ctx tokens, )?(?P<decodes>\d{1,15}) gen reqs.*"
)
_SGLANG = re.compile(r"step\[(?P<mode>[A-Z_]+) bs=(?P<requests>\d{1,15})(?:.*\btok(?:en)?s=(?P<tokens>\d{1,15}))?.*\]")
_PROFILER = re.compile(r"ProfilerStep#(?P<step>\d{1,9})")
_LENGTHS = re.compile(r"sq(?P<queries>\d{1,15})sk(?P<keys>\d{1,15})")
_TOKENS = re.compile(r"(?P<tokens>\d{1,15})(?:_\d+)?")

_PREFILL, _DECODE, _MIXED = range(len(BATCH_PHASES))
_SGLANG_PHASES = {"EXTEND": _PREFILL, "DECODE": _DECODE, "MIXED": _MIXED, "TARGET_VERIFY": _DECODE}


class Mark(NamedTuple):
    """What the name of an annotation says of its step. ``rank`` orders the kinds of annotations, best first.

    ``generated``: tokens, one for each request that decodes; the first one of a request, which the last part of its
    prefill brings, is not told and not counted. All are -1 where the name does not say.
    """

    rank: int = NONE
    step: int = NONE
    tokens: int = NONE
    requests: int = NONE
    context: int = NONE
    phase: int = NONE
    generated: int = NONE


def read_mark(name: str) -> Mark | None:
    """What an annotation of this name says, if it frames a step."""
    for rank, (pattern, read) in enumerate(_KINDS):
        if match := pattern.fullmatch(name):
            return read(match)._replace(rank=rank)
    return None


def _of_vllm(match: re.Match[str]) -> Mark:
    prefills, decodes = int(match["prefills"]), int(match["decodes"])
    tokens, context = 0, 0
    for inside in (match["prefill"], match["decode"]):
        lengths, counted = _LENGTHS.match(inside), _TOKENS.fullmatch(inside)
        if tokens != NONE and lengths:
            tokens, context = tokens + int(lengths["queries"]), context + int(lengths["keys"])
        else:
            tokens = NONE if counted is None or tokens == NONE else tokens + int(counted["tokens"])
            context = NONE
    phase = _phase(prefills, decodes)
    drafts = counted is not None and int(counted["tokens"]) > decodes  # speculation: how many are kept is not told
    generated = NONE if drafts or (lengths and int(lengths["queries"]) > decodes) else decodes
    return Mark(
        tokens=tokens, requests=prefills + decodes, context=max(context, NONE), phase=phase, generated=generated
    )


def _of_older_vllm(match: re.Match[str]) -> Mark:
    new, cached = int(match["new"]), int(match["cached"])
    tokens = NONE if new else cached
    return Mark(tokens=tokens, requests=new + cached, phase=_phase(new, cached), generated=cached)


def _of_sglang(match: re.Match[str]) -> Mark:
    requests, phase = int(match["requests"]), _SGLANG_PHASES.get(match["mode"], NONE)
    tokens = int(match["tokens"]) if match["tokens"] else requests if match["mode"] == "DECODE" else NONE
    generated = {"DECODE": requests, "EXTEND": 0, "IDLE": 0}.get(match["mode"], NONE)
    return Mark(tokens=tokens, requests=requests, phase=phase, generated=generated)


def _of_atom(match: re.Match[str]) -> Mark:
    tokens, phase = int(match["tokens"] or NONE), BATCH_PHASES.index(match["mode"])
    requests = int(match["requests"])
    generated = {_DECODE: requests, _PREFILL: 0}.get(phase, NONE)
    return Mark(tokens=tokens, requests=requests, phase=phase, generated=generated)


def _of_tensorrt(match: re.Match[str]) -> Mark:
    prefills, decodes = int(match["prefills"]), int(match["decodes"])
    prefill = 0 if not prefills else NONE if match["prefill"] is None else int(match["prefill"])
    tokens = NONE if prefill == NONE else prefill + decodes
    phase = _phase(prefills, decodes)
    return Mark(NONE, int(match["step"]), tokens, prefills + decodes, phase=phase, generated=decodes)


def _phase(prefills: int, decodes: int) -> int:
    return _MIXED if prefills and decodes else _PREFILL if prefills else _DECODE


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Mark]], ...] = (
    (_VLLM, _of_vllm),
    (_SGLANG, _of_sglang),
    (_OLDER_VLLM, _of_older_vllm),
    (_TENSORRT, _of_tensorrt),
    (_ATOM, _of_atom),
    (_PROFILER, lambda match: Mark(step=int(match["step"]))),
)
"""The kinds of annotations, the best first."""

_BEGINNINGS = re.compile(r"execute_|step\[|\[Executor\]|(?:prefill|decode|mixed)\[|ProfilerStep#")
"""How their names begin, so that each of many other names is looked at once."""


def with_steps(trace: Trace) -> Trace:
    """The same trace with the step of each span, as far as annotations tell, and the facts of the steps.

    A span of the host belongs to the step in whose annotation it starts, on the same thread; what ran on a device, to
    that of the call which launched it. ``meta.step_frames`` names the annotations of all kinds, and ``meta.tokens`` is
    how many tokens the steps generated, where all of them tell.
    """
    may_mark = trace.ids_where(_BEGINNINGS.match, (Kind.CPU_ANNOTATION,))
    marks = {index: mark for index in may_mark if (mark := read_mark(trace.names[index]))}
    rows = np.flatnonzero((trace.kind == Kind.CPU_ANNOTATION) & np.isin(trace.name_id, list(marks)))
    if not len(rows):
        return trace
    found = [marks[index] for index in trace.name_id[rows].tolist()]
    best = min(mark.rank for mark in found)
    frames = tuple(trace.names[index] for index in np.unique(trace.name_id[rows]).tolist())
    chosen = [mark for mark in found if mark.rank == best]
    rows = rows[[mark.rank == best for mark in found]]
    number = np.array([place if mark.step == NONE else mark.step for place, mark in enumerate(chosen)], dtype=np.int32)
    return replace(
        trace,
        step=_step_of(trace, rows, number),
        steps=_table(number, chosen),
        meta=trace.meta.changed(
            step_frames=frames, tokens=_generated(chosen) if trace.meta.tokens is None else trace.meta.tokens
        ),
    )


def _step_of(trace: Trace, frames: Int64, number: Int32) -> Int32:
    """The step of each span, from the rows of the annotations that frame steps, and the numbers of those steps."""
    step = np.full(len(trace), NONE, dtype=np.int32)
    for lane in np.unique(trace.lane_id[frames]):
        mine = trace.lane_id[frames] == lane
        rows = np.flatnonzero(trace.lane_id == lane)
        place = np.searchsorted(trace.start_ns[frames][mine], trace.start_ns[rows], side="right") - 1
        inside = (place >= 0) & (trace.start_ns[rows] < trace.end_ns[frames][mine][place])
        step[rows[inside]] = number[mine][place[inside]]
    launching = np.flatnonzero(~trace.on_device & (trace.link != NONE) & (step != NONE))
    launching = launching[np.argsort(trace.link[launching], kind="stable")]
    launched = np.flatnonzero(trace.on_device & (trace.link != NONE))
    if len(launching):
        link = trace.link[launching]
        place = np.minimum(np.searchsorted(link, trace.link[launched]), len(link) - 1)
        joined = link[place] == trace.link[launched]
        step[launched[joined]] = step[launching[place[joined]]]
    return step


def _generated(marks: Sequence[Mark]) -> int | None:
    """The tokens that all these steps generated; None where one does not tell."""
    found = [mark.generated for mark in marks]
    return None if NONE in found else sum(found)


def _table(number: Int32, marks: Sequence[Mark]) -> StepTable:
    """The facts of the steps that have any, each once."""
    known = {step: mark for step, mark in zip(number.tolist(), marks, strict=True) if mark.phase != NONE}
    facts = np.array([(step, *known[step][2:6]) for step in sorted(known)], dtype=np.int64).reshape(-1, 5)
    return StepTable(
        step=facts[:, 0].astype(np.int32),
        tokens=facts[:, 1],
        requests=facts[:, 2],
        context=facts[:, 3],
        phase=facts[:, 4].astype(np.int8),
    )
