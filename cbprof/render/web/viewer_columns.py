"""Columns of integers as text for the page; ``viewer/columns.js`` is the other half."""

from __future__ import annotations

import base64
import zlib
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from cbprof.errors import DataError
from cbprof.trace import Int64

# The zigzag of a difference of two such values is still an exact integer in JavaScript (below 2^53). In ns: 26 days.
LARGEST = 2**51 - 1


class PackedColumn(TypedDict):
    """What the page holds for one column: ``width`` byte planes of ``length`` bytes, as text.

    ``edges``: the values are places among the edges of the run's spans.
    """

    length: int
    width: int
    delta: bool
    data: str
    edges: NotRequired[bool]


def pack(values: npt.NDArray[np.integer[Any]], *, delta: bool = False) -> PackedColumn:
    """The column as text; with ``delta``, of the differences between neighbours.

    Raises :class:`DataError` where a value is too large to be exact in a browser.
    """
    column = values.astype(np.int64)
    if len(column) and not -LARGEST <= column.min() <= column.max() <= LARGEST:
        raise DataError(f"the trace holds values beyond {LARGEST} (26 days in ns), which a browser cannot show exactly")
    if delta:
        column = np.diff(column, prepend=np.int64(0))
    zigzag = (column << 1) ^ (column >> 63)
    width = max(1, (int(zigzag.max(initial=0)).bit_length() + 7) // 8)
    planes = zigzag.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].T
    packed = zlib.compress(planes.tobytes(), level=9)
    return PackedColumn(length=len(column), width=width, delta=delta, data=base64.b64encode(packed).decode("ascii"))


def edges_of(start: Int64, dur: Int64, length: int) -> Int64:
    """The distinct instants at which a span of the page, or its window, begins or ends, ascending."""
    return np.unique(np.concatenate((start, start + dur, np.array([0, length], dtype=np.int64))))


def pack_instants(times: Int64, edges: Int64) -> PackedColumn:
    """Instants that are ``edges`` by their place among them, which takes next to no room; any others as they are."""
    place = np.minimum(np.searchsorted(edges, times), len(edges) - 1)
    if (edges[place] == times).all():
        column = pack(place, delta=True)
        column["edges"] = True
        return column
    return pack(times, delta=True)
