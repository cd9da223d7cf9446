"""Several ranks of one job side by side: who idles, who is late, and how far apart their collectives are.

A collective ends everywhere at about the same time, since it waits for the last rank to arrive::

    rank 0   | compute |======= all-reduce =======|
    rank 1   |     compute     |=== all-reduce ===|
                       |<----->| start skew: rank 1 is late, and rank 0 waits for it on the device

Times of different files compare only on a common axis: ``base_time_ns`` is added to each. Where a file does not say
what its time 0 was, nothing is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.summary import Summary
from cbprof.trace import NONE, Int64, Kind, Trace

_SINCE_1970_NS = 10**17  # times beyond (1973) are those of a clock that counts from 1970, whose time 0 is known


@dataclass(frozen=True, slots=True, eq=False)
class Collectives:
    """The collectives of one device in the order of their starts, on the file's axis."""

    names: tuple[str, ...]
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """One device of one file. ``rank`` is None where the file does not say which it is.

    ``base_time_ns`` is the file's time 0 since 1970, or None. Times are in nanoseconds on the file's own axis.
    """

    file: str
    rank: int | None
    device: int
    base_time_ns: int | None
    start_ns: int
    end_ns: int
    idle_ns: int | None
    idle_pct: float | None
    busy_ns: int
    kernel_busy_ns: int
    comm_busy_ns: int
    exposed_comm_ns: int
    reliable: bool
    collectives: Collectives

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def label(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else f"{self.file}, GPU {self.device}"


class Skew(NamedTuple):
    """How far apart the ranks are in the collectives that all of them ran. Times in nanoseconds.

    ``n_unmatched``: collectives that not every rank has as many of, and which are left out. ``late_ns``: for each rank
    how much later than the first it starts them, on average. ``waited_ns``: how long it sat in them until the last
    rank had come, in all.
    """

    n_matched: int
    n_unmatched: int
    start_p50_ns: int
    start_max_ns: int
    end_p50_ns: int
    end_max_ns: int
    late_ns: tuple[float, ...]
    waited_ns: tuple[int, ...]


class Slowest(NamedTuple):
    """The rank that the others wait for (a row of ``ranks``), and how that shows."""

    row: int
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class RanksReport:
    """All ranks of a job, in order. ``one_axis``: their times compare. ``skew`` is None where they do not, or where no
    collective is common to all.
    """

    ranks: tuple[Rank, ...]
    one_axis: bool
    skew: Skew | None
    slowest: Slowest | None
    warnings: tuple[str, ...]

    @property
    def idle_pcts(self) -> list[float]:
        return [rank.idle_pct for rank in self.ranks if rank.idle_pct is not None]

    @property
    def origin_ns(self) -> int:
        """The earliest start of a window on the common axis."""
        return min(((rank.base_time_ns or 0) + rank.start_ns for rank in self.ranks), default=0)


def ranks_of(trace: Trace, summary: Summary, file: str) -> tuple[Rank, ...]:
    """A row for each device of a trace. ``summary`` is the trace's own."""
    return tuple(_rank(trace, device, summary, file) for device in summary.devices)


def _rank(trace: Trace, device: DeviceSummary, summary: Summary, file: str) -> Rank:
    rows = np.flatnonzero(trace.mask(kinds=(Kind.GPU_COMM,), device=device.device))
    told = {lane.rank for lane in trace.lanes if lane.device == device.device} - {NONE}
    base = trace.meta.get("base_time_ns")
    if not isinstance(base, int):
        base = 0 if device.window.start_ns > _SINCE_1970_NS else None
    return Rank(
        file=file,
        rank=max(told) if told else None,
        device=device.device,
        base_time_ns=base,
        start_ns=device.window.start_ns,
        end_ns=device.window.end_ns,
        idle_ns=device.idle_ns,
        idle_pct=device.idle_pct,
        busy_ns=device.busy_ns,
        kernel_busy_ns=device.kernel_busy_ns,
        comm_busy_ns=device.comm_busy_ns,
        exposed_comm_ns=device.exposed_comm_ns,
        reliable=summary.reliable,
        collectives=Collectives(
            tuple(trace.name_of(row) for row in rows.tolist()), trace.start_ns[rows], trace.end_ns[rows]
        ),
    )


def compare_ranks(ranks: Sequence[Rank]) -> RanksReport:
    """Put the ranks in order and on one axis, and see how far apart they are."""
    ranks = sorted(ranks, key=lambda each: (each.rank is None, each.rank or 0, each.file, each.device))
    warnings = []
    numbers = [each.rank for each in ranks if each.rank is not None]
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        warnings.append(f"more than one device or file says that it is rank {twice[0]}")
    if unsure := [each.label for each in ranks if not each.reliable]:
        warnings.append(f"the figures of {unsure[0]} are not to be trusted; see `cbprof doctor` on its file")
    one_axis = len({each.file for each in ranks}) == 1 or all(each.base_time_ns is not None for each in ranks)
    if not one_axis:
        lost = next(each for each in ranks if each.base_time_ns is None)
        warnings.append(f"{lost.file} does not say when its time 0 was: the ranks cannot be laid on one axis")
    skew = _skew(ranks) if one_axis and len(ranks) > 1 else None
    if skew and skew.n_unmatched:
        warnings.append(f"{skew.n_unmatched} collectives are not on every rank, and are left out of the skew")
    return RanksReport(tuple(ranks), one_axis, skew, _slowest(ranks, skew), tuple(warnings))


def _skew(ranks: Sequence[Rank]) -> Skew | None:
    """The k-th collective of a name on one rank is the k-th of that name on every other."""
    of_name: dict[str, list[list[int]]] = defaultdict(lambda: [[] for _ in ranks])
    for index, rank in enumerate(ranks):
        for row, name in enumerate(rank.collectives.names):
            of_name[name][index].append(row)
    matched = [rows for rows in of_name.values() if len({len(each) for each in rows}) == 1]
    # One row a collective, one column a rank.
    table = np.array([each for rows in matched for each in zip(*rows, strict=True)], dtype=np.int64)
    table = table.reshape(-1, len(ranks))
    total = sum(len(each) for rows in of_name.values() for each in rows)
    n_unmatched = total - table.size
    if not len(table):
        return None
    start = np.column_stack([_aligned(rank, rank.collectives.start_ns)[table[:, i]] for i, rank in enumerate(ranks)])
    end = np.column_stack([_aligned(rank, rank.collectives.end_ns)[table[:, i]] for i, rank in enumerate(ranks)])
    starts, ends = np.sort(np.ptp(start, axis=1)), np.sort(np.ptp(end, axis=1))
    waited = np.clip(start.max(axis=1, keepdims=True) - start, 0, end - start)
    return Skew(
        n_matched=len(table),
        n_unmatched=n_unmatched,
        start_p50_ns=nearest_rank(starts, 50),
        start_max_ns=int(starts[-1]),
        end_p50_ns=nearest_rank(ends, 50),
        end_max_ns=int(ends[-1]),
        late_ns=tuple((start - start.min(axis=1, keepdims=True)).mean(axis=0).tolist()),
        waited_ns=tuple(waited.sum(axis=0).tolist()),
    )


def _aligned(rank: Rank, time_ns: Int64) -> Int64:
    return time_ns + (rank.base_time_ns or 0)


def _slowest(ranks: Sequence[Rank], skew: Skew | None) -> Slowest | None:
    """The last to arrive; where that cannot be seen, the one that waits least in collectives, or runs longest."""
    if len(ranks) < 2:
        return None
    if skew and max(skew.late_ns) > 0:
        return Slowest(skew.late_ns.index(max(skew.late_ns)), "it starts its collectives last")
    comm = [rank.comm_busy_ns for rank in ranks]
    if max(comm) > min(comm):
        return Slowest(comm.index(min(comm)), "it spends least time in collectives, where the others wait")
    length = [rank.length_ns for rank in ranks]
    if max(length) > min(length):
        return Slowest(length.index(max(length)), "its window is the longest")
    return None
