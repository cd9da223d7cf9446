"""The idle share of every rank over time, on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cbprof.analysis.ranks.rank import BINS, Rank, bin_edges

LEAST_COMMON = 0.2
"""Where a typical rank covers less of the time between the first start and the last end, they did not run together."""


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """``idle_pct``: shape (ranks, bins); NaN where a rank has no record, or its idle time is unknown.

    ``length_ns``: of the axis. ``together``: the axis is the common clock; else every rank begins at 0.
    Within a bin of a rank's own window its idle time counts as evenly spread.
    """

    idle_pct: npt.NDArray[np.float32]
    length_ns: int
    together: bool


def heat_map(ranks: Sequence[Rank]) -> HeatMap:
    together = run_together(ranks)
    starts = [rank.start_ns + ((rank.base_time_ns or 0) if together else -rank.start_ns) for rank in ranks]
    origin = min(starts, default=0)
    length = max((start + rank.window_ns - origin for start, rank in zip(starts, ranks, strict=True)), default=0)
    edges = bin_edges(0, length)
    rows = np.full((len(ranks), BINS), np.nan, dtype=np.float32)
    for row, (start, rank) in enumerate(zip(starts, ranks, strict=True)):
        if rank.idle_ns is None or not rank.window_ns:
            continue
        own = bin_edges(start - origin, start - origin + rank.window_ns)
        idle_until = np.concatenate(([0], np.cumsum(rank.idle_bins)))
        within = np.clip(edges, own[0], own[-1]).astype(np.float64)
        covered = within[1:] - within[:-1]
        idle = np.diff(np.interp(edges, own, idle_until))
        there = covered > 0
        rows[row, there] = 100 * idle[there] / covered[there]
    return HeatMap(np.clip(rows, 0, 100), length, together)


def run_together(ranks: Sequence[Rank]) -> bool:
    """Whether the ranks have a common clock and ran at about the same time."""
    if not ranks or any(rank.base_time_ns is None for rank in ranks):
        return False
    starts = [(rank.base_time_ns or 0) + rank.start_ns for rank in ranks]
    ends = [(rank.base_time_ns or 0) + rank.end_ns for rank in ranks]
    return float(np.median([rank.window_ns for rank in ranks])) >= LEAST_COMMON * (max(ends) - min(starts))
