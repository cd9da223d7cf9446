"""How sure a ratio of two times is, from how much it varies along the two runs.

Steps next to each other are alike (they share a context length, a capture, a noisy neighbour), so whole blocks of them
are drawn, not single steps; and since time per step depends on where in the run it is, block ``i`` of one run is
always drawn together with block ``i`` of the other. (B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993,
chapters 8 and 13.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbprof.trace import Int64

BLOCKS = 50
FEWEST_BLOCKS = 8
RESAMPLES = 2000
CONFIDENCE_PCT = 95


class Ratio(NamedTuple):
    """after / before, and the interval that holds it in 95 of 100 cases; None where there are too few steps to say."""

    value: float
    low: float | None
    high: float | None


def ratio_of_sums(before: Int64, after: Int64, *, scale: float = 1.0, seed: int = 0) -> Ratio | None:
    """scale x sum(after) / sum(before) with a bootstrap interval. One value a block; the blocks correspond.

    The interval says how much the ratio varies within these two runs, not what a third run would bring. None where
    there is nothing to divide by.
    """
    if not before.sum():
        return None
    value = scale * int(after.sum()) / int(before.sum())
    if len(before) < FEWEST_BLOCKS:
        return Ratio(value, None, None)
    drawn = np.random.default_rng(seed).integers(len(before), size=(RESAMPLES, len(before)))
    below = before[drawn].sum(axis=1)
    ratios = scale * after[drawn].sum(axis=1)[below > 0] / below[below > 0]
    tail = (100 - CONFIDENCE_PCT) / 2
    low, high = np.percentile(ratios, (tail, 100 - tail))
    return Ratio(value, float(low), float(high))


def block_edges(count: int, blocks: int = BLOCKS) -> Int64:
    """The first index of each block of ``count`` steps, and ``count``; as many blocks as asked, or one a step."""
    blocks = min(blocks, count)
    return np.arange(blocks + 1, dtype=np.int64) * count // max(1, blocks)
