"""A few steps at true scale in a terminal: the states of the GPU, what the host did, what each stream ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from cbprof.analysis.accounting.states import States
from cbprof.names import plain
from cbprof.numbers import duration
from cbprof.render.picture.coverage import coverage
from cbprof.render.picture.lanes import LaneView, lanes_between
from cbprof.render.picture.scene import Scene
from cbprof.render.tables.statebar import pattern
from cbprof.render.terminal.strip import HATCH, full_cell, gutter_lines, has_blocks, merged, plot_width
from cbprof.render.theme import STATES, phase_colors, text_on
from cbprof.trace import NONE, Int64, Kind

LEFT_BLOCKS = " ▏▎▍▌▋▊▉█"
EIGHTHS = len(LEFT_BLOCKS) - 1
WAIT, WAIT_INK = "#e6e9ed", "#8a929c"
Cell = tuple[str, Style | None]


@dataclass(frozen=True, slots=True, eq=False)
class StepsView:
    """[start, end) of one device's run, in ns from the start of its window."""

    scene: Scene
    states: States
    start_ns: int
    end_ns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        origin = self.scene.window.start_ns
        start, end = origin + self.start_ns, origin + self.end_ns
        width = plot_width(options)
        colored = has_blocks(console, options)
        inside = min(end, self.states.window.end_ns)
        columns = max(1, round(width * (inside - start) / max(1, end - start)))
        paint = _Colors(self.scene) if colored else _Plain(options.ascii_only)

        band = paint.band(self.states, start, inside, columns)
        name = f"GPU {self.states.device}" if len(self.scene.devices) > 1 else "GPU"
        yield from _line(gutter_lines(name, 2)[0], _labelled(band, self._pieces(start, inside, columns), paint))
        yield from _line(gutter_lines("", 1)[0], band)
        for lane in lanes_between(self.scene, self.states, start, end):
            yield from _line(gutter_lines(lane.name, 1)[0], paint.lane(self.scene, lane, start, end, width))

    def _pieces(self, start: int, end: int, columns: int) -> Iterator[tuple[int, int, int, str]]:
        """(state, first column, columns, duration) of each stretch in one state."""
        for state, part in enumerate(self.states.parts):
            found = part.clip(start, end)
            for a, b in zip(found.start.tolist(), found.end.tolist(), strict=True):
                first, last = ((time - start) * columns // max(1, end - start) for time in (a, b))
                yield state, first, last - first, duration(b - a)


class _Colors:
    """Lanes in colour."""

    def __init__(self, scene: Scene) -> None:
        self.colors = phase_colors(scene.trace.names)

    def band(self, states: States, start: int, end: int, columns: int) -> list[Cell]:
        """The states at eight times the resolution of the columns, two a cell, side by side."""
        found = coverage(states, start, end, columns * EIGHTHS)
        finest = found.stacked.argmax(axis=0).reshape(columns, EIGHTHS)
        return [_two_states(cell) for cell in finest]

    def label(self, cell: Cell, character: str, state: int) -> Cell:
        background = list(STATES.values())[state].color
        return character, Style(color=text_on(background), bgcolor=background, bold=True)

    def lane(self, scene: Scene, lane: LaneView, start: int, end: int, columns: int) -> list[Cell]:
        trace = scene.trace
        cells: list[Cell] = []
        shown, sliver = lane.by_column(start, end, columns)
        for (span, hint), group in groupby(zip(shown.tolist(), sliver.tolist(), strict=True)):
            count = len(list(group))
            if span == NONE:
                style = None if hint == NONE else Style(color=self.colors[trace.name_id[hint]])
                cells += [(" " if hint == NONE else "▏", style)] * count
            elif trace.kind[span] == Kind.CPU_WAIT:
                text = _fitted(f"▏{plain(trace.name_of(span))}", count, HATCH)
                cells += [(each, Style(color=WAIT_INK, bgcolor=WAIT)) for each in text]
            else:
                color = self.colors[trace.name_id[span]]
                style = Style(color=text_on(color), bgcolor=color)
                cells += [(each, style) for each in _fitted(f"▏{plain(trace.name_of(span))}", count, " ")]
        return cells


class _Plain:
    """Lanes without colour."""

    def __init__(self, ascii_only: bool) -> None:
        self.ascii_only = ascii_only
        self.edge, self.work, self.wait = ("|", "=", ".") if ascii_only else ("│", "━", "┄")

    def band(self, states: States, start: int, end: int, columns: int) -> list[Cell]:
        names = list(STATES)
        mostly = coverage(states, start, end, columns).stacked.argmax(axis=0)
        return [
            (pattern(names[state], ascii_only=self.ascii_only), Style(color=STATES[names[state]].color))
            for state in mostly.tolist()
        ]

    def label(self, cell: Cell, character: str, state: int) -> Cell:
        return character, Style(bold=True)

    def lane(self, scene: Scene, lane: LaneView, start: int, end: int, columns: int) -> list[Cell]:
        trace = scene.trace
        text = ""
        shown, sliver = lane.by_column(start, end, columns)
        for (span, hint), group in groupby(zip(shown.tolist(), sliver.tolist(), strict=True)):
            count = len(list(group))
            if span == NONE:
                text += (" " if hint == NONE else self.edge) * count
            else:
                fill = self.wait if trace.kind[span] == Kind.CPU_WAIT else self.work
                text += _fitted(self.edge + plain(trace.name_of(span)), count, fill)
        return [(each, None) for each in text]


def _two_states(cell: Int64) -> Cell:
    """The cell of two halves, cut at the eighth where they agree best with ``cell``."""
    best = max(range(EIGHTHS), key=lambda cut: _agreement(cell[:cut]) + _agreement(cell[cut:]))
    left, right = _most(cell[:best] if best else cell), _most(cell[best:])
    if left == right:
        return full_cell(right)
    colors = [style.color for style in STATES.values()]
    return LEFT_BLOCKS[best], Style(color=colors[left], bgcolor=colors[right])


def _most(part: Int64) -> int:
    return int(np.bincount(part).argmax())


def _agreement(part: Int64) -> int:
    return int(np.bincount(part).max()) if len(part) else 0


def _labelled(band: list[Cell], pieces: Iterator[tuple[int, int, int, str]], paint: _Colors | _Plain) -> list[Cell]:
    """The band with the duration of each stretch written into it, where it fits with room to spare."""
    cells = list(band)
    for state, first, count, text in pieces:
        if count < len(text) + 4:
            continue
        for offset, character in enumerate(f" {text} ", start=first + 1):
            cells[offset] = paint.label(cells[offset], character, state)
    return cells


def _fitted(text: str, count: int, fill: str) -> str:
    """``text`` in exactly ``count`` columns; filled up, cut, or only its edge where nothing could be read."""
    if count < len(text) and count < 4:
        text = text[0]
    return f"{text[:count]:{fill}<{count}}"


def _line(gutter: str, cells: list[Cell]) -> Iterator[Segment]:
    yield Segment(gutter, Style(bold=True))
    yield from merged(cells)
    yield Segment.line()
