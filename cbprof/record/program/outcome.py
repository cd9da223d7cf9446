"""What ``cbprof record`` says when the program has ended: where the trace is, what is missing from it, what to type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cbprof.numbers import counted
from cbprof.record.program.launch import Ended
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import Status


def outcome_lines(ended: Ended, settings: Settings) -> list[str]:
    """One line a fact, the most important last."""
    return [*_how_it_ended(ended), *_notes(ended), *_what_there_is(ended, settings)]


def _how_it_ended(ended: Ended) -> Iterator[str]:
    if ended.signal:
        yield f"the program was ended by {ended.by}"
    elif ended.code:
        yield f"the program exited with {ended.code}"


def _notes(ended: Ended) -> Iterator[str]:
    for process in ended.processes:
        yield from process.notes
        silent = process.forks - sum(1 for other in ended.processes if other.forked_from == process.pid)
        if silent > 0:
            times = "once" if process.forks == 1 else f"{process.forks} times"
            yield (
                f"process {process.pid} forked {times}: only the parent is recorded; start others anew (spawn, or a "
                "command), or give each a cbprof.Tracer of its own"
                if silent == process.forks
                else f"process {process.pid} forked {times}: {silent} of these processes recorded nothing"
            )


def _what_there_is(ended: Ended, settings: Settings) -> Iterator[str]:
    files = _that_are_there(file for process in ended.processes for file in process.files)
    parts = _that_are_there(part for process in ended.processes for part in (*process.lost, process.part))
    profiles = _that_are_there(file for process in ended.processes for file in process.cupti)
    for part in parts:
        yield f"{part} holds the recording up to then: cbprof report {part}"
    if files:
        yield f"wrote {' '.join(files)}"
        if profiles:
            yield f"and the kernels, {' '.join(profiles)}: cbprof report {profiles[0]}"
        elif not any(process.device_spans for process in ended.processes):
            on_cuda = any(process.cuda for process in ended.processes)
            advice = "record again with --cupti" if on_cuda else "the program used no CUDA device"
            yield f"it has no device spans, so idle time is unknown: {advice}"
        yield f"see it: cbprof report {files[0]}, or cbprof plot {files[0]}"
    elif profiles:
        yield f"wrote the kernels, {' '.join(profiles)}: cbprof report {profiles[0]}; there was no phase to record"
    elif not parts and is_lost(ended):
        yield "nothing of the recording could be kept: see above"
    elif not parts:
        yield f"nothing was recorded: {_why_nothing(ended, settings)}"


def _why_nothing(ended: Ended, settings: Settings) -> str:
    """The first reason that fits."""
    spoke = ended.processes
    able = [process for process in spoke if process.has_cbprof]
    steps = max((process.steps for process in spoke), default=0)
    if not spoke:
        return "the program started no Python, or one that ignores PYTHONPATH (python -I, -E or -S)"
    if not able:
        return f"its Python, {spoke[0].python}, has no cbprof: install it there"
    if settings.on_signal and not any(process.signals for process in able):
        return f"no SIGUSR2 came; while it runs, type: kill -USR2 {ended.pid}"
    if settings.steps is not None and steps:
        first, last = settings.steps
        return f"steps {first}:{last} were never reached: the program made {counted(steps, 'step')}"
    return _why_nothing_of_engines(able)


def _why_nothing_of_engines(able: Sequence[Status]) -> str:
    """The same, where the program could be recorded from its start to its end."""
    if any(process.vllm for process in able):
        return _why_nothing_of_vllm(able)
    if any(process.sglang for process in able):
        advice = "take a window of its own profiler (docs/engines.md), or record with --cupti"
        return f"SGLang is not recorded by phases: {advice}"
    if not any(process.torch for process in able):
        return "the program imported no torch; mark the phases of your own engine with cbprof.Tracer"
    return (
        "the program used neither transformers' continuous batching nor a synchronisation or graph of torch.cuda; "
        "mark the phases of your own engine with cbprof.Tracer, or record with --cupti"
    )


def _why_nothing_of_vllm(processes: Sequence[Status]) -> str:
    roles = {process.role for process in processes} - {""}
    if not roles:
        return "the program imported vLLM, but made no engine: no LLM, AsyncLLM or server came to be"
    if roles == {"front end"}:
        return (
            "vLLM's engine core never began in a process that can be recorded: it failed to start, or was started by a "
            "Python that ignores PYTHONPATH and where cbprof is not installed"
        )
    if not any(process.steps for process in processes):
        return "vLLM made an engine, which got no request"
    return "vLLM made steps, and none of them was recorded: see above"


def is_lost(ended: Ended) -> bool:
    """Whether a recording could not be finished, though its program went on."""
    return any(process.lost for process in ended.processes)


def _that_are_there(paths: Iterable[str]) -> list[str]:
    return [_shown(path) for path in paths if path and Path(path).exists()]


def _shown(path: str) -> str:
    """Relative to where we are, if it lies there."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative
