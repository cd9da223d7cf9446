"""What is drawn in the panels of a static picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.states import States, StateTotals
from cbprof.names import plain
from cbprof.numbers import count, duration, tick_step, ticks
from cbprof.render.picture.coverage import coverage
from cbprof.render.picture.lanes import LaneView
from cbprof.render.picture.scene import Scene
from cbprof.render.picture.step_raster import StepRaster
from cbprof.render.static.page import INK, MUTED, NORMAL, SMALL, Panel, fitting, gutter_name, text_width
from cbprof.render.tables.statebar import StateShare, state_shares
from cbprof.render.theme import STATES, UNTRACED, phase_colors, text_on
from cbprof.trace import NONE, Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Solid is the GPU at work, hatched or dotted is somebody waiting, crossed is a host of which no record tells.
# The ink of the hatch, and matplotlib's name for it.
HATCHES = {
    "untraced_active": ("#8fb5a7", "xxxx"),
    "untraced_idle": ("#d1a68a", "xxxx"),
    "cpu_only": ("#8f3d00", "//////"),
    "neither": ("#6f757c", "..."),
}
WAIT, WAIT_INK = "#f1f3f5", "#b9c0c9"
LEGEND, SWATCH, BETWEEN = 6.5, 0.18, 0.1  # points, inches, inches
HAIRLINE = 0.008  # inches that a span is wide at least
STRIPES = 9  # pixels from one stripe of the raster's hatch to the next


def fill_of(state: str) -> dict[str, Any]:
    """How matplotlib fills an area of a state."""
    ink, hatch = HATCHES.get(state, ("none", None))
    return {"facecolor": STATES[state].color, "edgecolor": ink, "hatch": hatch, "linewidth": 0}


def time_axis(axes: Axes, start: int, end: int, width_in: float) -> None:
    """Round times below the axes, whose x is in ns."""
    found = list(ticks(start, end, int(width_in / 0.75)))
    labels = axes.set_xticks([time for time, _ in found], [text for _, text in found])
    for tick, (time, _) in zip(labels, found, strict=True):
        if (end - time) * width_in < 0.1 * (end - start):
            tick.label1.set_horizontalalignment("right")  # the edge of the page is near


def draw_run(panel: Panel, states: States, longest_ns: int, name: str) -> None:
    """The whole run: the area of a colour is the share of its state.

    Each state is painted from the bottom up to its top, the last one first, so that no seam shows between them.
    """
    window = states.window
    columns = max(1, round(panel.columns * window.length_ns / longest_ns))
    found = coverage(states, window.start_ns, window.end_ns, columns)
    x = np.repeat(found.edges - window.start_ns, 2)[1:-1]
    tops = np.cumsum(found.shares, axis=0)
    for state, top in reversed(list(zip(STATES, tops, strict=True))):
        panel.axes.fill_between(x, 0, np.repeat(top, 2), snap=False, **fill_of(state))
    panel.axes.set(xlim=(0, longest_ns), ylim=(0, 1))
    gutter_name(panel, name, 0.5)
    text = f"ended at {duration(window.length_ns)}"
    if text_width(text, SMALL) + 0.1 < panel.width_in * (1 - window.length_ns / longest_ns):
        offset = longest_ns * 0.05 / panel.width_in
        panel.axes.text(window.length_ns + offset, 0.5, text, size=SMALL, color=MUTED, va="center")


def legend_lines(found: StateTotals | None, room_in: float) -> list[list[StateShare]]:
    """The states with their shares, in as few lines as the room allows."""
    lines: list[list[StateShare]] = [[]]
    for item in state_shares(found):
        if lines[-1] and legend_width([*lines[-1], item]) > room_in:
            lines.append([])
        lines[-1].append(item)
    return lines


def legend_width(line: Sequence[StateShare]) -> float:
    """Inches that a line of the legend takes."""
    swatches = sum(len(item.drawn_as) for item in line)
    return SWATCH * swatches + sum(0.05 + text_width(_named(item), LEGEND) + BETWEEN for item in line) - BETWEEN


def _named(item: StateShare) -> str:
    return f"{item.label} {item.text}"


def draw_legend(panel: Panel, line: Sequence[StateShare]) -> None:
    """One line of the legend, right aligned."""
    from matplotlib.patches import Rectangle

    panel.axes.set(xlim=(0, panel.width_in), ylim=(0, panel.height_in))
    x = panel.width_in - legend_width(line)
    for item in line:
        for place, state in enumerate(item.drawn_as):
            panel.axes.add_patch(Rectangle((x + place * SWATCH, 0.02), SWATCH, 0.1, **fill_of(state)))
        behind = x + len(item.drawn_as) * SWATCH + 0.05
        panel.axes.text(behind, 0.07, _named(item), size=LEGEND, color=INK, va="center_baseline")
        x += legend_width([item]) + BETWEEN


def draw_steps(
    panel: Panel, scene: Scene, lanes: Sequence[LaneView], start: int, length_ns: int, *, band_in: float, lane_in: float
) -> None:
    """[start, start + length) of a trace's own axis: the states of its most idle device, then its lanes."""
    panel.axes.set(xlim=(0, length_ns), ylim=(panel.height_in, 0))
    per_inch = length_ns / panel.width_in
    states = scene.most_idle
    gutter_name(panel, f"GPU {states.device}" if len(scene.devices) > 1 else "GPU", band_in / 2)
    for state, part in zip(STATES, states.parts, strict=True):
        found = part.clip(start, start + length_ns)
        bars = list(zip((found.start - start).tolist(), found.length_ns.tolist(), strict=True))
        panel.axes.broken_barh(bars, (0, band_in), antialiased=False, **fill_of(state))
        for at, length in bars:
            text = duration(length)
            if text_width(text, NORMAL, "bold") + 0.08 < length / per_inch:
                _label(
                    panel.axes,
                    at + 0.04 * per_inch,
                    band_in / 2,
                    text,
                    STATES[state].color,
                    outlined=state in HATCHES,
                    weight="bold",
                )
    top = band_in + 0.05
    for lane in lanes:
        gutter_name(panel, lane.name, top + lane_in / 2, weight="normal")
        _draw_lane(panel, scene, lane, start, length_ns, top, lane_in - 0.025)
        top += lane_in


def _draw_lane(
    panel: Panel, scene: Scene, lane: LaneView, start: int, length_ns: int, top: float, height: float
) -> None:
    trace, colors = scene.trace, phase_colors(scene.trace.names)
    per_inch = length_ns / panel.width_in
    begin = np.maximum(lane.start - start, 0)
    width = np.maximum(np.minimum(lane.end - start, length_ns) - begin, round(HAIRLINE * per_inch))
    color = np.array([colors[name] for name in trace.name_id[lane.span]])
    color[trace.kind[lane.span] == Kind.CPU_WAIT] = WAIT
    for shade in np.unique(color):
        mine = np.flatnonzero(color == shade)
        bars = list(zip(begin[mine].tolist(), width[mine].tolist(), strict=True))
        style: dict[str, Any] = {"hatch": "////////", "edgecolor": WAIT_INK} if shade == WAIT else {}
        panel.axes.broken_barh(bars, (top, height), facecolor=str(shade), linewidth=0, antialiased=False, **style)
    for at, wide, span, shade in zip(begin.tolist(), width.tolist(), lane.span.tolist(), color, strict=True):
        name, step = plain(trace.name_of(span)), int(trace.step[span])
        texts = [name] if step == NONE else [f"{name} {step}", name]
        text = fitting(texts, wide / per_inch - 0.07, SMALL)
        if wide / per_inch > 0.04:
            panel.axes.vlines(at + wide, top, top + height, color=INK, linewidth=0.3)
        if text:
            _label(panel.axes, at + 0.04 * per_inch, top + height / 2, text, str(shade), outlined=shade == WAIT)


def _label(axes: Axes, x: float, y: float, text: str, ground: str, *, outlined: bool, weight: str = "normal") -> None:
    from matplotlib.patheffects import withStroke

    effects = [withStroke(linewidth=2, foreground=ground)] if outlined else []
    size = NORMAL if weight == "bold" else SMALL
    axes.text(x, y, text, size=size, weight=weight, color=text_on(ground), va="center_baseline", path_effects=effects)


def draw_raster(panel: Panel, raster: StepRaster, *, name: str) -> None:
    """Time within the step upwards, the steps from left to right. ``name``: of the run, where there are several."""
    image = raster_image(raster.shares, panel.columns, panel.rows)
    panel.axes.imshow(
        image, extent=(0, panel.columns, 0, raster.length_ns), origin="lower", aspect="auto", interpolation="none"
    )
    panel.axes.set(xlim=(0, panel.columns), ylim=(0, raster.length_ns))
    found = list(ticks(0, raster.length_ns, 4))
    panel.axes.set_yticks([time for time, _ in found], [text for _, text in found])
    places = list(_step_ticks(raster, max(2, int(panel.width_in / 0.8))))
    scale = panel.columns / (len(raster.step) - 1)
    panel.axes.set_xticks([column * scale for column, _ in places], [text for _, text in places])
    shown = fitting([name], 0.85 * panel.width_in, NORMAL)  # bold takes more room than that
    panel.axes.text(0.02, 0.95, shown, transform=panel.axes.transAxes, size=NORMAL, weight="bold", color=INK, va="top")


def _step_ticks(raster: StepRaster, most: int) -> Iterator[tuple[int, str]]:
    """Columns of round steps, and what to write there: the step, and its context."""
    first, last = int(raster.step[0]), int(raster.step[-1])
    size = tick_step(last - first, most)
    for step in range(-(-first // size) * size, last - size // 3 + 1, size):
        column = int(np.searchsorted(raster.step, step))
        context = int(raster.context[column])
        yield column, f"step {count(step)}" + (f"\ncontext {count(context)}" if context != NONE else "")


def raster_image(shares: npt.NDArray[np.float64], columns: int, rows: int) -> npt.NDArray[np.uint8]:
    """RGB pixels of shape (rows, columns, 3), the first row at the bottom.

    Each pixel mixes the colours of its states by their shares, over white. Stripes and dots of the ink of an idle state
    darken where it prevails, so that the picture can be read without colour.
    """
    x = np.arange(columns) * shares.shape[1] // columns
    y = np.arange(rows) * shares.shape[2] // rows
    mix = shares[:, x][:, :, y].transpose(2, 1, 0)  # (rows, columns, states)
    paints = np.array([_rgb(style.color) for style in STATES.values()])
    image = mix @ paints + (1 - mix.sum(axis=2, keepdims=True)) * 255
    row, column = np.ogrid[:rows, :columns]
    crossed = ((row - column) % STRIPES < 1) | ((row + column) % STRIPES < 1)
    marks = {
        **dict.fromkeys(UNTRACED, crossed),
        "cpu_only": (row - column) % STRIPES < 2,
        "neither": ((row % STRIPES) // 2 == 0) & ((column % STRIPES) // 2 == 0),
    }
    for state, (ink, _) in HATCHES.items():
        marked = marks[state] & (mix[:, :, list(STATES).index(state)] > 0.5)
        image[marked] = _rgb(ink)
    pixels: npt.NDArray[np.uint8] = image.round().clip(0, 255).astype(np.uint8)
    return pixels


def _rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue
