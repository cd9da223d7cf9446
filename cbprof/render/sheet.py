"""A table before it is drawn: words and figures, the same for a terminal, a pull request and a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from types import MappingProxyType

from rich.text import Text

from cbprof.names import plain
from cbprof.numbers import percent
from cbprof.render.figures import Figures

MOST_ROWS = 20
"""Of a table whose rows are parts of a whole, largest first, unless all are asked for."""

NO_HINTS: Mapping[str, str] = MappingProxyType({})

_FIGURE = re.compile(r"[+-]?\d[\d,.]* (?:%|[num]?s|[kMG]i?B|pp)(?!\w)")
_JOINT = re.compile(r"(?<=\w[_./])(?=[A-Za-z_])")  # of the words of a name

MARKDOWN_SPECIAL = "\\`*_[]<>|"


@dataclass(frozen=True, slots=True)
class Sheet:
    """``columns``: a header for the names on the left, then one for each column of figures. ``notes`` stand below.

    ``parts``: how much of the whole each row is, where the rows are parts of one.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""
    notes: tuple[str, ...] = ()
    parts: Sequence[float] = ()

    def shortened(self, *, all_rows: bool = False) -> Sheet:
        """The first rows and, in place of the others, how many they are and their share: ``and 41 others, 3.10 %``."""
        n_others = len(self.rows) - MOST_ROWS
        if all_rows or n_others < 2 or not self.parts:
            return self
        share = 100 * sum(self.parts[MOST_ROWS:]) / (sum(self.parts) or 1)
        others = (f"and {n_others:,} others, {percent(share)}", *("",) * (len(self.columns) - 1))
        return replace(self, rows=[*self.rows[:MOST_ROWS], others], parts=())

    def to_rich(self, styles: Mapping[str, str] | None = None) -> Figures:
        """For a terminal. The title is the header of the first column, so that a sheet takes few lines.

        ``styles``: of the cells that hold just these texts.
        """
        first, *others = self.columns
        table = Figures([Text(plain(header)) for header in (self.title or first, *others)])
        for row in self.rows:
            table.add_row(*(Text(plain(cell), (styles or {}).get(cell, "")) for cell in row))
        return table

    def to_markdown(self) -> str:
        """For GitHub and the like. Names come from files, so that what would steer the page is escaped."""
        lines = [f"**{_markdown(self.title)}**", ""] if self.title else []
        lines += [_line(self.columns), _line(("---", *("---:",) * (len(self.columns) - 1)), raw=True)]
        lines += [_line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", _markdown(note)]
        return "\n".join(lines) + "\n"

    def to_html(self, hints: Mapping[str, str] = NO_HINTS) -> str:
        """For a page and a notebook: a table without scripts or styles of its own but for the alignment.

        ``hints``: what to tell of the cells that hold just these texts when the pointer is over them.
        """
        head = "".join(f"<th>{escape(plain(column))}</th>" for column in self.columns)
        body = "".join(
            "<tr>" + "".join(_cell(cell, hints, name=not index) for index, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(plain(self.title))}</caption>" if self.title else ""
        notes = "".join(f"<p>{prose(note)}</p>" for note in self.notes)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _line(cells: Sequence[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cell if raw else _markdown(cell) for cell in cells) + " |"


def _markdown(text: str) -> str:
    return "".join(f"\\{character}" if character in MARKDOWN_SPECIAL else character for character in plain(text))


def _cell(text: str, hints: Mapping[str, str], *, name: bool) -> str:
    style = f"text-align: {'left' if name else 'right'}"
    hint = f' title="{escape(plain(hints[text.strip()]))}"' if text.strip() in hints else ""
    indent = len(text) - len(text.lstrip())
    if indent and name:
        style += f"; padding-left: {indent / 2:g}em"
    return f'<td style="{style}"{hint}>{prose(text.strip())}</td>'


def prose(text: str) -> str:
    """Text as HTML in which no number comes apart from its unit, and long names break between their words."""
    whole = _FIGURE.sub(r'<span style="white-space: nowrap">\g<0></span>', escape(plain(text)))
    return _JOINT.sub("<wbr>", whole)
