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
