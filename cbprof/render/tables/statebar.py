"""The four states as one line of a terminal: told apart by colour, and by pattern where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from cbprof.analysis.accounting.states import TracedStates
from cbprof.numbers import UNKNOWN, percent
from cbprof.render.theme import STATES


@dataclass(frozen=True, slots=True)
class StateBar:
    """A bar of the states' shares. ``scale``: its length as a share of the width, so that bars can be compared.

    Untraced time is blank, at its end. There is no bar where the states are unknown.
    """

    found: TracedStates
    scale: float = 1.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, round(options.max_width * self.scale))
        known, untraced = self.found
        if known is None:
            return
        cells = cells_of((*known, untraced), width)
        for (name, style), count in zip(STATES.items(), cells, strict=False):
            yield Segment(pattern(name, ascii_only=options.ascii_only) * count, Style(color=style.color))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


@dataclass(frozen=True, slots=True)
class StateLabel:
    """A state's pattern in its colour, and its name; with ``text`` behind it."""

    state: str
    text: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.rendered(options)

    def rendered(self, options: ConsoleOptions) -> Text:
        style = STATES[self.state]
        swatch = pattern(self.state, ascii_only=options.ascii_only)
        return Text.assemble((swatch, style.color), f" {style.label}{self.text}")


@dataclass(frozen=True, slots=True)
class StateLegend:
    """What each pattern means, and its share of the window, in as few lines as the width allows."""

    found: TracedStates

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = [
            StateLabel(state, f" {share}").rendered(options)
            for state, share in zip(STATES, shares_of(self.found), strict=True)
        ]
        if self.found.untraced_ns and self.found.states:
            labels.append(Text(f"untraced {untraced_share(self.found)}"))
        line = labels[0]
        for label in labels[1:]:
            if line.cell_len + 2 + label.cell_len > options.max_width:
                yield line
                line = label
            else:
                line = Text.assemble(line, "  ", label)
        yield line


def shares_of(found: TracedStates) -> list[str]:
    """The share of each state in words."""
    if found.states is None:
        return [UNKNOWN] * len(STATES)
    window = max(1, sum(found.states) + found.untraced_ns)
    return [percent(100 * ns / window) for ns in found.states]


def untraced_share(found: TracedStates) -> str:
    """That of the time of which no record says what the host did, where the states are known."""
    return percent(100 * found.untraced_ns / max(1, sum(found.states or ()) + found.untraced_ns))


def cells_of(totals: Sequence[int], width: int) -> list[int]:
    """How many of ``width`` cells each part gets: by largest remainder, so that they sum to the width."""
    window = max(1, sum(totals))
    cells = [ns * width // window for ns in totals]
    remainder = [ns * width % window for ns in totals]
    for state in sorted(range(len(totals)), key=lambda state: -remainder[state])[: width - sum(cells)]:
        cells[state] += 1
    return cells


def pattern(state: str, *, ascii_only: bool) -> str:
    return STATES[state].plain if ascii_only else STATES[state].pattern
