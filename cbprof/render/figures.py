"""A table of names on the left and figures on the right, which gives way in a narrow terminal: names stay whole.

::

    prepare inputs   12.40 ms   3.10 %            prepare inputs
                                                      12.40 ms   3.10 %
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cbprof.render.panel import HEADER, LABEL

LEAST_NAME = 16
"""Where the figures leave less room than this, and than the longest name takes, they stand below the names."""

GAP = 2  # between columns
BESIDE = 60
"""Columns that two lists of key figures take side by side."""


class Drawn(Protocol):
    """A name that depends on the terminal, such as one with a pattern before it."""

    def rendered(self, options: ConsoleOptions) -> Text: ...


@dataclass(slots=True)
class Figures:
    """``headers``: of the names, then of each column of figures. ``least``: columns that a figure takes at least."""

    headers: Sequence[Text]
    least: int = 0
    show_header: bool = True
    rows: list[tuple[Text | Drawn, tuple[Text, ...]]] = field(default_factory=list)

    def add_row(self, name: Text | Drawn, *figures: str | Text, style: str = "") -> None:
        cells = tuple(figure if isinstance(figure, Text) else Text(figure) for figure in figures)
        for cell in (name, *cells) if style else ():
            if isinstance(cell, Text):
                cell.stylize(style)
        self.rows.append((name, cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [(name if isinstance(name, Text) else name.rendered(options), cells) for name, cells in self.rows]
        header = [(self.headers[0], tuple(self.headers[1:]))] if self.show_header else []
        lengths = ([cell.cell_len for cell in cells] for _, cells in (*header, *rows))
        widths = [max(self.least, *column) for column in zip(*lengths, strict=True)]
        room = options.max_width - sum(widths) - GAP * len(widths)
        longest = max((len(word) for name, _ in rows for word in name.plain.split()), default=0)
        if room >= min(LEAST_NAME, longest):
            table = self._table(self.headers[0])
            for name, cells in rows:
                table.add_row(name, *cells)
            yield table
            return
        if self.show_header:
            yield Text(self.headers[0].plain, HEADER)
            yield self._below(self.headers[1:], HEADER)
        for name, cells in rows:
            yield name
            yield self._below(cells)

    def _below(self, figures: Sequence[Text], style: str = "") -> Padding:
        """As many figures on a line as there is room for, none broken."""
        line = Text("  ".join(figure.plain.replace(" ", "\u00a0") for figure in figures if figure.plain), style)
        return Padding(line, (0, 0, 0, 4))

    def _table(self, first: Text) -> Table:
        table = Table(
            box=None,
            expand=True,
            padding=(0, GAP, 0, 0),
            pad_edge=False,
            header_style=HEADER,
            show_header=self.show_header,
        )
        table.add_column(first, ratio=1, overflow="fold")
        for header in self.headers[1:]:
            table.add_column(header, justify="right", no_wrap=True, min_width=self.least or None)
        return table


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Two lists of names and values side by side, and one below the other in a narrow terminal."""

    left: Sequence[tuple[str, Text]]
    right: Sequence[tuple[str, Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 2), expand=True)
        beside = options.max_width >= BESIDE
        for _ in range(3 if beside else 1):
            grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        rows = zip(self.left, self.right, strict=True) if beside else ((each,) for each in (*self.left, *self.right))
        for row in rows:
            grid.add_row(*(cell for name, value in row for cell in (Text(name, LABEL), value)))
        yield grid
