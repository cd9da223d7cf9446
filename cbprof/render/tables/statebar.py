"""The states as one line of a terminal: told apart by colour, and by pattern where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from cbprof.analysis.accounting.states import StateTotals
from cbprof.numbers import UNKNOWN, percent
from cbprof.render.theme import STATES, UNTRACED

NOT_RECORDED = "host not recorded"


@dataclass(frozen=True, slots=True)
class StateBar:
    """A bar of the states' shares. ``scale``: its length as a share of the width, so that bars can be compared.

    There is no bar where the states are unknown.
    """

    found: StateTotals | None
    scale: float = 1.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, round(options.max_width * self.scale))
        if self.found is None:
            return
        cells = cells_of(self.found, width)
        for (name, style), count in zip(STATES.items(), cells, strict=True):
            yield Segment(pattern(name, ascii_only=options.ascii_only) * count, Style(color=style.color))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


class StateShare(NamedTuple):
    """One of the five states in a legend: how it is drawn (two ways for host not recorded), its name and share.

    ``active``: of host not recorded, the share in which the GPU was active; empty where there is none.
    """

    drawn_as: tuple[str, ...]
    label: str
    share: str
    active: str = ""

    @property
    def text(self) -> str:
        return f"{self.share} (GPU active {self.active})" if self.active else self.share


def state_shares(found: StateTotals | None, *, untraced: bool | None = None) -> list[StateShare]:
    """What a legend lists: the four states and, where a trace has such time, host not recorded. They sum to 100 %.

    ``untraced``: whether to list the fifth in any case, such as beside another trace.
    """
    window = 0 if found is None else max(1, sum(found))

    def share(*states: str) -> str:
        return UNKNOWN if found is None else percent(100 * sum(getattr(found, state) for state in states) / window)

    plain = [
        StateShare((state,), style.label, share(state)) for state, style in STATES.items() if state not in UNTRACED
    ]
    if untraced or (untraced is None and found is not None and found.untraced):
        active = share(UNTRACED[0]) if found is not None and found.untraced else ""
        plain.append(StateShare(UNTRACED, NOT_RECORDED, share(*UNTRACED), active))
    return plain


@dataclass(frozen=True, slots=True)
class StateLabel:
    """The patterns of a state in their colours, and its name; with ``text`` behind it."""

    state: StateShare
    text: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.rendered(options)

    def rendered(self, options: ConsoleOptions) -> Text:
        swatches = [
            (pattern(state, ascii_only=options.ascii_only), STATES[state].color) for state in self.state.drawn_as
        ]
        return Text.assemble(*swatches, f" {self.state.label}{self.text}")


@dataclass(frozen=True, slots=True)
class StateLegend:
    """What each pattern means, and its share of the window, in as few lines as the width allows."""

    found: StateTotals | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = [StateLabel(state, f" {state.text}").rendered(options) for state in state_shares(self.found)]
        line = labels[0]
        for label in labels[1:]:
            if line.cell_len + 2 + label.cell_len > options.max_width:
                yield line
                line = label
            else:
                line = Text.assemble(line, "  ", label)
        yield line


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
