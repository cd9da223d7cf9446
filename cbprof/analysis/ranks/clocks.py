"""How far apart ranks start their collectives, and how far apart their clocks run, told from the collectives' ends.

A collective ends everywhere at about the same time, since it waits for the last to arrive. So what the ends of one rank
differ from the ranks' median, over many collectives, is its clock: a line whose height is the offset and whose slope is
the drift (Theil-Sen: the median slope between pairs, which a few bad ends cannot turn)::

    end on rank r - median end      .  .  .  '  '  '    slope: drift, ns per ns
                                 '  '  '
    ---------------------------------------------------> time

Taking the line off leaves the start skew that is the ranks' own. So a rank whose starts and ends are both 1 ms later
has a clock that is 1 ms ahead; one whose starts alone are 1 ms later is late, and the others wait for it::

    rank 0        |======= all-reduce =======|           rank 0        |======= all-reduce =======|
    rank 1               |=== all-reduce ====|           rank 1           |======= all-reduce =======|
                  |<--->| rank 1 is late                              |<>| the clock of rank 1 is ahead

One collective is enough for that: nobody can leave it before the last has come. If the ends differ by more than the
clocks do, because the kernels of some ranks end later, the figures are off by as much; ``end_*`` of :class:`Skew` says
how far the ends still are apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.ranks.rank import Collectives, Rank
from cbprof.trace import NONE, Int64

Floats = npt.NDArray[np.float64]

ENOUGH_FOR_DRIFT = 8
"""Collectives below which a slope says nothing."""

_MOST_OCCURRENCES = 1 << 32

MOST_POINTS = 128
"""Of a rank's line; there are half as many pairs as the square of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """How a rank's clock differs from the ranks' median: ``offset_ns`` in the middle of the run, ``drift`` in ns per ns
    (None where it cannot be told). Positive is ahead.
    """

    offset_ns: float
    drift: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """What the collectives common to some ranks say. Times in nanoseconds; one entry a rank, in their order.

    ``n_matched``: collectives that were compared, of ``n_common`` that all ranks ran; ``n_unmatched`` are not on every
    rank as often. ``raw_start_*``: how far apart the starts are by the files' own base times; ``start_*`` the same with
    each clock corrected. ``end_*``: how far apart the ends still are then: the figures are not better than that.
    ``late_ns``: how much later than the first each rank starts, on average; ``waited_ns``: how long it is in a
    collective until the last has come, on average; ``n_last``: how often it was the last.
    """

    n_matched: int
    n_common: int
    n_unmatched: int
    raw_start_p50_ns: int
    raw_start_max_ns: int
    start_p50_ns: int
    start_max_ns: int
    end_p50_ns: int
    end_max_ns: int
    late_ns: tuple[float, ...]
    waited_ns: tuple[float, ...]
    n_last: tuple[int, ...]
    clocks: tuple[Clock, ...]

    @property
    def most_offset_ns(self) -> float:
        """The largest difference between two of the clocks."""
        offsets = [clock.offset_ns for clock in self.clocks]
        return max(offsets) - min(offsets)

    @property
    def latest(self) -> int | None:
        """The rank that starts last on average; None where the ends leave that open."""
        most = max(self.late_ns)
        return self.late_ns.index(most) if most > self.end_p50_ns else None

    @property
    def most_drift(self) -> float | None:
        """The largest drift between two of the clocks, in ns per ns."""
        known = [clock.drift for clock in self.clocks if clock.drift is not None]
        return max(known) - min(known) if known else None

    def to_json(self, whose: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """``whose``: what names each rank."""
        columns = zip(whose, self.late_ns, self.waited_ns, self.n_last, self.clocks, strict=True)
        return {
            "n_matched": self.n_matched,
            "n_common": self.n_common,
            "n_unmatched": self.n_unmatched,
            "start_skew_ns": {"p50": self.start_p50_ns, "max": self.start_max_ns},
            "start_skew_by_base_time_ns": {"p50": self.raw_start_p50_ns, "max": self.raw_start_max_ns},
            "end_skew_ns": {"p50": self.end_p50_ns, "max": self.end_max_ns},
            "most_offset_ns": self.most_offset_ns,
            "most_drift": self.most_drift,
            "ranks": [
                {**rank, "late_ns": late, "waited_ns": waited, "n_last": n_last, **asdict(clock)}
                for rank, late, waited, n_last, clock in columns
            ],
        }


def skew_of(ranks: Sequence[Rank]) -> Skew | None:
    """``ranks``: on one axis by their base times; a missing one counts as 0, for the devices of one file.

    None with fewer than two ranks, or without a collective that all of them ran.
    """
    if len(ranks) < 2:
        return None
    common = _common([rank.collectives for rank in ranks])
    keys = [_keys(rank.collectives, common.names) for rank in ranks]
    shared = reduce(_in_both, keys)
    if not len(shared):
        return None
    origin = min((rank.base_time_ns or 0) + rank.start_ns for rank in ranks)
    start, end = np.empty((2, len(shared), len(ranks)), dtype=np.int64)
    for column, (rank, mine) in enumerate(zip(ranks, keys, strict=True)):
        order = np.argsort(mine, kind="stable")
        chosen = order[np.searchsorted(mine[order], shared)]
        shift = (rank.base_time_ns or 0) - origin
        start[:, column] = rank.collectives.start_ns[chosen] + shift
        end[:, column] = rank.collectives.end_ns[chosen] + shift
    return _skew(start, end, common)


@dataclass(frozen=True, slots=True)
class _Common:
    """``names``: those that all ranks ran equally often."""

    names: tuple[str, ...]
    n_common: int
    n_unmatched: int


def _common(ranks: Sequence[Collectives]) -> _Common:
    counts = [dict(zip(each.names, each.counts, strict=True)) for each in ranks]
    names = tuple(name for name in counts[0] if len({each.get(name) for each in counts}) == 1)
    total = sum((Counter(each) for each in counts), Counter[str]())
    n_common = sum(counts[0][name] for name in names)
    return _Common(names, n_common, sum(count for name, count in total.items() if name not in names))


def _keys(collectives: Collectives, names: Sequence[str]) -> Int64:
    """A number for each collective that was kept, the same on every rank; -1 - row where its name is not of these."""
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place.get(name, NONE) for name in collectives.names], dtype=np.int64)[collectives.name_id]
    rows = np.arange(len(code))
    return np.where(code == NONE, -1 - rows, code * _MOST_OCCURRENCES + collectives.occurrence)


def _in_both(some: Int64, others: Int64) -> Int64:
    """The keys that are in both, ascending."""
    both: Int64 = np.intersect1d(some[some >= 0], others[others >= 0], assume_unique=True)
    return both


def _skew(start: Int64, end: Int64, common: _Common) -> Skew:
    """``start``, ``end``: one row a collective, one column a rank, on the common axis."""
    middle = np.median(end, axis=1)
    time = middle - (middle.min() + middle.max()) / 2
    raw = _apart(start)
    own_start, own_end = start.astype(np.float64), end.astype(np.float64)
    clocks = []
    for column in range(end.shape[1]):
        clock = _clock(time, end[:, column] - middle)
        correction = clock.offset_ns + (clock.drift or 0.0) * time
        own_start[:, column] -= correction
        own_end[:, column] -= correction
        clocks.append(clock)
    corrected, ends = _apart(own_start), _apart(own_end)
    # In place from here on: a large fleet has millions of them.
    length, late = own_end, own_start
    length -= own_start
    late -= own_start.min(axis=1, keepdims=True)
    return Skew(
        n_matched=len(start),
        n_common=common.n_common,
        n_unmatched=common.n_unmatched,
        raw_start_p50_ns=nearest_rank(raw, 50),
        raw_start_max_ns=int(raw[-1]),
        start_p50_ns=nearest_rank(corrected, 50),
        start_max_ns=int(corrected[-1]),
        end_p50_ns=nearest_rank(ends, 50),
        end_max_ns=int(ends[-1]),
        late_ns=tuple(late.mean(axis=0).tolist()),
        waited_ns=tuple(np.clip(late.max(axis=1, keepdims=True) - late, 0, length).mean(axis=0).tolist()),
        n_last=tuple(np.bincount(late.argmax(axis=1), minlength=start.shape[1]).tolist()),
        clocks=tuple(clocks),
    )


def _apart(time: Int64 | Floats) -> Int64:
    """How far apart the ranks are in each collective, ascending, to the nanosecond."""
    return np.sort(np.rint(np.ptp(time, axis=1)).astype(np.int64))


def _clock(time: Floats, behind: Floats) -> Clock:
    """The line through one rank's ends; ``time`` counts from the middle of the run."""
    if len(time) < ENOUGH_FOR_DRIFT:
        return Clock(float(np.median(behind)), None)
    order = np.argsort(time, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(len(order), MOST_POINTS)).astype(np.int64)]
    x, y = time[chosen], behind[chosen]
    first, second = np.triu_indices(len(x), k=1)
    apart = x[second] - x[first]
    slope = float(np.median((y[second] - y[first])[apart > 0] / apart[apart > 0])) if (apart > 0).any() else 0.0
    return Clock(float(np.median(behind - slope * time)), slope)
