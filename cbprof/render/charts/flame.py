"""Which code cost the GPU its time: host stacks by the idle time that they are to blame for, from the outside in.

::

    | step                                                | (host time without a record) |
    | schedule      | prepare inputs        | launch |
    | sort | evict  | copy     | pad

The width of a cell is idle time of the GPU; of two traces, idle time per step, on one scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cbprof.analysis.accounting.blame import CAUSES, Cause
from cbprof.analysis.accounting.cause_tree import Branch, idle_stacks
from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.accounting.host import host_timeline
from cbprof.analysis.summary import Summary, summarize
from cbprof.names import CALLS, FUNCTIONS, OPERATORS, short, sort_of
from cbprof.numbers import duration, percent, signed_duration
from cbprof.render.charts.style import as_text, empty, figure
from cbprof.trace import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

READING = (
    "The width of a cell is time in which the GPU was idle and this code is to blame; below it stands what it called. "
    "Drag along the axis to zoom in, click twice to see all."
)
DIFFERENCE = "Red is more idle time per step than before, blue is less."
NOTHING = "No idle time of a GPU is known: there is no code to blame"
NARROWEST = 1 / 1500
"""Of the width: narrower cells are left out, and stay a part of what encloses them."""

ROW, FONT_SIZE = 22, 12
LETTERS = 180
"""Of a name that would fill the width."""

# By what sort of thing a cell is; red and blue are left to what changed.
COLORS = {FUNCTIONS: "#e3a857", OPERATORS: "#8fb39b", CALLS: "#a99bc9"}
PHASE_COLOR, CAUSE_COLOR = "#d98b6a", "#b9bfc6"
NO_SPAN = frozenset(words for cause, words in CAUSES.items() if cause is not Cause.LAUNCH)
MORE, LESS, SAME, INK = "#ef9a5b", "#9db4ef", "#d5d9de", "#1c2126"
CHANGED = 0.01
"""Of the idle time per step: what changed by less keeps its colour."""


class Cell(NamedTuple):
    """``path``: short names from the outside in, its own last. ``start_ns``: idle time to the left of it."""

    name: str
    path: tuple[str, ...]
    start_ns: int
    ns: int
    own_ns: int

    @property
    def depth(self) -> int:
        return len(self.path) - 1


class Flame(NamedTuple):
    """``cells``: from the outside in, the largest on the left. ``idle_ns``: of the device that waited longest."""

    cells: tuple[Cell, ...]
    idle_ns: int
    n_steps: int


def flame_of(trace: Trace, summary: Summary | None = None) -> Flame:
    """The idle time of the device that waited longest by the host's stacks; no cells where it is unknown.

    ``summary``: of the whole trace, where it is there already.
    """
    summary = summary or summarize(trace)
    device = summary.most_idle
    if device is None or not device.idle_ns:
        return Flame((), 0, summary.n_steps)
    trace = without_profiled_steps(trace)
    root = idle_stacks(trace, device.blame, device.gaps, host_timeline(trace))
    return Flame(tuple(_cells(root.children, (), 0)), root.ns, summary.n_steps)


def _cells(branches: tuple[Branch, ...], path: tuple[str, ...], start_ns: int) -> Iterator[Cell]:
    for each in branches:
        mine = (*path, short(each.name))
        yield Cell(each.name, mine, start_ns, each.ns, each.own_ns)
        yield from _cells(each.children, mine, start_ns)
        start_ns += each.ns


def flame_chart(*flames: Flame) -> Figure:
    """The flame graph of a trace; of two both, per step, coloured by what changed."""
    if not any(flame.cells for flame in flames):
        return empty(NOTHING)
    per_step = len(flames) > 1 and all(flame.n_steps for flame in flames)
    scales = [1 / flame.n_steps if per_step else 1.0 for flame in flames]
    most_ns = max(flame.idle_ns * scale for flame, scale in zip(flames, scales, strict=True))
    before, after = (_by_path(flames[end], scales[end]) for end in (0, -1))
    unit = "GPU idle time per step" if per_step else "GPU idle time"
    depths = [1 + max((cell.depth for cell in flame.cells if _wide(cell, flame)), default=0) for flame in flames]
    titles = [f"{name}: {unit}" for name in ("before", "after")] if len(flames) > 1 else []
    made = figure(len(flames), titles=titles, spacing=0.12, shared_xaxes="all", row_heights=depths)
    for row, (flame, scale) in enumerate(zip(flames, scales, strict=True), start=1):
        cells = [cell for cell in flame.cells if _wide(cell, flame)]
        changes = [after.get(cell.path, 0.0) - before.get(cell.path, 0.0) for cell in cells] if titles else []
        made.add_trace(_bars(cells, flame.idle_ns, scale, changes, most_ns), row=row, col=1)
        made.update_yaxes(autorange="reversed", visible=False, fixedrange=True, row=row, col=1)
    made.update_xaxes(range=[0, most_ns / 1e6], ticksuffix=" ms", zeroline=False, rangemode="nonnegative")
    height = ROW * sum(depths) + 60 + 60 * len(flames)
    return made.update_layout(
        height=height, barmode="overlay", hovermode="closest", showlegend=False, bargap=0.06,
        margin={"l": 12, "r": 12, "t": 34, "b": 40}, uniformtext={"minsize": FONT_SIZE, "mode": "hide"},
    )  # fmt: skip


def _by_path(flame: Flame, scale: float) -> Mapping[tuple[str, ...], float]:
    """Idle time in nanoseconds, times ``scale``, of all cells of each path."""
    found: dict[tuple[str, ...], float] = {}
    for cell in flame.cells:
        found[cell.path] = found.get(cell.path, 0.0) + cell.ns * scale
    return found


def _wide(cell: Cell, flame: Flame) -> bool:
    return cell.ns >= NARROWEST * flame.idle_ns


def _bars(cells: Sequence[Cell], idle_ns: int, scale: float, changes: Sequence[float], most_ns: float) -> Bar:
    """One bar a cell. ``changes``: after less before, in nanoseconds; empty where there is nothing to compare."""
    import plotly.graph_objects as go

    texts = []
    for index, cell in enumerate(cells):
        share = percent(100 * cell.ns / idle_ns)
        lines = [as_text(cell.name), f"{duration(cell.ns * scale)}, {share} of the idle time"]
        lines.append(f"{duration(cell.own_ns * scale)} by itself")
        if changes:
            lines.append(f"{signed_duration(changes[index], plus=True)} after the change")
        texts.append("<br>".join(lines))
    colors = [_changed(each / most_ns) for each in changes] or [_color(cell) for cell in cells]
    return go.Bar(
        base=[cell.start_ns * scale / 1e6 for cell in cells],
        x=[cell.ns * scale / 1e6 for cell in cells],
        y=[cell.depth for cell in cells],
        orientation="h",
        text=[_label(cell.path[-1], cell.ns * scale / most_ns) for cell in cells],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="inside",
        textfont={"color": INK, "size": FONT_SIZE},
        marker={"color": colors, "line": {"width": 1, "color": "rgba(255,255,255,0.6)"}},
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _label(name: str, width: float) -> str:
    """As much of a name as fits a cell; what fits nowhere is hidden until somebody zooms in."""
    function = name.rpartition(".")[2] or name
    return as_text(name if len(name) <= width * LETTERS or len(function) > width * LETTERS else function)


def _color(cell: Cell) -> str:
    """By the sort of the name; what is no host span is grey."""
    if not cell.depth and cell.name in NO_SPAN:
        return CAUSE_COLOR
    return COLORS.get(sort_of(cell.name), PHASE_COLOR)


def _changed(share: float) -> str:
    return SAME if abs(share) < CHANGED else MORE if share > 0 else LESS
