"""How long each step of a rank took, and in which steps the others wait for one rank.

Where all ranks step together, the slowest sets the pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.intervals import Intervals, sum_by
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.trace import NONE, Int64

MOST_STEPS = 10

MOST_GROUPS = 256


@dataclass(frozen=True, slots=True, eq=False)
class StepProfile:
    """The own time of each group of ``2 ** shift`` consecutive step numbers.

    Group ``first + i`` holds the steps from ``(first + i) << shift`` on. ``own_ns``: the time from the start of a
    step's compute to that of the next step's, without the collectives in it that nothing covered; summed over the
    group, and -1 where none of its steps ran. Groups begin at multiples of their size, so that those of two ranks are
    the same steps.
    """

    first: int
    shift: int
    own_ns: Int64

    def __len__(self) -> int:
        return len(self.own_ns)

    def coarser(self, shift: int) -> StepProfile:
        """The same in groups of ``2 ** shift`` steps, which are at least as large."""
        if shift == self.shift or not len(self):
            return self
        group = np.arange(self.first, self.first + len(self)) >> (shift - self.shift)
        return _grouped(group[self.own_ns != NONE], self.own_ns[self.own_ns != NONE], shift)


def step_profile(steps: StepTimes, exposed: Intervals) -> StepProfile:
    """``exposed``: when a collective was all that the device ran."""
    if not len(steps):
        return StepProfile(0, 0, np.zeros(0, dtype=np.int64))
    first, last = int(steps.step[0]), int(steps.step[-1])
    shift = 0
    while (last >> shift) - (first >> shift) >= MOST_GROUPS:
        shift += 1
    own = steps.period_ns - exposed.within(steps.start_ns, steps.start_ns + steps.period_ns)
    return _grouped(steps.step.astype(np.int64) >> shift, own, shift)


def _grouped(group: Int64, own_ns: Int64, shift: int) -> StepProfile:
    first = int(group.min())
    size = int(group.max()) - first + 1
    ran = np.bincount(group - first, minlength=size) > 0
    return StepProfile(first, shift, np.where(ran, sum_by(group - first, own_ns, size), NONE))


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

    def to_json(self, whose: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """``whose``: what names each rank."""
        return {
            "n_groups": self.n_groups,
            "steps_each": self.steps_each,
            "paced_ns": self.paced_ns,
            "median_ns": self.median_ns,
            "waited_for": [
                {**whose[last.row], "n_slowest": last.n_slowest, "alone_ns": last.alone_ns} for last in self.last
            ],
            "slowest_steps": [
                {
                    "steps": [slow.first, slow.last],
                    **whose[slow.row],
                    "own_ns": slow.own_ns,
                    "median_ns": slow.median_ns,
                    "alone_ns": slow.alone_ns,
                }
                for slow in self.slow
            ],
        }


def step_waits(ranks: Sequence[StepProfile]) -> StepWaits | None:
    """``ranks``: the steps of each. None with fewer than two ranks, or without steps that all of them ran."""
    if len(ranks) < 2 or not all(map(len, ranks)):
        return None
    shift = max(rank.shift for rank in ranks)
    steps = [rank.coarser(shift) for rank in ranks]
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
