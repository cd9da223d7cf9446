"""The sheet that a static picture is laid out on: from top to bottom, in inches, as high as its content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

DPI = 200  # of a PNG, and of the raster inside an SVG or PDF
FONT = "DejaVu Sans"  # comes with matplotlib, so that a figure is the same everywhere
SMALL, NORMAL, LARGE = 6.0, 7.0, 9.0  # points, whatever the width of the page
INK, MUTED = "#1b2129", "#626d7a"

MARGIN = 0.1
GUTTER = 0.72  # left of the panels, for names
COLUMN_GAP = 0.5  # between panels side by side; holds the axis of the right one


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Axes on the page, whose size in inches is known while they are drawn."""

    axes: Axes
    width_in: float
    height_in: float

    @property
    def columns(self) -> int:
        """Columns of pixels."""
        return max(1, round(self.width_in * DPI))

    @property
    def rows(self) -> int:
        return max(1, round(self.height_in * DPI))


class Page:
    """Takes panels and lines of text from top to bottom; :meth:`finish` then knows how high the figure is."""

    def __init__(self, width_in: float) -> None:
        from matplotlib.figure import Figure

        self.width_in = width_in
        self.y = MARGIN
        self._figure = Figure(figsize=(width_in, 1.0), facecolor="white")
        self._placed: list[tuple[Artist, tuple[float, float, float, float]]] = []

    @property
    def plot_width(self) -> float:
        return self.width_in - GUTTER - MARGIN

    def space(self, height: float) -> None:
        self.y += height

    def text(
        self, text: str, *, size: float = NORMAL, weight: str = "normal", color: str = INK, right: bool = False
    ) -> None:
        """Text whose baseline is at the current height, at the left or the right edge."""
        artist = self._figure.text(0, 0, text, size=size, weight=weight, color=color, ha="right" if right else "left")
        self._placed.append((artist, (self.width_in - MARGIN if right else MARGIN, self.y, 0, 0)))

    def panels(self, height: float, *, label: str, count: int = 1, from_left: bool = False) -> list[Panel]:
        """``count`` axes side by side, below what is there; ``from_left``: they take the gutter as well."""
        left = MARGIN if from_left else GUTTER
        width = (self.width_in - MARGIN - left - (count - 1) * COLUMN_GAP) / count
        made = []
        for index in range(count):
            axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0), label=f"{label} {index}" if count > 1 else label)
            axes.set_facecolor("none")
            axes.spines[:].set_visible(False)
            axes.tick_params(length=2, width=0.5, pad=1.5, labelsize=SMALL, color=MUTED, labelcolor=MUTED)
            axes.set_xticks([])
            axes.set_yticks([])
            x = left + index * (width + COLUMN_GAP)
            self._placed.append((axes, (x, self.y, width, height)))
            made.append(Panel(axes, width, height))
        self.y += height
        return made

    def finish(self) -> Figure:
        from matplotlib.text import Text

        height = self.y + MARGIN
        self._figure.set_size_inches(self.width_in, height)
        for artist, (x, y, wide, high) in self._placed:
            if isinstance(artist, Text):
                artist.set_position((x / self.width_in, 1 - y / height))
            else:
                artist.set_position((x / self.width_in, 1 - (y + high) / height, wide / self.width_in, high / height))  # type: ignore[attr-defined]
        return self._figure


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(
        text, FontProperties(family=FONT, size=size, weight=weight), ismath=False
    )
    return float(width) / 72


def fitting(texts: Sequence[str], room_in: float, size: float, *, cut: bool = True) -> str:
    """The first of ``texts`` that fits; else, with ``cut``, the beginning of the last one; else nothing."""
    if room_in <= 0:  # as for most spans of a step of a thousand kernels
        return ""
    for text in texts:
        if text_width(text, size) <= room_in:
            return text
    text = texts[-1][:100]
    while cut and len(text) > 3:
        text = text[:-1]
        if text_width(f"{text}…", size) <= room_in:
            return f"{text}…"
    return ""


def gutter_name(panel: Panel, name: str, middle: float, *, weight: str = "bold") -> Text:
    """The name of a lane left of it. ``middle``: in the units of the y axis."""
    return panel.axes.annotate(
        fitting([name], GUTTER - MARGIN - 0.06, NORMAL),
        (0, middle),
        xycoords=("axes fraction", "data"),
        xytext=(-(GUTTER - MARGIN) * 72, 0),
        textcoords="offset points",
        va="center",
        ha="left",
        weight=weight,
        size=NORMAL,
        color=INK,
        annotation_clip=False,
    )
