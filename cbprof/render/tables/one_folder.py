"""What a terminal shows of several ranks: one row each, and how far apart they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cbprof.analysis.ranks.one_folder import RanksReport
from cbprof.render.numbers import UNKNOWN, count, duration, percent
from cbprof.render.panel import HEADER, LABEL, framed, plain


def ranks_table(report: RanksReport, title: str | None = None) -> RenderableType:
    """The ranks of a job. ``title``: where they come from."""
    parts: list[RenderableType] = [_rows(report)]
    if facts := _facts(report):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        for label, text in facts:
            grid.add_row(Text(label, LABEL), Text(text))
        parts += ["", grid]
    parts += [Text(f"! {plain(warning)}", style="yellow") for warning in report.warnings]
    return framed(Group(*parts), [f"{len(report.ranks)} ranks", title], None)


class _Column(NamedTuple):
    """A column; ``text`` gives what stands in a row. Names stand on the left, figures on the right."""

    header: str
    text: Callable[[int], str]
    is_name: bool = False


def _rows(report: RanksReport) -> Table:
    """One row a rank, the slowest in bold. What would be the same or unknown in all of them has no column."""
    ranks = report.ranks
    numbers = [each.rank for each in ranks if each.rank is not None]
    columns = [
        _Column("rank", lambda row: "-" if ranks[row].rank is None else str(ranks[row].rank), is_name=True),
        _Column("GPU", lambda row: str(ranks[row].device), is_name=True),
        _Column("file", lambda row: plain(ranks[row].file), is_name=True),
        _Column("window", lambda row: duration(ranks[row].length_ns)),
        _Column("idle", lambda row: percent(ranks[row].idle_pct)),
        _Column("collectives", lambda row: duration(ranks[row].comm_busy_ns)),
        _Column("exposed", lambda row: duration(ranks[row].exposed_comm_ns)),
        _Column("late", lambda row: duration(report.skew.late_ns[row]) if report.skew else UNKNOWN),
    ]
    told = {
        "rank": bool(numbers),
        "GPU": len({(each.file, each.device) for each in ranks}) > len({each.file for each in ranks}),
        "file": len(set(numbers)) < len(ranks),
        "late": report.skew is not None,
    }
    columns = [column for column in columns if told.get(column.header, True)]
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), pad_edge=False, header_style=HEADER)
    last_name = [column.header for column in columns if column.is_name][-1]
    for column in columns:
        room = 1 if column.header == last_name else None
        table.add_column(column.header, justify="left" if column.is_name else "right", no_wrap=True, ratio=room)
    slowest = report.slowest.row if report.slowest else None
    for row in range(len(ranks)):
        table.add_row(*(Text(column.text(row)) for column in columns), style="bold" if row == slowest else "")
    return table


def _facts(report: RanksReport) -> list[tuple[str, str]]:
    facts = []
    if idle := report.idle_pcts:
        mean = sum(idle) / len(idle)
        facts.append(("idle", f"{percent(min(idle))} to {percent(max(idle))}, {percent(mean)} on average"))
    if report.slowest:
        rank = report.ranks[report.slowest.row]
        alike = [each for each in report.ranks if each.label == rank.label]
        label = rank.label if len(alike) == 1 else f"{rank.label} of {rank.file}"
        facts.append(("slowest", f"{plain(label)}: {report.slowest.why}"))
    if skew := report.skew:
        matched = "1 collective" if skew.n_matched == 1 else f"{count(skew.n_matched)} collectives"
        facts += [
            ("skew", f"{matched} on all ranks"),
            ("  starts", f"{duration(skew.start_max_ns)} apart at most, {duration(skew.start_p50_ns)} in the median"),
            ("  ends", f"{duration(skew.end_max_ns)} apart at most, {duration(skew.end_p50_ns)} in the median"),
        ]
    return facts
