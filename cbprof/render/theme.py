"""The colours and patterns of every picture and table.

A bluish green and a vermilion stay apart for colour-blind readers (they are of the palette of Okabe and Ito), and each
state also has its own pattern, so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class StateStyle(NamedTuple):
    """How one of the states looks.

    ``color`` is hex, for light backgrounds; ``pattern`` fills a bar in a terminal, ``plain`` where it has only ASCII.
    """

    color: str
    label: str
    pattern: str
    plain: str


# In the order in which bars and legends show them, the GPU active first. Pale: no record says what the host did.
STATES: Mapping[str, StateStyle] = MappingProxyType(
    {
        "overlap": StateStyle("#00664f", "overlap", "█", "#"),
        "gpu_only": StateStyle("#5cc8a8", "GPU only", "▓", "="),
        "untraced_active": StateStyle("#c3ddd3", "GPU active, host not recorded", "▒", "+"),
        "untraced_idle": StateStyle("#f0dccf", "GPU idle, host not recorded", "░", "-"),
        "cpu_only": StateStyle("#d55e00", "CPU only", "▚", "/"),
        "neither": StateStyle("#b8b8b8", "neither", "·", "."),
    }
)


UNTRACED = ("untraced_active", "untraced_idle")
"""The two halves of the fifth state, host not recorded. Pictures show them where a trace has such time."""


def drawn_states(*, untraced: bool) -> list[str]:
    """The states that a picture draws; ``untraced``: whether some of the host's time was not recorded."""
    return [state for state in STATES if untraced or state not in UNTRACED]


def text_on(color: str) -> str:
    """Black or white (hex), whichever reads better on a colour."""
    red, green, blue = ((int(color[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    return "#10151b" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.25 else "#ffffff"


PHASES: Mapping[str, str] = MappingProxyType(
    {
        # what encloses other phases is drawn pale
        "iteration": "#d5dae3",
        "step": "#d5dae3",
        "prepare": "#bccbe0",
        "dispatch": "#c3c5e4",
        # host work
        "schedule": "#56b4e9",
        "inputs": "#f0d65c",
        "h2d.launch": "#b9a5ec",
        "launch": "#8fa8ee",
        "compute.launch": "#8fa8ee",
        "fetch": "#eaa3cb",
        "d2h.launch": "#eaa3cb",
        "update": "#dcc6a0",
        "read": "#b98d4e",
        "capture": "#a8328c",
        "warmup": "#a8328c",
        "wait": "#aeb4bd",
        # device work
        "h2d": "#7a55c7",
        "compute": "#3f63c4",
        "d2h": "#c2478f",
    }
)

# For all other names, in the order in which they appear.
OTHERS = ("#86c5da", "#e3bd4f", "#9c8ade", "#d791b8", "#7f9bd1", "#c9a227", "#b7c1d6", "#a66f9e", "#5d8aa8", "#dcb8ff")


def phase_colors(names: Iterable[str]) -> list[str]:
    """A colour for each name (hex)."""
    unknown = 0
    colors = []
    for name in names:
        color = PHASES.get(name)
        if color is None:
            color = OTHERS[unknown % len(OTHERS)]
            unknown += 1
        colors.append(color)
    return colors
