"""What all charts have in common: type, colours, patterns. plotly is imported where a figure is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cbprof.names import plain
from cbprof.render.theme import STATES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Readable on white and on black, so that a figure can stand on a page of either theme.
TEXT, GRID = "#717b87", "rgba(120, 130, 142, 0.22)"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
# Solid is the GPU at work, hatched or dotted is somebody waiting, crossed is a host of which no record tells.
# A pattern of plotly, and its ink.
PATTERNS = {
    "untraced_active": ("x", "#6f9d8c"),
    "untraced_idle": ("x", "#c08d6c"),
    "cpu_only": ("/", "#8f3d00"),
    "neither": (".", "#6f757c"),
}
ROW_HEIGHT = 230
LONGEST_NAME = 60
# Of lines and bars that are no state: apart in lightness as well as in hue.
LINES = {"whole": "#7a8592", "device": "#3f63c4", "other": "#d55e00"}


def figure(rows: int = 1, *, titles: Sequence[str] = (), spacing: float = 0.0, **options: Any) -> Figure:
    """An empty figure of plots one above the other; ``spacing`` between them as a share of the height."""
    from plotly.subplots import make_subplots

    made = make_subplots(rows=rows, cols=1, subplot_titles=titles or None, vertical_spacing=spacing, **options)
    made.update_layout(
        template="none",
        height=ROW_HEIGHT * rows + 90,
        margin={"l": 70, "r": 16, "t": 64, "b": 46},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": TEXT},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.0,
            "yref": "container",
            "yanchor": "top",
            "traceorder": "normal",
        },
        hovermode="x unified",
        hoverlabel={"namelength": -1},
        bargap=0.04,
    )
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "ticks": "outside", "tickcolor": GRID}
    made.update_xaxes(**axis)
    made.update_yaxes(**axis, rangemode="tozero")
    made.update_annotations(font={"size": 13}, x=0, xanchor="left", xref="paper")
    return made


def empty(text: str) -> Figure:
    """A figure that says why there is nothing to show."""
    made = figure()
    made.update_xaxes(visible=False)
    made.update_yaxes(visible=False)
    made.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font={"size": 14})
    made.update_layout(height=140)
    return made


def bar_of(state: str) -> dict[str, Any]:
    """The marker of bars in a state."""
    return {"color": STATES[state].color, "line": {"width": 0}} | _pattern(state, "pattern")


def area_of(state: str) -> dict[str, Any]:
    """The steps of a stacked area in a state."""
    color = STATES[state].color
    return {"line": {"width": 0, "shape": "hv", "color": color}, "fillcolor": color} | _pattern(state, "fillpattern")


def _pattern(state: str, key: str) -> dict[str, Any]:
    if state not in PATTERNS:
        return {}
    shape, ink = PATTERNS[state]
    return {key: {"shape": shape, "fgcolor": ink, "bgcolor": STATES[state].color, "size": 6, "solidity": 0.25}}


def as_text(name: str) -> str:
    """A name from a file, as plotly shows it unchanged: plotly reads markup in texts."""
    name = plain(name)
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def seconds(ns: npt.ArrayLike) -> list[float]:
    """Nanoseconds as seconds, to a microsecond: digits that nobody sees would double the size of a page."""
    return [round(each / 1e9, 6) for each in np.asarray(ns).tolist()]


def milliseconds(ns: npt.ArrayLike) -> list[float]:
    """Nanoseconds as milliseconds, to 0.1 us."""
    return [round(each / 1e6, 4) for each in np.asarray(ns).tolist()]
