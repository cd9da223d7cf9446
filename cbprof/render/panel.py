"""The frame around a table in a terminal, and what stands below its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from cbprof.analysis.summary import Summary
from cbprof.names import plain
from cbprof.render.evidence import in_short, step_source_in_short

WIDTH = 80
LABEL = "dim"
HEADER = "bold"


def framed(content: RenderableType, title: Sequence[str | None], engine: str | None) -> Panel:
    """A panel, 80 columns wide or as wide as the terminal is, titled by the parts that are known."""
    return Panel(
        content,
        title=_edge(", ".join(part for part in title if part), f"not dim {HEADER}"),
        title_align="left",
        subtitle=_edge(engine or "", LABEL),
        subtitle_align="right",
        width=WIDTH,
        padding=(0, 1),
        border_style=LABEL,
    )


def _edge(text: str, style: str) -> Text | None:
    """Text that fits into an edge of the panel, without which a long one would widen it."""
    text, room = plain(text), WIDTH - 6
    text = text if len(text) <= room else f"{text[: room - 3]}..."
    return Text(text, style=style, overflow="crop", no_wrap=True) if text else None


def closing_lines(summaries: Sequence[Summary], names: Sequence[str] = ("",)) -> list[Text]:
    """How the figures were measured, what was searched for, and what to keep in mind about them."""
    evidence = dict.fromkeys(
        in_short(summary.evidence, summary.device_name, ran=bool(summary.devices)) for summary in summaries
    )
    sources = [summary.step_source for summary in summaries]
    searched = dict.fromkeys(step_source_in_short(source) for source in sources if source and source.searched)
    warnings = dict.fromkeys(_warnings(summaries, names))
    measured = [Text.assemble(("measured by  ", LABEL), plain(words)) for words in evidence]
    measured += [Text.assemble(("steps found by  ", LABEL), plain(words)) for words in searched]
    return measured + [Text(f"! {plain(warning)}", style="yellow") for warning in warnings]


def _warnings(summaries: Sequence[Summary], names: Sequence[str]) -> Iterator[str]:
    """Of one trace, or of several, with the name of the one that each is about, if not of all."""
    for summary, name in zip(summaries, names, strict=True):
        others = [other.warnings for other in summaries if other is not summary]
        for warning in summary.warnings:
            of_all = all(warning in each for each in others)
            yield warning if of_all else f"{name}: {warning}"
