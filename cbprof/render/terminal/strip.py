"""The whole run in a terminal: every column of characters is a stretch of time, divided exactly as its time was.

With colour a character cell shows two states, one above the other, by blocks of an eighth of its height. Without, a
cell shows one state by its pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.color import Color, blend_rgb
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from cbprof.analysis.accounting.states import GPU_ACTIVE, States
from cbprof.numbers import ticks
from cbprof.render.picture.coverage import Coverage, coverage
from cbprof.render.tables.statebar import pattern
from cbprof.render.theme import STATES
from cbprof.trace import Int64

MOST_OWED = 0.49  # a column without any of a state must not get a level of it
ACTIVE = len(GPU_ACTIVE) - 1  # the boundary between GPU active and GPU idle, of all between two states


def stacked_levels(found: Coverage, rows: int, per_row: int) -> Int64:
    """The states as a raster of shape (bins, rows x per_row), from below: indices of ``theme.STATES``.

    Each run of ``per_row`` levels holds at most two states where ``per_row`` > 1, since a character cell has only two
    colours. The boundary between active and idle stays where it is; others in its cell move, and are owed.
    """
    levels = rows * per_row
    exact = np.cumsum(found.shares[:-1], axis=0).T * levels  # shape (bins, states - 1): their tops
    none = found.stacked[:-1].T == 0
    raster = np.empty((len(found), levels), dtype=np.int64)
    owed = np.zeros(len(STATES) - 1)
    for column, (wanted, absent) in enumerate(zip(exact, none, strict=True)):
        tops = np.rint(wanted + owed).astype(np.int64).clip(0, levels)
        for state in range(len(tops)):
            below = tops[state - 1] if state else 0
            tops[state] = below if absent[state] else max(tops[state], below)
        if found.stacked[-1, column] == 0:
            tops[_last_present(absent) :] = levels
        tops = _two_states_a_cell(tops, per_row)
        owed = np.clip(owed + wanted - tops, -MOST_OWED * per_row, MOST_OWED * per_row)
        raster[column] = np.searchsorted(tops, np.arange(levels), side="right")
    return raster


def _last_present(absent: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """The topmost state of a column that has no `neither`; all of them, if the column has no width."""
    present = np.flatnonzero(~absent)
    return int(present[-1]) if len(present) else len(absent)


def _two_states_a_cell(tops: Int64, per_row: int) -> Int64:
    """Move boundaries so that no two different ones lie inside one cell."""
    moved = tops.copy()
    kept: dict[int, int] = {}  # by cell, the boundary inside it that stays where it is; the others join it or leave
    for state in sorted(range(len(tops)), key=lambda state: state != ACTIVE):
        cell, inside = divmod(int(tops[state]), per_row)
        if inside:
            stays = kept.setdefault(cell, state)
            edge = per_row * (cell if state < stays else cell + 1)
            nearer = abs(tops[state] - edge) < abs(tops[state] - tops[stays])
            moved[state] = edge if nearer else tops[stays]
    return moved


GUTTER = 9  # columns for the names of lanes
LEAST_PLOT = 10  # columns that a plot has at least, however narrow the window
LOWER_BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = len(LOWER_BLOCKS) - 1
DIM = Style(dim=True)
COLORS = [Color.parse(style.color) for style in STATES.values()]
# Where a whole cell is idle, hatched and dotted, as in all pictures; or not known: a character, and how dark it is.
HATCH = "\N{BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT}"
TEXTURES = {
    "untraced_active": ("?", 0.7),
    "untraced_idle": ("?", 0.7),
    "cpu_only": (HATCH, 0.65),
    "neither": ("·", 0.6),
}


@dataclass(frozen=True, slots=True)
class RunStrip:
    """The states of one run in ``rows`` lines. ``longest_ns`` is as wide as the window, so that runs compare."""

    name: str
    states: States
    longest_ns: int
    rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = plot_width(options)
        columns = max(1, round(width * self.states.window.length_ns / max(1, self.longest_ns)))
        window = self.states.window
        colored = has_blocks(console, options)
        shares = coverage(self.states, window.start_ns, window.end_ns, columns)
        raster = stacked_levels(shares, self.rows, EIGHTHS if colored else 1)
        names = gutter_lines(self.name, self.rows)
        for row, name in zip(reversed(range(self.rows)), names, strict=True):
            yield Segment(name, Style(bold=True))
            if colored:
                yield from _blocks(raster[:, row * EIGHTHS : (row + 1) * EIGHTHS])
            else:
                yield from _patterns(raster[:, row], options.ascii_only)
            yield Segment.line()


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Round times below a plot that shows [start, end]."""

    start_ns: int
    end_ns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, length = plot_width(options), max(1, self.end_ns - self.start_ns)
        line = [" "] * width
        free = 0  # columns left of this one are taken
        for time, text in ticks(self.start_ns, self.end_ns, width // 14):
            at = min(width - len(text), (time - self.start_ns) * width // length)
            if at >= free:
                line[at : at + len(text)] = text
                free = at + len(text) + 2
        yield Segment(" " * GUTTER + "".join(line).rstrip(), DIM)
        yield Segment.line()


def plot_width(options: ConsoleOptions) -> int:
    return max(LEAST_PLOT, options.max_width - GUTTER)


def has_blocks(console: Console, options: ConsoleOptions) -> bool:
    """Whether the terminal shows block characters in colours that can be told apart; 16 colours are too few."""
    return console.color_system in {"256", "truecolor"} and not console.no_color and not options.ascii_only


def gutter_lines(name: str, rows: int) -> list[str]:
    """The name of a lane beside the middle of its ``rows`` lines."""
    middle = (rows - 1) // 2
    return [f"{name[: GUTTER - 1] if row == middle else '':{GUTTER}}" for row in range(rows)]


def merged(cells: Iterable[tuple[str, Style | None]]) -> Iterator[Segment]:
    """Neighbours of one style as one segment, so that a line has few escape codes."""
    for style, group in groupby(cells, key=lambda cell: cell[1]):
        yield Segment("".join(text for text, _ in group), style)


def _blocks(levels: Int64) -> Iterator[Segment]:
    """One line of cells from their eighths, shape (columns, 8), from below."""
    lower, upper = levels[:, 0], levels[:, -1]
    heights = (levels == lower[:, np.newaxis]).sum(axis=1)
    return merged(
        full_cell(low) if low == high else (LOWER_BLOCKS[height], Style(color=_name(low), bgcolor=_name(high)))
        for low, high, height in zip(lower.tolist(), upper.tolist(), heights.tolist(), strict=True)
    )


def full_cell(state: int) -> tuple[str, Style]:
    """A cell of one state: plain where the GPU works, textured where it does not or nothing is known of the host."""
    name = list(STATES)[state]
    character, shade = TEXTURES.get(name, (" ", 1.0))
    return character, Style(color=darker(COLORS[state], shade), bgcolor=_name(state))


def darker(color: Color, share: float) -> Color:
    """A colour mixed with black: ``share`` of it remains."""
    triplet = color.get_truecolor()
    return Color.from_triplet(blend_rgb(triplet, type(triplet)(0, 0, 0), 1 - share))


def _name(state: int) -> str:
    return list(STATES.values())[state].color


def _patterns(states: Int64, ascii_only: bool) -> Iterator[Segment]:
    names = list(STATES)
    return merged(
        (pattern(names[state], ascii_only=ascii_only), Style(color=_name(state))) for state in states.tolist()
    )
