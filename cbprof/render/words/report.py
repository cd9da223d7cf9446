"""What a report says in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.gate.compare import comparable
from cbprof.analysis.hazards.hazards import Hazards, find_hazards
from cbprof.analysis.predict.predict import Prediction, predict
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import CbprofError
from cbprof.names import labels_of, plain
from cbprof.numbers import counted, duration, percent, ratio
from cbprof.render.picture.scene import Scene, scene
from cbprof.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class AnalysedRun:
    """``name``: of the file. ``label``: what to call the run where there are several.

    ``prediction``: the async order, None where the run is async already or cannot tell. ``hazards``: None where the
    trace has nothing that could be out of order.
    """

    name: str
    label: str
    scene: Scene
    summary: Summary
    prediction: Prediction | None
    hazards: Hazards | None

    @property
    def trace(self) -> Trace:
        return self.scene.trace


def analyse_runs(traces: Mapping[str, Trace], labels: Sequence[str] = ()) -> list[AnalysedRun]:
    """Analyse traces, by the name of their file, for a report. Modes tell runs apart, if none has another label."""
    files = labels_of(list(traces))
    given = list(labels) or files
    modes = [trace.mode for trace in traces.values()]
    by_mode = given == files and len(set(modes)) == len(modes)
    names = [mode or label if by_mode else label for mode, label in zip(modes, given, strict=True)]
    rows = zip(traces.items(), given, names, strict=True)
    return [analyse_run(trace, file, label, name) for (file, trace), label, name in rows]


def analyse_run(trace: Trace, name: str, label: str = "", called: str = "") -> AnalysedRun:
    """Analyse a trace for a report. ``label``: of its pictures; ``called``: what its sentences call it."""
    prediction, hazards = None, None
    if trace.devices and not trace.is_profile:
        if trace.mode != "async" and trace.evidence != "predicted":
            with suppress(CbprofError):  # spans that do not say which step they belong to, for example
                prediction = predict(trace)
        with suppress(CbprofError):
            hazards = find_hazards(trace)
    file = plain(Path(name).name)
    called = plain(called or label or trace.mode or file)
    return AnalysedRun(file, called, scene(trace, label), summarize(trace), prediction, hazards)


class Note(NamedTuple):
    """A line below the gist; ``warning``: the reader must know it before trusting the figures."""

    text: str
    warning: bool


def gist(runs: Sequence[AnalysedRun]) -> list[str]:
    """A sentence a run, such as ``The GPU waited 24.34 % of 450.0 s``; of two also how much faster the second is."""
    if len(runs) == 1:
        return [_sentence(runs[0])]
    sentences = [f"{run.label}: {_sentence(run)}" for run in runs]
    if len(runs) == 2 and (gain := _gain(*runs)):
        sentences.append(gain)
    return sentences


def _sentence(run: AnalysedRun) -> str:
    device = run.summary.most_idle
    if device is None or device.idle_ns is None:
        return "How long the GPU waited is unknown: no work of it is in the trace."
    idle, window_ns = device.idle_pct_excl_missing, device.window.length_ns - device.missing_ns
    whole = f"{duration(window_ns)}{' (records are missing for the rest)' if device.missing_ns else ''}"
    parts = [f"The GPU waited {percent(device.idle_pct or 0.0 if idle is None else idle)} of {whole}"]
    largest = next((total for total in device.causes.totals if total.cause is not Cause.MISSING), None)
    if largest is not None:
        words = plain(largest.in_a_sentence)
        cause = f'"{words}"' if largest.cause is Cause.PHASE else words
        parts.append(f"{percent(100 * largest.ns / (device.gaps.total_ns - device.missing_ns))} of that for {cause}")
    if run.prediction is not None:
        parts.append(f"async would take {duration(run.prediction.predicted_wall_ns)}")
    return "; ".join(parts) + "."


def _gain(before: AnalysedRun, after: AnalysedRun) -> str:
    if not comparable(before.summary.evidence, after.summary.evidence):
        return ""
    rates = [
        (each.tokens_per_s or 0, each.n_steps / each.wall_ns if each.wall_ns else 0)
        for each in (before.summary, after.summary)
    ]
    for old, new, unit in zip(*rates, ("tokens/s", "steps/s"), strict=True):
        if old and new:
            return f"{after.label} is {ratio(new / old)} as fast in {unit}."
    return ""


def subtitle(runs: Sequence[AnalysedRun]) -> str:
    """What ran, where; once, if it is the same for all."""
    modes = {run.trace.mode for run in runs}
    parts = [[part for part in run.scene.subtitle.split(" · ") if part not in modes] for run in runs]
    return " / ".join(dict.fromkeys(" · ".join(part) for part in parts if part))


def notes(runs: Sequence[AnalysedRun]) -> Iterator[Note]:
    """What to keep in mind, then the verdicts."""
    warnings = [list(_warnings(run)) for run in runs]
    for text in dict.fromkeys(text for each in warnings for text in each):
        told = [run.label for run, each in zip(runs, warnings, strict=True) if text in each]
        yield Note(text if len(told) == len(runs) else f"{', '.join(told)}: {text}", warning=True)
    for run in runs:
        name = f"{run.label}: " if len(runs) > 1 else ""
        yield Note(f"{name}{plain(run.summary.verdict.sentence)}", warning=False)
        if not run.summary.warnings and run.summary.devices:
            yield Note(f"{name}healthy trace: complete, {counted(len(run.trace), 'span')}", warning=False)


def _warnings(run: AnalysedRun) -> Iterator[str]:
    yield from map(plain, run.summary.warnings)
    if run.hazards is not None and run.hazards.found:
        yield "an ordering that batching one ahead rests on was broken: see Hazards"
