"""The colours and patterns of every picture and table.

A bluish green and a vermilion stay apart for colour-blind readers (they are of the palette of Okabe and Ito), and each
state also has its own pattern, so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class StateStyle(NamedTuple):
    """How one of the four states looks.

    ``color`` is hex, for light backgrounds; ``pattern`` fills a bar in a terminal, ``plain`` where it has only ASCII.
    """

    color: str
    label: str
    pattern: str
    plain: str


# In the order in which bars and legends show them: from what is wanted to what is not.
STATES: Mapping[str, StateStyle] = MappingProxyType(
    {
        "overlap": StateStyle("#00664f", "overlap", "█", "#"),
        "gpu_only": StateStyle("#5cc8a8", "GPU only", "▓", "="),
        "cpu_only": StateStyle("#d55e00", "CPU only", "▚", "/"),
        "neither": StateStyle("#b8b8b8", "neither", "·", "."),
    }
)


def text_on(color: str) -> str:
    """Black or white (hex), whichever reads better on a colour."""
    red, green, blue = ((int(color[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    return "#10151b" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.25 else "#ffffff"
