"""Pictures and pages of recordings, each by its label: the one that it was given, or what tells its file apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cbprof.names import labels_of
from cbprof.render.charts.flame import flame_chart, flame_of
from cbprof.render.static.figure import DEFAULT_WIDTH, parse_width, write_static
from cbprof.render.terminal.pictures import print_plot
from cbprof.render.views.run import TimelineView
from cbprof.render.web.flame_page import write_flame
from cbprof.render.web.report_page import write_report
from cbprof.render.web.timeline import timeline_html
from cbprof.trace import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Labelled(Protocol):
    """A recording, as far as a picture goes."""

    @property
    def trace(self) -> Trace: ...
    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def files(self) -> tuple[Path, ...]: ...


class _Beside(NamedTuple):
    """Several runs in one picture; ``files``: all that was read for them."""

    traces: list[Trace]
    labels: list[str]
    files: tuple[Path, ...]


def timeline_of(*recordings: Labelled | None) -> TimelineView:
    """The interactive timeline of one recording, or of two."""
    traces, labels, files = _beside(recordings)
    return TimelineView(timeline_html(*traces, labels=labels), files)


def save_image(path: Path, width: str | None, *recordings: Labelled | None) -> None:
    """Write an image, as wide as ``width`` says."""
    traces, labels, files = _beside(recordings)
    width_in = DEFAULT_WIDTH if width is None else parse_width(width)
    write_static(traces, path, width_in=width_in, of=files, labels=labels)


def print_timeline(*recordings: Labelled | None) -> None:
    """Draw on the terminal, as wide as it is."""
    traces, labels, _ = _beside(recordings)
    print_plot(traces, labels)


def save_page(path: Path, recordings: Sequence[Labelled]) -> None:
    """Write the report about all of them."""
    _, labels, files = _beside(recordings)
    write_report({each.name: each.trace for each in recordings}, path, of=files, labels=labels)


def flame_of_code(*recordings: Labelled | None) -> Figure:
    """The flame graph of the host's code, of one recording or of two."""
    return flame_chart(*map(flame_of, _beside(recordings).traces))


def save_flame(path: Path, *recordings: Labelled | None) -> None:
    """Write it as a page."""
    traces, labels, files = _beside(recordings)
    write_flame(traces, labels, path, of=files)


def _beside(recordings: Sequence[Labelled | None]) -> _Beside:
    runs = [each for each in recordings if each is not None]
    labels = [run.label or name for run, name in zip(runs, labels_of([run.name for run in runs]), strict=True)]
    return _Beside([run.trace for run in runs], labels, tuple(file for run in runs for file in run.files))
