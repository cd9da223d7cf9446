"""What ``cbprof report`` shows below the summary: the verdict, and with ``--full`` all that there is."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from cbprof.analysis.summary import Summary
from cbprof.render.panel import HEADER, LABEL, framed, plain
from cbprof.render.tables.summary import summary_table
from cbprof.render.tables.summary_sheets import details, shortened


def print_report(summary: Summary, title: str, *, full: bool) -> None:
    """The summary and the verdict, and with ``full`` all that is known, on the terminal."""
    console = Console()
    console.print(summary_table(summary, title=title))
    console.print(verdict_panel(summary))
    if full:
        console.print(details_panel(summary))


def verdict_panel(summary: Summary) -> RenderableType:
    """One sentence, what it rests on, and what a tenth less of each side would bring."""
    verdict = summary.verdict
    lines: list[RenderableType] = [Text(plain(verdict.sentence), HEADER)]
    lines += [Padding(Text(plain(line)), (0, 0, 0, 2)) for line in verdict.evidence]
    lines += [Text(line, LABEL) for line in shortened(verdict, summary.wall_ns)]
    return framed(Group(*lines), ["verdict", verdict.bound.value], None)


def details_panel(summary: Summary) -> RenderableType:
    """Phases, overlap, gaps, idle time over time and context, latency: as far as they are known."""
    parts: list[RenderableType] = []
    for sheet in details(summary):
        parts += ["", sheet.to_rich()] if parts else [sheet.to_rich()]
    return framed(Group(*parts), ["details"], None)
