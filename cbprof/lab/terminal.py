"""A finding in a terminal: what it proves, its figures, its picture."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from cbprof.lab.finding import Finding, Table
from cbprof.render.panel import HEADER, LABEL
from cbprof.render.terminal.pictures import terminal_plot


def shown(finding: Finding, *, picture: bool = True) -> RenderableType:
    """The finding, as wide as the terminal; with ``picture``, its recordings on one axis of time."""
    parts: list[RenderableType] = [Text.assemble((f"{finding.name}  ", HEADER), verdict(finding))]
    parts.append(Text(finding.proves))
    parts += [Text(f"not checked on this device: {claim}", LABEL) for claim in finding.unchecked]
    if finding.table.rows:
        parts += ["", _figures(finding.table)]
    if picture and finding.traces:
        parts += ["", terminal_plot([each.trace for each in finding.traces[:2]])]
    return Group(*parts, "")


def verdict(finding: Finding) -> tuple[str, str]:
    """Whether it came out as it must, in words and a style."""
    if finding.skipped:
        return "not here", LABEL
    return ("as expected", "green") if finding.ok else ("NOT AS EXPECTED", "bold red")


def _figures(table: Table) -> RichTable:
    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=HEADER)
    for number, header in enumerate(table.header):
        drawn.add_column(header, justify="left" if number == 0 else "right")
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
