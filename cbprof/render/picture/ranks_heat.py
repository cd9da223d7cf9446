"""The heat map of a fleet: ranks down, time across, the darker or higher the cell the more idle the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from struct import pack
from zlib import compress, crc32

import numpy as np
import numpy.typing as npt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from cbprof.analysis.ranks.report import RanksReport
from cbprof.numbers import percent, ticks
from cbprof.render.theme import STATES

Cells = npt.NDArray[np.float32]
"""Idle shares in per cent, shape (lines, columns); NaN where nothing is known."""

GUTTER = 12
MOST_LINES = 32
HEIGHTS, ASCII_HEIGHTS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
# From no idle time to all of it, ever darker, so that it reads without colour too.
RAMP = ((238, 246, 243), (245, 178, 120), (213, 94, 0), (92, 32, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The rows of a heat map, as many as there is room for. ``labels``: the ranks in each line.

    Where a line stands for several ranks, it shows the most idle of them at each time.
    """

    cells: Cells
    labels: tuple[str, ...]
    each: int


def lines(report: RanksReport, most: int) -> Lines:
    each = max(1, ceil(len(report.rows) / most))
    firsts = range(0, len(report.rows), each)
    groups = [report.heat.idle_pct[first : first + each] for first in firsts]
    cells = [np.fmax.reduce(group, axis=0) for group in groups]
    labels = tuple(_label(report, first, min(first + each, len(report.rows)) - 1) for first in firsts)
    return Lines(np.array(cells, dtype=np.float32).reshape(len(groups), -1), labels, each)


def _label(report: RanksReport, first: int, last: int) -> str:
    numbers = [report.rows[row].rank.rank for row in (first, last)]
    names = [str(row if number is None else number) for row, number in zip((first, last), numbers, strict=True)]
    return names[0] if first == last else f"{names[0]}-{names[1]}"


@dataclass(frozen=True, slots=True)
class HeatStrips:
    """For a terminal."""

    report: RanksReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heat, found = self.report.heat, lines(self.report, MOST_LINES)
        columns = max(10, options.max_width - GUTTER)
        cells = _resampled(found.cells, columns)
        full = most_idle_pct(cells)
        heights = ASCII_HEIGHTS if options.ascii_only else HEIGHTS
        ink = Style(color=STATES["cpu_only"].color)
        for label, row in zip(found.labels, cells, strict=True):
            yield Segment(f"{label[: GUTTER - 1]:<{GUTTER}}", Style(dim=True))
            yield Segment("".join(_cell(float(value), full, heights) for value in row), ink)
            yield Segment.line()
        yield Segment(" " * GUTTER + _axis(heat.length_ns, columns), Style(dim=True))
        yield Segment.line()
        legend = f"idle share of the GPU by rank; a full cell is {percent(full)}"
        many = f", each line the most idle of {found.each} ranks" if found.each > 1 else ""
        axis = "" if heat.together else ", every rank from its own start"
        yield Text(legend + many + axis, Style(dim=True))


def most_idle_pct(cells: Cells) -> float:
    """The end of the scale."""
    return float(np.nanmax(cells, initial=0.0)) if cells.size else 0.0


def _cell(idle_pct: float, full: float, heights: str) -> str:
    if np.isnan(idle_pct):
        return " "
    return heights[max(1, round((len(heights) - 1) * idle_pct / full)) if full else 1]


def _resampled(cells: Cells, columns: int) -> Cells:
    """The mean of what is known in each column; a column finer than a bin shows the bin."""
    bins = cells.shape[1] if cells.ndim == 2 else 0
    edges = np.array([bins * each // columns for each in range(columns + 1)])
    first, last = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
    known = ~np.isnan(cells)
    total = np.concatenate((np.zeros((len(cells), 1)), np.cumsum(np.where(known, cells, 0.0), axis=1)), axis=1)
    number = np.concatenate((np.zeros((len(cells), 1)), np.cumsum(known, axis=1)), axis=1)
    count = number[:, last] - number[:, first]
    mean = (total[:, last] - total[:, first]) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan).astype(np.float32)


def _axis(length_ns: int, columns: int) -> str:
    line, free = [" "] * columns, 0
    for time, text in ticks(0, max(1, length_ns), columns // 14):
        at = min(columns - len(text), time * columns // max(1, length_ns))
        if at >= free:
            line[at : at + len(text)] = text
            free = at + len(text) + 2
    return "".join(line).rstrip()


def heat_png(cells: Cells) -> bytes:
    """One pixel a cell, as a PNG file; the darkest is the most idle, what is unknown is transparent."""
    share = np.nan_to_num(cells) / (most_idle_pct(cells) or 1)
    places = np.linspace(0, 1, len(RAMP))
    pixels = [np.interp(share, places, [color[channel] for color in RAMP]) for channel in range(3)]
    opaque = np.where(np.isnan(cells), 0, 255)
    image = np.stack([*pixels, opaque], axis=-1).round().astype(np.uint8)
    height, width = cells.shape
    filtered = b"".join(b"\0" + row.tobytes() for row in image)  # filter 0 before each line
    header = pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits a channel, RGBA
    parts = ((b"IHDR", header), (b"IDAT", compress(filtered, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))
