"""Pictures in a terminal: the whole run as exact coverage in as many columns as fit, and a few steps at true scale."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cbprof.names import plain
from cbprof.numbers import duration
from cbprof.render.panel import HEADER, LABEL
from cbprof.render.picture.scene import Scene, scenes_of
from cbprof.render.tables.statebar import StateLegend
from cbprof.render.terminal.steps_view import StepsView
from cbprof.render.terminal.strip import RunStrip, TimeAxis
from cbprof.trace import Trace

ROWS = 6  # lines of the whole run, where the window is high enough
LEAST_ROWS = 3
OTHER_LINES = 17  # of one run, with its steps
ROWS_AFTER_A_RUN = 2


def print_plot(traces: Sequence[Trace], labels: Sequence[str] = ()) -> None:
    """The picture on standard output, as wide as the window, in the colours that it has."""
    console = Console()
    console.print(terminal_plot(traces, labels, height=console.height))


def terminal_plot(traces: Sequence[Trace], labels: Sequence[str] = (), *, height: int = 25) -> RenderableType:
    """The whole run and a few of its steps, of each trace; all runs on one scale of time.

    ``labels``: of each, its file. ``height``: lines of the window, which the strips make use of.
    """
    scenes = scenes_of(traces, labels)
    rows = max(LEAST_ROWS, min(ROWS, height // max(1, len(scenes)) - OTHER_LINES + ROWS))
    parts: list[RenderableType] = []
    for each in scenes:
        parts += ["", *_picture(each, scenes, rows)] if parts else _picture(each, scenes, rows)
    return Group(*parts)


def run_strips(traces: Sequence[Trace]) -> RenderableType:
    """What stands below the figures of a run: each trace as one strip, on one axis of time."""
    scenes = scenes_of(traces)
    strips: list[RenderableType] = []
    for each in scenes:
        for states in each.devices[:1]:
            strips += ["", RunStrip(plain(each.trace.mode or "run"), states, _longest(scenes), ROWS_AFTER_A_RUN)]
    return Group(*strips[1:], *([TimeAxis(0, _longest(scenes))] if strips else []))


def _picture(each: Scene, scenes: Sequence[Scene], rows: int) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(plain(each.title), HEADER)]
    subtitle = " · ".join(part for part in (each.label, each.subtitle) if part)
    if subtitle:
        parts.append(Text(plain(subtitle), LABEL, overflow="ellipsis", no_wrap=True))
    many = len(each.devices) > 1
    for states in each.devices:
        parts.append(RunStrip(f"GPU {states.device}" if many else "run", states, _longest(scenes), rows))
    if not each.devices:
        return parts
    parts += [TimeAxis(0, _longest(scenes)), StateLegend(each.totals), ""]
    start, end = each.first_view
    if 0 < end - start < each.window.length_ns:
        end = start + max(_view_length(other) for other in scenes)
        numbers = each.steps.numbers_between(start, end)
        named = f"steps {int(numbers[0]):,} to {int(numbers[-1]):,}" if len(numbers) else "some of it"
        parts.append(Text.assemble((named, HEADER), (f"  {duration(end - start)}", LABEL)))
        parts += [StepsView(each, each.most_idle, start, end), TimeAxis(start, end)]
    return parts


def _longest(scenes: Sequence[Scene]) -> int:
    return max(each.window.length_ns for each in scenes)


def _view_length(each: Scene) -> int:
    start, end = each.first_view
    return end - start
