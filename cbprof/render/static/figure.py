"""Pictures for papers and pull requests, PNG, SVG or PDF, without a browser.

Three panels: the whole run as exact coverage, a few steps of typical length at true scale, and all steps aligned at the
start of their compute, so that drift with context length is seen. Two runs share their axes. matplotlib comes with the
``image`` extra.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cbprof.errors import CbprofError, UsageError
from cbprof.files import write_whole
from cbprof.names import plain
from cbprof.numbers import duration
from cbprof.render.picture.lanes import lanes_between
from cbprof.render.picture.scene import Scene, scenes_of
from cbprof.render.picture.step_raster import step_raster, usual_length
from cbprof.render.static.page import DPI, FONT, LARGE, MARGIN, MUTED, NORMAL, SMALL, Page, fitting, text_width
from cbprof.render.static.panels import (
    draw_legend,
    draw_raster,
    draw_run,
    draw_steps,
    legend_lines,
    legend_width,
    time_axis,
)
from cbprof.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
DEFAULT_WIDTH = 7.0  # inches: two columns of a paper
LEAST_WIDTH, MOST_WIDTH = 3.0, 60.0
UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "px": 1 / DPI}

# Heights in inches.
STRIP, BAND, LANE, RASTER = 0.62, 0.26, 0.17, 1.6
LINE, AXIS, SPACE = 0.15, 0.17, 0.1
MOST_LANES = 12
LEAST_NAME, MOST_NAME = 6, 60  # letters at the end of a name that a heading may be left with

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": [FONT],
    "font.size": NORMAL,
    "pdf.fonttype": 42,  # TrueType, which journals ask for
    "svg.fonttype": "path",
    "svg.hashsalt": "cbprof",  # the same trace gives the same file
    "hatch.linewidth": 0.5,
    "text.parse_math": False,
}


def write_static(
    traces: Sequence[Trace],
    path: Path,
    *,
    width_in: float = DEFAULT_WIDTH,
    of: Iterable[Path] = (),
    labels: Sequence[str] = (),
) -> None:
    """Write :func:`static_image` to ``path``, in the format that its name ends in, whole or not at all."""
    image = static_image(traces, path.suffix.lower().lstrip("."), width_in=width_in, labels=labels)
    write_whole(path, image, "the picture", of=of)


def static_image(
    traces: Sequence[Trace], form: str, *, width_in: float = DEFAULT_WIDTH, labels: Sequence[str] = ()
) -> bytes:
    """The picture of one trace or two as a file; ``form`` is one of :data:`FORMATS`; ``labels``: of each, its file.

    Raises :class:`CbprofError` where matplotlib is not installed.
    """
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    out = io.BytesIO()
    with _style():
        static_figure(traces, width_in=width_in, labels=labels).savefig(
            out, format=form, dpi=DPI, metadata=undated.get(form)
        )
    return out.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    """Our type and hatches, for drawing as for saving. A name in a script that the font lacks is drawn as boxes."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise CbprofError("PNG, SVG and PDF need matplotlib: pip install 'cbprof[image]', or write .html") from error
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def parse_width(text: str) -> float:
    """``7in``, ``180mm``, ``18cm`` or ``1400px`` (of a PNG) in inches. Raises :class:`UsageError`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(in|cm|mm|px|)\s*", text)
    width = float(found[1]) * UNITS[found[2] or "in"] if found else 0.0
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        most = f"{LEAST_WIDTH:.0f} to {MOST_WIDTH:.0f} inches"
        raise UsageError(f"--width {text}: give a width of {most}, such as 7in, 180mm or 1400px")
    return width


def static_figure(traces: Sequence[Trace], *, width_in: float = DEFAULT_WIDTH, labels: Sequence[str] = ()) -> Figure:
    """The same as a matplotlib figure; raises as :func:`static_image`."""
    scenes = scenes_of(traces, labels)
    with _style():
        page = Page(width_in)
        _runs(page, scenes)
        shown = [each for each in scenes if each.devices]
        if shown:
            _steps(page, shown)
            _rasters(page, shown)
        return page.finish()


def _runs(page: Page, scenes: Sequence[Scene]) -> None:
    """The whole of each run, on one axis of time."""
    longest = max(each.window.length_ns for each in scenes)
    for index, each in enumerate(scenes):
        page.space(2 * SPACE if index else LINE - 0.02)
        _heading(page, each, alone=len(scenes) == 1)
        for states in each.devices:
            (panel,) = page.panels(STRIP, label=f"run {index}")
            draw_run(panel, states, longest, f"GPU {states.device}" if len(each.devices) > 1 else "whole run")
            if states is each.devices[-1] and index == len(scenes) - 1:
                time_axis(panel.axes, 0, longest, panel.width_in)
            else:
                page.space(0.03)
    page.space(AXIS)


def _heading(page: Page, each: Scene, *, alone: bool) -> None:
    """The sentence of a run, the shares of its states beside it or below, and what it was."""
    title = each.title if alone else _named(page, each, each.title, LARGE)
    page.text(title, size=LARGE, weight="bold")
    room = page.width_in - 2 * MARGIN
    if each.devices:
        lines = legend_lines(each.totals, room)
        beside = text_width(title, LARGE, "bold") + 0.15 + legend_width(lines[0]) < room and len(lines) == 1
        page.space(-0.11 if beside else 0.06)
        for line in lines:
            draw_legend(page.panels(0.14, label="legend", from_left=True)[0], line)
        page.space(-0.03)
    subtitle = " · ".join(part for part in (each.label, each.subtitle) if part)
    if subtitle and alone:
        page.space(LINE)
        page.text(plain(subtitle)[:200], size=SMALL, color=MUTED)
    page.space(0.07)


def _named(page: Page, each: Scene, text: str, size: float) -> str:
    """A heading about one run of several: its name, or the end of it that fits, which tells most; else without it."""
    room = page.width_in - 2 * MARGIN
    names = [
        each.name,
        *(f"…{each.name[-length:]}" for length in range(min(len(each.name) - 1, MOST_NAME), LEAST_NAME - 1, -1)),
    ]
    headings = (f"{name}: {text}" for name in names if name)
    return next((heading for heading in headings if text_width(heading, size, "bold") <= room), text)


def _steps(page: Page, scenes: Sequence[Scene]) -> None:
    """A few steps of each run, on one scale of time."""
    views = [each.first_view for each in scenes]
    length = max(end - start for start, end in views)
    for index, (each, (start, end)) in enumerate(zip(scenes, views, strict=True)):
        page.space(SPACE + LINE - 0.02)
        title = _steps_title(each, start, end)
        page.text(title if len(scenes) == 1 else _named(page, each, title, NORMAL), weight="bold")
        page.space(0.06)
        begin = each.window.start_ns + start
        lanes = list(lanes_between(each, each.most_idle, begin, begin + length))[:MOST_LANES]
        (panel,) = page.panels(BAND + 0.05 + LANE * len(lanes), label=f"steps {index}")
        draw_steps(panel, each, lanes, begin, length, band_in=BAND, lane_in=LANE)
        if index == len(scenes) - 1:
            time_axis(panel.axes, 0, length, panel.width_in)
    page.space(AXIS)


def _steps_title(each: Scene, start: int, end: int) -> str:
    within = each.steps.numbers_between(start, end)
    if (start, end) == (0, each.window.length_ns):
        return "the whole run at true scale"
    shown = f"steps {int(within[0]):,} to {int(within[-1]):,}" if len(within) else duration(end - start)
    return f"{shown}, from {duration(start)} on"


def _rasters(page: Page, scenes: Sequence[Scene]) -> None:
    """All steps of each run, side by side, on one scale of time."""
    height = max(usual_length(each.trace, each.most_idle) for each in scenes)
    if not height:
        return
    page.space(SPACE + LINE - 0.02)
    titles = ["every step, from the start of its compute to the start of the next", "every step from its compute on"]
    page.text(fitting(titles, page.width_in - 2 * MARGIN - 0.3, NORMAL), weight="bold")
    page.space(0.06)
    panels = page.panels(RASTER, label="raster", count=len(scenes))
    longer = False
    for panel, each in zip(panels, scenes, strict=True):
        raster = step_raster(each.trace, each.most_idle, panel.columns, panel.rows, height)
        longer |= raster.longest_ns > height
        if len(raster.step):
            draw_raster(panel, raster, name=each.name if len(scenes) > 1 else "")
    page.space(AXIS + LINE)
    if longer:
        page.text("a few longer steps go on above the edge", size=SMALL, color=MUTED, right=True)
