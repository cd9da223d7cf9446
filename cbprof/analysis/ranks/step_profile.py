"""How long each step of a rank took, in a few hundred figures however long the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.intervals import Intervals, sum_by
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.trace import NONE, Int64

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
