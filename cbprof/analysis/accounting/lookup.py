"""Which row of a table holds a number: a step, a launch.

By a table of all numbers in between, unless they lie so far apart that it would be large.
"""

from __future__ import annotations

import numpy as np

from cbprof.trace import NONE, Int32, Int64

SPARSE = 8
"""Numbers that lie further apart than this, on average, are searched for."""


def first_of_each(number: Int32) -> tuple[Int32, Int64]:
    """The distinct numbers, ascending, and the first row of each."""
    if (number[1:] < number[:-1]).any():
        found, first = np.unique(number, return_index=True)
        return found, first
    first = np.flatnonzero(np.diff(number, prepend=number[:1] - 1))
    return number[first], first


def rows_of(ascending: Int32, wanted: Int32) -> Int32:
    """The row of each wanted number in a table of ascending ones, or -1."""
    if not len(ascending) or not len(wanted):
        return np.full(len(wanted), NONE, dtype=np.int32)
    low, high = min(int(ascending[0]), int(wanted.min())), max(int(ascending[-1]), int(wanted.max()))
    if high - low > SPARSE * (len(ascending) + len(wanted)):
        row = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
        return np.where(ascending[row] == wanted, row, NONE).astype(np.int32)
    table = np.full(high - low + 1, NONE, dtype=np.int32)
    table[ascending - low] = np.arange(len(ascending))
    return table[wanted - low]


def last_match(keys: Int64, rows: Int64, wanted: Int64) -> Int64:
    """For each wanted key the row of its last occurrence in ``keys``, or -1."""
    found = np.full(len(wanted), NONE, dtype=np.int64)
    if not len(keys) or not len(wanted):
        return found
    low, high = int(keys.min()), int(keys.max())
    if high - low > SPARSE * (len(keys) + len(wanted)):
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
        position = np.maximum(np.searchsorted(keys, wanted, side="right") - 1, 0)
        return np.where(keys[position] == wanted, rows[position], found)
    table = np.full(high - low + 1, NONE, dtype=np.int32)
    table[keys - low] = rows  # of equal keys the last is kept
    near = np.flatnonzero((wanted >= low) & (wanted <= high))
    found[near] = table[wanted[near] - low]
    return found
