"""What is kept of one rank: a few kilobytes, whatever the size of its trace, enough to compare it with all others.

The window of a rank is cut into parts that sum to it::

    window = GPU work + collectives + idle time by cause (schedule, launch, sync latency, ...)
             `-------- own time -----'   without the collectives, in which a rank mostly waits for others
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbprof.analysis.accounting.idle import idle_pct
from cbprof.analysis.accounting.intervals import Intervals, union, union_of
from cbprof.analysis.accounting.states import ACTIVITY_KINDS, Activity
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.ranks.waits import StepProfile, step_profile
from cbprof.analysis.summary import Summary
from cbprof.trace import NONE, Int32, Int64, Kind, Trace

MOST_KEPT = 128
MOST_NAMES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Collectives:
    """One row a collective that was kept. Times in nanoseconds on the file's axis.

    ``names[name_id]``: its name; ``occurrence``: how many of that name the device ran before it. ``counts``: how many
    of each name there were in all. Every 2^n-th of a name is kept, so that of two ranks the same ones are.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    name_id: Int32
    occurrence: Int32
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.name_id)


def collectives_of(trace: Trace, device: int) -> Collectives:
    """Those of one device: at most about :data:`MOST_KEPT`, of its :data:`MOST_NAMES` most frequent names."""
    rows = np.flatnonzero(trace.mask(kinds=(Kind.GPU_COMM,), device=device))
    ids, count = np.unique(trace.name_id[rows], return_counts=True)
    order = np.argsort(-count, kind="stable")[:MOST_NAMES]
    room = max(1, MOST_KEPT // max(1, len(order)))
    kept: list[Int64] = []
    occurrence: list[Int32] = []
    for each in ids[order].tolist():
        mine = rows[trace.name_id[rows] == each]
        every = 1 << max(0, (len(mine) - 1) // room).bit_length()
        kept.append(mine[::every])
        occurrence.append(np.arange(0, len(mine), every, dtype=np.int32))
    chosen = np.concatenate([np.zeros(0, dtype=np.int64), *kept])
    return Collectives(
        names=tuple(trace.names[each] for each in ids[order].tolist()),
        counts=tuple(count[order].tolist()),
        name_id=np.repeat(np.arange(len(order)), [len(each) for each in kept]).astype(np.int32),
        occurrence=np.concatenate([np.zeros(0, dtype=np.int32), *occurrence]),
        start_ns=trace.start_ns[chosen],
        end_ns=trace.end_of(chosen),
    )


BINS = 120
"""Of a rank's window in the heat map."""

MOST_CAUSES = 64
OTHERS = "(others)"
"""A profiler names thousands of host calls: what of the idle time is beyond the largest causes."""

_MOST = 1 << 62  # of any time in a trace
_SINCE_1970_NS = 10**17  # times beyond (1973) are those of a clock that counts from 1970, whose time 0 is known


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """One device of one file. Times in nanoseconds, on the file's own axis; ``base_time_ns`` is its time 0 since 1970.

    ``rank`` and ``base_time_ns`` are None where the file does not say. ``idle_ns`` is None where nothing of the
    summary's activity ran, and the parts of the window are 0 then. ``gpu_ns``: work of the device, without collectives
    that nothing else covered (``comm_ns``). ``causes``: idle time by what the device waited for; its values sum to
    ``idle_ns``. ``idle_bins``: idle time in equal parts of the window. ``busy_ns``, ``kernel_busy_ns``,
    ``comm_busy_ns`` and ``exposed_comm_ns`` are those of the device's summary, whatever the activity. ``recording``:
    the profiler's id of it, which several files may share.
    """

    rank: int | None
    device: int
    base_time_ns: int | None
    start_ns: int
    end_ns: int
    evidence: str
    mode: str | None
    complete: bool
    reliable: bool
    idle_ns: int | None
    gpu_ns: int
    comm_ns: int
    busy_ns: int
    kernel_busy_ns: int
    comm_busy_ns: int
    exposed_comm_ns: int
    causes: Mapping[str, int]
    longest_gap_ns: int
    n_gaps: int
    n_steps: int
    idle_bins: Int64
    steps: StepProfile
    collectives: Collectives
    recording: str | None = None

    def check(self) -> None:
        """Raise ValueError where these cannot be the figures of a rank: columns of other lengths, sums that differ."""
        collectives, idle_ns = self.collectives, self.idle_ns or 0
        columns = (collectives.name_id, collectives.occurrence, collectives.start_ns, collectives.end_ns)
        numbers = np.array([self.device, self.start_ns, self.end_ns, self.gpu_ns, self.comm_ns, idle_ns, self.n_steps])
        sound = (
            len({len(column) for column in columns}) == 1
            and len(collectives.names) == len(collectives.counts)
            and np.isin(collectives.name_id, range(len(collectives.names))).all()
            and len(self.idle_bins) == BINS
            and (self.idle_ns is None or idle_ns == sum(self.causes.values()) == sum(self.idle_bins.tolist()))
            and (self.idle_ns is None or self.gpu_ns + self.comm_ns + idle_ns == self.window_ns)
            and 0 <= self.steps.shift < 63
        )
        if not sound or (np.abs(numbers) >= _MOST).any():
            raise ValueError("no figures of a rank")

    @property
    def window_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def idle_pct(self) -> float | None:
        return idle_pct(self.idle_ns, self.window_ns)

    @property
    def own_ns(self) -> int:
        """The window without the collectives that nothing covered."""
        return self.window_ns - self.comm_ns

    def to_json(self) -> dict[str, Any]:
        """Times are nanoseconds; what is unknown is None."""
        known = self.idle_ns is not None
        return {
            "rank": self.rank,
            "device": self.device,
            "evidence": self.evidence,
            "mode": self.mode,
            "complete": self.complete,
            "reliable": self.reliable,
            "window_ns": [self.start_ns, self.end_ns],
            "base_time_ns": self.base_time_ns,
            "idle_ns": self.idle_ns,
            "idle_pct": self.idle_pct,
            "gpu_ns": self.gpu_ns if known else None,
            "comm_ns": self.comm_ns if known else None,
            "busy_ns": self.busy_ns,
            "kernel_busy_ns": self.kernel_busy_ns,
            "comm_busy_ns": self.comm_busy_ns,
            "exposed_comm_ns": self.exposed_comm_ns,
            "blame_ns": dict(self.causes) if known else None,
            "n_gaps": self.n_gaps if known else None,
            "longest_gap_ns": self.longest_gap_ns if known else None,
            "n_steps": self.n_steps,
        }


def ranks_of(trace: Trace, summary: Summary) -> tuple[Rank, ...]:
    """What to keep of each device of a trace. ``summary`` is the trace's own."""
    return tuple(_rank(trace, device, summary) for device in summary.devices)


def _rank(trace: Trace, device: DeviceSummary, summary: Summary) -> Rank:
    window, gaps = device.window, device.gaps
    known = device.idle_ns is not None
    exposed = _exposed_collectives(trace, device, summary.activity)
    comm_ns = exposed.total_ns if known else 0
    edges = bin_edges(window.start_ns, window.end_ns)
    return Rank(
        rank=_number(trace, device.device),
        device=device.device,
        base_time_ns=_base(trace, window.start_ns),
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        evidence=summary.evidence,
        mode=summary.mode,
        complete=summary.complete,
        reliable=summary.reliable,
        idle_ns=device.idle_ns,
        gpu_ns=window.length_ns - gaps.total_ns - comm_ns if known else 0,
        comm_ns=comm_ns,
        busy_ns=device.busy_ns,
        kernel_busy_ns=device.kernel_busy_ns,
        comm_busy_ns=device.comm_busy_ns,
        exposed_comm_ns=device.exposed_comm_ns,
        causes=_causes(device) if known else {},
        longest_gap_ns=gaps.longest_ns if known else 0,
        n_gaps=len(gaps) if known else 0,
        n_steps=len(device.steps),
        idle_bins=Intervals(gaps.start, gaps.end).within(edges[:-1], edges[1:]),
        steps=step_profile(device.steps, exposed),
        collectives=collectives_of(trace, device.device),
        recording=_recording(trace),
    )


def bin_edges(start: int, end: int) -> Int64:
    """The edges of the bins of a window, to the nanosecond, shape (BINS + 1,)."""
    length = end - start
    return np.array([start + length * each // BINS for each in range(BINS + 1)], dtype=np.int64)


def _exposed_collectives(trace: Trace, device: DeviceSummary, activity: Activity) -> Intervals:
    """When a collective was all that the device ran; nothing where collectives count as idle time anyway."""
    if Kind.GPU_COMM not in ACTIVITY_KINDS[activity]:
        return union(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    others = tuple(kind for kind in ACTIVITY_KINDS[activity] if kind != Kind.GPU_COMM)
    comm, other = (
        np.flatnonzero(trace.mask(kinds=kinds, device=device.device)) for kinds in ((Kind.GPU_COMM,), others)
    )
    ran = union_of(trace, comm).clip(device.window.start_ns, device.window.end_ns)
    return ran.subtract(union_of(trace, other))


def _causes(device: DeviceSummary) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in device.causes.totals:
        label = part.label if len(found) < MOST_CAUSES or part.label in found else OTHERS
        found[label] = found.get(label, 0) + part.ns
    return found


def _number(trace: Trace, device: int) -> int | None:
    told = {lane.rank for lane in trace.lanes if lane.device == device} - {NONE}
    return max(told) if told else None


def _recording(trace: Trace) -> str | None:
    told = trace.meta.extra.get("trace_id")
    return told if isinstance(told, str) else None


def _base(trace: Trace, start_ns: int) -> int | None:
    if trace.meta.base_time_ns is not None:
        return trace.meta.base_time_ns
    return 0 if start_ns > _SINCE_1970_NS else None
