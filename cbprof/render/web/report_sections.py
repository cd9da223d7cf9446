"""The parts of the report page: tables as HTML, charts as plotly figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from cbprof.analysis.gate.compare import comparable, compare
from cbprof.analysis.summary import summarize
from cbprof.meta import Meta
from cbprof.names import plain, short
from cbprof.numbers import count, counted, duration
from cbprof.render.charts.flame import DIFFERENCE, READING, flame_chart, flame_of
from cbprof.render.charts.run import gap_chart, idle_chart, states_chart
from cbprof.render.charts.steps import prediction_chart, steps_chart
from cbprof.render.sheet import NO_HINTS, Sheet
from cbprof.render.tables.compare import sheets as comparison_sheets
from cbprof.render.tables.hazards import rules_sheet
from cbprof.render.tables.predict import Case, figures_sheet
from cbprof.render.tables.summary_sheets import cause_tree, causes, details, gap_lengths, key_figures
from cbprof.render.web.page import as_html, as_prose, in_ascii
from cbprof.render.words.report import AnalysedRun
from cbprof.trace import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DIFFERENT_EVIDENCE = (
    "The runs were measured in different ways: CUDA events miss holes inside a span that CUPTI records."
)
MOST_HINTS = 3  # whole names that one short name stands for
EDGES_UNKNOWN = "The file does not say which events were waited for: a race that timing hid is not seen."


@dataclass(slots=True)
class Section:
    """A heading and what stands below it. ``figures``: by the id of the element that each is drawn in."""

    key: str
    title: str
    parts: list[str] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

    def heading(self, text: str) -> None:
        self.parts.append(f"<h3>{as_html(text)}</h3>")

    def sheets(self, sheets: Iterable[Sheet], hints: Mapping[str, str] = NO_HINTS) -> None:
        """Tables side by side, where the page is wide enough. ``hints``: as of :meth:`Sheet.to_html`."""
        tables = "".join(f'<div class="sheet">{in_ascii(sheet.to_html(hints))}</div>' for sheet in sheets if sheet.rows)
        self.parts.append(f'<div class="columns">{tables}</div>')

    def chart(self, figure: Figure, label: str) -> None:
        """A chart with a line on how to read it."""
        name = f"{self.key}-{len(self.figures)}"
        self.figures[name] = figure
        height = int(figure.layout.height)
        label = as_html(label)
        self.parts.append(f'<div class="chart" id="{name}" role="img" aria-label="{label}" style="height: {height}px">')
        self.parts.append(f'</div><p class="caption">{label}</p>')

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        items = "".join(f"<dt>{as_html(name)}</dt><dd>{as_prose(value)}</dd>" for name, value in facts if value)
        self.parts.append(f'<dl class="facts">{items}</dl>')

    def to_html(self) -> str:
        return f'<section id="{self.key}"><h2>{as_html(self.title)}</h2>{"".join(self.parts)}</section>'


def sections(runs: Sequence[AnalysedRun]) -> Iterator[Section]:
    """All sections below the timeline, without those that would be empty."""
    known = [run for run in runs if run.summary.most_idle is not None]
    if len(known) > 1:
        yield _side_by_side(known)
    if known:
        yield _waits(known)
    if any(run.summary.n_steps for run in known):
        yield _steps([run for run in known if run.summary.n_steps])
    if predicted := [run for run in known if run.prediction is not None]:
        yield _what_if(predicted, known)
    if checked := [run for run in known if run.hazards is not None]:
        yield _hazards(checked)
    yield _figures(runs)
    yield _measured(runs)


def _side_by_side(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("compared", "Side by side")
    names = [run.label for run in runs]
    made.chart(
        states_chart({name: run.summary for name, run in zip(names, runs, strict=True)}),
        "Shares of the time of each run: solid is the GPU at work, hatched and dotted is the GPU waiting, crossed is a "
        "host of which no record tells.",
    )
    if len({run.summary.evidence for run in runs}) > 1:
        made.parts.append(f'<p class="caption">{as_html(DIFFERENT_EVIDENCE)}</p>')
    if len(runs) == 2 and comparable(runs[0].summary.evidence, runs[1].summary.evidence):
        made.sheets(comparison_sheets(compare(runs[0].trace, runs[1].trace), (names[0], names[1])))
        made.chart(flame_chart(*(flame_of(run.trace, run.summary) for run in runs)), f"{READING} {DIFFERENCE}")
    return made


def _waits(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("waits", "What the GPU waited for")
    for run in _headed(made, runs):
        device = run.summary.most_idle
        if device is not None and len(device.gaps):
            made.sheets([causes(run.summary), cause_tree(device), gap_lengths(device)], _whole_names(run.trace))
            made.chart(flame_chart(flame_of(run.trace, run.summary)), READING)
            made.chart(gap_chart(run.summary), "Idle time by the length of the gap that it lies in: what costs most.")
        else:
            made.parts.append('<p class="caption">The GPU never waited.</p>')
    return made


def _steps(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("steps", "Steps")
    for run in _headed(made, runs):
        made.chart(
            steps_chart(run.trace),
            "Host work, stacked, and compute of each step. No order of work can beat max(CPU, GPU); where the time of "
            "the step is the sum of both, they take turns.",
        )
        made.chart(idle_chart(run.trace), "The share of time in which the GPU waited.")
    return made


def _what_if(runs: Sequence[AnalysedRun], known: Sequence[AnalysedRun]) -> Section:
    made = Section("what-if", "What if the host worked one batch ahead?")
    afterwards = [run.trace for run in known if run.trace.mode == "async"]
    for run in _headed(made, runs):
        if run.prediction is None:
            continue
        after = afterwards[0] if len(runs) == len(afterwards) == 1 else None
        case = Case("predicted", run.prediction, summarize(run.prediction.trace))
        made.sheets([figures_sheet(run.summary, [case])])
        made.chart(
            prediction_chart(run.prediction, run.trace, after),
            "The measured durations, replayed in the order of the async loop with two slots.",
        )
    return made


def _hazards(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("hazards", "Hazards")
    for run in _headed(made, runs):
        if run.hazards is None:
            continue
        made.sheets([rules_sheet(run.hazards)])
        for missing in run.hazards.missing:
            made.parts.append(f"<p>{as_html(plain(missing.text))}</p>")
        if not run.hazards.edges_known:
            made.parts.append(f'<p class="caption">{as_html(EDGES_UNKNOWN)}</p>')
    return made


def _figures(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("figures", "Figures")
    for run in _headed(made, runs):
        skipped = gap_lengths(run.summary.most_idle).title if run.summary.most_idle else ""
        more = (sheet for sheet in details(run.summary) if sheet.title != skipped)
        made.sheets([key_figures(run.summary), *more], _whole_names(run.trace))
    return made


def _whole_names(trace: Trace) -> dict[str, str]:
    """Of each short name of a Python function the whole one, with file and line: all of them, where there are a few."""
    whole: dict[str, list[str]] = {}
    for name in trace.names:
        if (text := short(name)) != name:
            whole.setdefault(text, []).append(name)
    return {text: "\n".join(names[:MOST_HINTS]) for text, names in whole.items()}


def _measured(runs: Sequence[AnalysedRun]) -> Section:
    made = Section("measured", "How it was measured")
    for run in _headed(made, runs):
        meta, summary = run.trace.meta, run.summary
        window = summary.window
        made.facts(
            [
                ("file", run.name),
                ("GPU activity", run.scene.evidence),
                ("window", f"{window.name}, {duration(window.length_ns)}" if window else ""),
                ("spans", f"{count(len(run.trace))} on {counted(len(run.trace.lanes), 'lane')}"),
                ("clocks", _clocks(meta)),
                ("ran", run.scene.subtitle),
                ("workload", _workload(meta.workload or {})),
                ("analysed by", f"cbprof {version('cbprof')}"),
            ]
        )
    return made


def _workload(known: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in known.items())


def _clocks(meta: Meta) -> str:
    errors = (("host to device", meta.clock_error_ns), ("device to device", meta.device_error_ns))
    return ", ".join(f"{name} within {duration(error)}" for name, error in errors if error is not None)


def _headed(made: Section, runs: Sequence[AnalysedRun]) -> Iterator[AnalysedRun]:
    """The runs, each below a heading of its own where there are several."""
    for run in runs:
        if len(runs) > 1:
            made.heading(run.label if run.label == run.name else f"{run.label}: {run.name}")
        yield run
