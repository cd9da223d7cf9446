"""Coverage in whole steps: how many of a column's few levels each state gets, where a picture has only a few.

What rounding takes from one column is owed to the next, so that the drawn area of a state is right to about one level
over the whole width, and not only on average. A column that is wholly of one state is drawn so.
"""

from __future__ import annotations

import numpy as np

from cbprof.render.picture.coverage import Coverage
from cbprof.render.theme import STATES
from cbprof.trace import Int64

MOST_OWED = 0.49  # a column without any of a state must not get a level of it
ACTIVE = 1  # the boundary between GPU active and GPU idle, of the three between the four states


def stacked_levels(found: Coverage, rows: int, per_row: int) -> Int64:
    """The states as a raster of shape (bins, rows x per_row), from below: indices of ``theme.STATES``.

    Each run of ``per_row`` levels holds at most two states where ``per_row`` > 1, since a character cell has only two
    colours. The boundary between active and idle stays where it is; others in its cell move, and are owed.
    """
    levels = rows * per_row
    exact = np.cumsum(found.shares[:-1], axis=0).T * levels  # shape (bins, 3): the tops of all states but the last
    none = found.stacked[:-1].T == 0
    raster = np.empty((len(found), levels), dtype=np.int64)
    owed = np.zeros(len(STATES) - 1)
    for column, (wanted, absent) in enumerate(zip(exact, none, strict=True)):
        tops = np.rint(wanted + owed).astype(np.int64).clip(0, levels)
        for state in range(len(tops)):
            below = tops[state - 1] if state else 0
            tops[state] = below if absent[state] else max(tops[state], below)
        if found.stacked[-1, column] == 0:
            tops[_last_present(absent) :] = levels
        tops = _two_states_a_cell(tops, per_row)
        owed = np.clip(owed + wanted - tops, -MOST_OWED * per_row, MOST_OWED * per_row)
        raster[column] = np.searchsorted(tops, np.arange(levels), side="right")
    return raster


def _last_present(absent: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """The topmost state of a column that has no `neither`; all of them, if the column has no width."""
    present = np.flatnonzero(~absent)
    return int(present[-1]) if len(present) else len(absent)


def _two_states_a_cell(tops: Int64, per_row: int) -> Int64:
    """Move boundaries so that no two different ones lie inside one cell."""
    moved = tops.copy()
    active = tops[ACTIVE]
    floor, ceiling = active // per_row * per_row, -(-active // per_row) * per_row
    if floor < ceiling:
        for state in (0, 2):
            if floor < tops[state] < ceiling:
                edge = floor if state < ACTIVE else ceiling
                moved[state] = edge if abs(tops[state] - edge) < abs(tops[state] - active) else active
    return moved
