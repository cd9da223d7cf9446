"""The gaps of a device: when it had nothing to run, what ended each wait, and what had launched that."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.host import HostTimeline
from cbprof.analysis.accounting.intervals import Intervals
from cbprof.analysis.accounting.lookup import first_of_each, rows_of
from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.accounting.states import ACTIVITY_KINDS, Activity, States
from cbprof.trace import NONE, Int32, Int64, Lane, Trace, take_or

WhichGaps = Literal["longest", "all"]
"""Which gaps the plain form of a result lists: the :data:`LONGEST_GAPS`, longest first, or all in the order of time."""

LONGEST_GAPS = 10

_NEVER = np.iinfo(np.int64).max
"""Starts after everything."""


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """One row a gap, in the order of time: a maximal stretch of the window without GPU activity.

    ``ends_with``: index of the device span that ends it (K), -1 where the window ends first. ``launch``: index of the
    host span that launched K (L), -1 if unknown. ``step``: the step of K; ``inside_step``: whether the device had begun
    that step before the gap. ``host_late_ns`` is the part before L,
    ``in_launch_ns`` the part inside, ``queue_ns`` the part after; the three sum to the gap. Without L all of it counts
    as before. In the trace of a profiler, which records launches, a K without L was launched before the recording
    began, and the gap is all queue; where that is not certain, nobody knows how the gap lies, and the parts are -1.
    """

    start: Int64
    end: Int64
    ends_with: Int64
    launch: Int64
    step: Int32
    inside_step: npt.NDArray[np.bool_]
    host_late_ns: Int64
    in_launch_ns: Int64
    queue_ns: Int64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length_ns(self) -> Int64:
        return self.end - self.start

    @property
    def total_ns(self) -> int:
        return int(self.length_ns.sum())

    @property
    def longest_ns(self) -> int:
        """The length of the longest gap, 0 if there is none."""
        return int(self.length_ns.max(initial=0))

    def longest(self, count: int) -> Int64:
        """The rows of the ``count`` longest gaps, longest first, earlier first among equals."""
        return np.argsort(-self.length_ns, kind="stable")[:count]

    def percentile_ns(self, percent: int) -> int | None:
        """Nearest-rank percentile of the lengths; None where there is no gap."""
        return nearest_rank(np.sort(self.length_ns), percent) if len(self) else None

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Mask of the gaps of which it is known how they lie around a launch."""
        mask: npt.NDArray[np.bool_] = self.queue_ns != NONE
        return mask

    def before_launch(self) -> Intervals:
        return _non_empty(self.start, self.start + self.host_late_ns, self.known)

    def inside_launch(self) -> Intervals:
        return _non_empty(self.start + self.host_late_ns, self.end - self.queue_ns, self.known)

    def after_launch(self) -> Intervals:
        return _non_empty(self.end - self.queue_ns, self.end, self.known)

    def unknown(self) -> Intervals:
        return _non_empty(self.start, self.end, ~self.known)


class GapEnd(NamedTuple):
    """What ended a gap, by name: the device span, its stream, its launch, and when that began. None is unknown."""

    name: str | None
    stream: str | None
    launch: str | None
    launch_start_ns: int | None


@dataclass(frozen=True, slots=True, eq=False)
class GapEnds:
    """The same of all gaps, one row each; what is unknown is -1."""

    name_id: Int32
    lane_id: Int32
    launch_name_id: Int32
    launch_start_ns: Int64
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]

    def of_gap(self, row: int) -> GapEnd:
        name, lane, launch = int(self.name_id[row]), int(self.lane_id[row]), int(self.launch_name_id[row])
        return GapEnd(
            name=None if name == NONE else self.names[name],
            stream=None if lane == NONE else self.lanes[lane].name,
            launch=None if launch == NONE else self.names[launch],
            launch_start_ns=None if launch == NONE else int(self.launch_start_ns[row]),
        )


def gap_ends(trace: Trace, gaps: Gaps) -> GapEnds:
    """What ended each of these gaps."""
    return GapEnds(
        name_id=take_or(trace.name_id, gaps.ends_with, NONE),
        lane_id=take_or(trace.lane_id, gaps.ends_with, NONE),
        launch_name_id=take_or(trace.name_id, gaps.launch, NONE),
        launch_start_ns=take_or(trace.start_ns, gaps.launch, NONE),
        names=trace.names,
        lanes=trace.lanes,
    )


def find_gaps(trace: Trace, states: States, host: HostTimeline, activity: Activity = "compute") -> Gaps:
    """The gaps of one device in a window.

    A span that starts where the window ends does end the last gap, so that a gap has one cause whatever the window.
    Where two spans start at one instant, the one on the lowest lane counts.
    """
    idle = states.gaps
    ends_with = _starting_at(trace, states.device, activity, idle.end)
    launch = take_or(host.launch_of, ends_with, NONE)
    step = take_or(trace.step, ends_with, NONE)
    begun = take_or(trace.start_ns, launch, _NEVER)
    over = np.where(launch == NONE, _NEVER, begun + take_or(trace.dur_ns, launch, 0))
    launch_start = np.clip(begun, idle.start, idle.end)
    launch_end = np.clip(over, idle.start, idle.end)
    late, inside, queue = launch_start - idle.start, launch_end - launch_start, idle.end - launch_end
    if trace.is_profile:
        not_joined: npt.NDArray[np.bool_] = (ends_with != NONE) & (launch == NONE)
        queued = not_joined.copy()
        queued[not_joined] = _launched_before(trace, host, idle.start[not_joined], ends_with[not_joined])
        late[queued], queue[queued] = 0, (idle.end - idle.start)[queued]
        for part in (late, inside, queue):
            part[not_joined & ~queued] = NONE
    return Gaps(
        start=idle.start,
        end=idle.end,
        ends_with=ends_with,
        launch=launch,
        step=step,
        inside_step=_begun(trace, states.device, activity, step, idle.start),
        host_late_ns=late,
        in_launch_ns=inside,
        queue_ns=queue,
    )


def gaps_within(trace: Trace, gaps: Gaps, here: States, host: HostTimeline, activity: Activity = "compute") -> Gaps:
    """Those of a longer window, ``gaps``, that lie in a shorter one, as :func:`find_gaps` finds them there.

    Where no gap is cut by an edge of the window, as none is that ends with the device's own work, they are the same.
    """
    first = int(np.searchsorted(gaps.start, here.window.start_ns))
    last = int(np.searchsorted(gaps.end, here.window.end_ns, side="right"))
    if (gaps.end[:first] > here.window.start_ns).any() or (gaps.start[last:] < here.window.end_ns).any():
        return find_gaps(trace, here, host, activity)
    return Gaps(**{field.name: getattr(gaps, field.name)[first:last] for field in fields(gaps)})


def _launched_before(trace: Trace, host: HostTimeline, time: Int64, span: Int64) -> npt.NDArray[np.bool_]:
    """Whether each device span, of unknown launch, was launched before a time since which the host is recorded.

    A stream keeps its order: what runs on it before the first span of known launch was launched before that one, and
    without a record only because the recording of the host had not begun.
    """
    size = len(trace.lanes)
    if not len(span):
        return np.zeros(0, dtype=bool)
    driving = np.isin(host.lane, host.launch_pairs[:, 0])
    if not driving.any():
        return np.zeros(len(span), dtype=bool)
    recorded_from = int(host.start[driving].min())
    first = np.full(size, np.iinfo(np.int64).min)
    rows = np.flatnonzero(host.launch_of != NONE)[::-1]
    first[trace.lane_id[rows]] = trace.start_ns[rows]  # the last to be written is the first in time
    start, lane = take_or(trace.start_ns, span, 0), take_or(trace.lane_id, span, 0)
    before: npt.NDArray[np.bool_] = (time >= recorded_from) & (start < first[lane])
    return before


def _begun(trace: Trace, device: int, activity: Activity, step: Int32, time: Int64) -> npt.NDArray[np.bool_]:
    """Whether the device was active for each step before each instant; no step (-1) has begun."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS[activity], device=device) & (trace.step != NONE))
    if not len(rows):
        return np.zeros(len(step), dtype=bool)
    steps, first = first_of_each(trace.step[rows])
    begun: npt.NDArray[np.bool_] = take_or(trace.start_ns[rows[first]], rows_of(steps, step), _NEVER) < time
    return begun


def _starting_at(trace: Trace, device: int, activity: Activity, time: Int64) -> Int64:
    """The span of the device that starts at each instant, or -1. Empty spans end nothing."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS[activity], device=device) & (trace.dur_ns > 0))
    if not len(rows):
        return np.full(len(time), NONE, dtype=np.int64)
    start = trace.start_ns[rows]
    if (start[1:] == start[:-1]).any():
        rows = rows[np.lexsort((trace.lane_id[rows], start))]
    position = np.minimum(np.searchsorted(start, time), len(rows) - 1)
    return np.where(start[position] == time, rows[position], NONE)


def _non_empty(start: Int64, end: Int64, among: npt.NDArray[np.bool_]) -> Intervals:
    kept = (end > start) & among
    return Intervals(start[kept], end[kept])
