"""Steps in which the fleet waits for one rank: where all step together, the slowest sets the pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cbprof.analysis.ranks.rank import FleetRank
from cbprof.trace import NONE, Int64

MOST_STEPS = 10


class SlowStep(NamedTuple):
    """Steps ``first`` to ``last`` (inclusive) of a rank (an index), and what they took the rank in the median.

    ``alone_ns``: how much longer than the second slowest, which is what the fleet waits for this rank alone.
    """

    first: int
    last: int
    row: int
    own_ns: int
    median_ns: int
    alone_ns: int


class LastRank(NamedTuple):
    """A rank (an index), in how many of the groups of steps it was the slowest, and what that cost the fleet."""

    row: int
    n_slowest: int
    alone_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class StepWaits:
    """Over the groups of ``steps_each`` steps that all ranks ran; times are own times, without collectives.

    ``paced_ns``: if each step took as long as on its slowest rank; ``median_ns``: as on the median rank. ``slow``: the
    steps in which the slowest exceeds the median most, of those by more than a tenth. ``last``: the ranks by what the
    fleet waited for them alone.
    """

    n_groups: int
    steps_each: int
    paced_ns: int
    median_ns: int
    slow: tuple[SlowStep, ...]
    last: tuple[LastRank, ...]


def step_waits(ranks: Sequence[FleetRank]) -> StepWaits | None:
    """None with fewer than two ranks, or without steps that all of them ran."""
    if len(ranks) < 2 or not all(len(rank.steps) for rank in ranks):
        return None
    shift = max(rank.steps.shift for rank in ranks)
    steps = [rank.steps.coarser(shift) for rank in ranks]
    first, end = max(each.first for each in steps), min(each.first + len(each) for each in steps)
    if first >= end:
        return None
    own = np.stack([each.own_ns[first - each.first : end - each.first] for each in steps])
    ran = np.flatnonzero((own != NONE).all(axis=0))
    if not len(ran):
        return None
    return _waits(own[:, ran], first + ran, shift)


def _waits(own: Int64, group: Int64, shift: int) -> StepWaits:
    """``own``: one row a rank, one column a group; it is sorted on the way."""
    slowest = own.argmax(axis=0)
    own.sort(axis=0)
    most, alone = own[-1], own[-1] - own[-2]
    median = own[(len(own) - 1) // 2]
    excess = most - median
    chosen = np.argsort(-excess, kind="stable")[:MOST_STEPS]
    cost = np.zeros(len(own), dtype=np.int64)
    np.add.at(cost, slowest, alone)
    n_slowest = np.bincount(slowest, minlength=len(own))
    return StepWaits(
        n_groups=len(group),
        steps_each=1 << shift,
        paced_ns=int(most.sum()),
        median_ns=int(median.sum()),
        slow=tuple(
            SlowStep(
                first=int(group[each]) << shift,
                last=((int(group[each]) + 1) << shift) - 1,
                row=int(slowest[each]),
                own_ns=int(most[each]),
                median_ns=int(median[each]),
                alone_ns=int(alone[each]),
            )
            for each in chosen.tolist()
            if 10 * excess[each] > median[each]
        ),
        last=tuple(
            LastRank(row, int(n_slowest[row]), int(cost[row]))
            for row in np.argsort(-cost, kind="stable")[:MOST_STEPS].tolist()
            if cost[row]
        ),
    )
