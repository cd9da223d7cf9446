"""One colour a span name, the same in every picture.

The tints stay clear of the greens, the vermilion and the grey of the states (``theme.STATES``). A launch on the host
has the light tint of what it launches on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

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
