"""What a terminal shows of a fleet: the paragraph, the slowest ranks, the heat map, and what could not be read."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cbprof.analysis.ranks.report import RanksReport
from cbprof.names import plain
from cbprof.render.panel import HEADER, LABEL
from cbprof.render.picture.ranks_heat import HeatStrips
from cbprof.render.sheet import Sheet
from cbprof.render.tables.ranks import failed_sheet, job_sheets, ranks_sheet, slow_sheet
from cbprof.render.words.ranks import sentences

MOST_JOBS = 1
MOST_NAME = 30
WORDS = ("why", "largest cause", "slowest rank")


def ranks_terminal(report: RanksReport) -> RenderableType:
    parts: list[RenderableType] = [Text(" ".join(sentences(report)))]
    if report.rows:
        parts += ["", HeatStrips(report), "", _table(ranks_sheet(report))]
    if report.slow:
        parts += ["", _table(slow_sheet(report))]
    for sheet in job_sheets(report, MOST_JOBS):
        parts += ["", Text(sheet.title, HEADER), _table(sheet)]
    if report.failed:
        parts += ["", _table(failed_sheet(report))]
    parts += [Text(f"! {plain(warning)}", style="yellow") for warning in report.warnings]
    return Group(*parts)


def _table(sheet: Sheet) -> RenderableType:
    """Figures as wide as they need; names fold, and so do words, which get what room is left."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=HEADER)
    for index, column in enumerate(sheet.columns):
        if column in WORDS:
            table.add_column(column, overflow="fold", ratio=1 if column == "why" else None)
        elif index:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold", max_width=MOST_NAME)
    for row in sheet.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return Group(table, *(Text(note, LABEL) for note in sheet.notes))
