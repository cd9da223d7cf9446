"""A second, naive implementation of the accounting: one cell a nanosecond, one rule an `if`.

It shares no code with cbprof.analysis, and is slow and obvious where that is fast. Traces are a few dozen
nanoseconds long. The tests of the analysis also share the small traces built here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from cbprof.analysis.accounting.intervals import Intervals
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

LENGTH = 40
"""Every span lies within [0, LENGTH) ns."""

COPIES = (Kind.GPU_H2D, Kind.GPU_D2H, Kind.GPU_COPY, Kind.GPU_SET)
BUSY = (Kind.GPU_COMPUTE, Kind.GPU_COMM, *COPIES)
COUNTED = (Kind.CPU_WORK, Kind.CPU_WAIT)

HOST_LANES = (Lane("engine"), Lane("caller"))
DEVICE_LANES = (Lane("compute", 0), Lane("h2d", 0), Lane("compute", 1))
HOST_SPANS = (
    (Kind.CPU_WORK, "schedule"),
    (Kind.CPU_WORK, "prepare"),
    (Kind.CPU_WORK, "launch"),
    (Kind.CPU_WORK, "compute.launch"),
    (Kind.CPU_WORK, "capture"),
    (Kind.CPU_WORK, "warmup"),
    (Kind.CPU_WAIT, "wait"),
    (Kind.CPU_WAIT, "no_requests"),
    (Kind.CPU_ANNOTATION, "note"),
)
DEVICE_SPANS = (
    (Kind.GPU_COMPUTE, "compute"),
    (Kind.GPU_COMPUTE, "compute"),
    (Kind.GPU_H2D, "h2d"),
    (Kind.GPU_D2H, "d2h"),
    (Kind.GPU_COMM, "all_reduce"),
)


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(start, end) pairs in any order: empty, touching, nested, crossing."""
    pairs = draw(st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=12))
    return [(min(pair), max(pair)) for pair in pairs]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Spans of every kind on two host lanes and two devices, without any order between them."""
    builder = TraceBuilder()
    for lanes, kinds in ((HOST_LANES, HOST_SPANS), (DEVICE_LANES, DEVICE_SPANS)):
        for start, end in draw(spans()):
            kind, name = draw(st.sampled_from(kinds))
            builder.span(
                builder.lane(draw(st.sampled_from(lanes))),
                kind,
                name,
                start,
                end - start,
                step=draw(st.integers(-1, 3)),
                link=draw(st.sampled_from((-1, -1, 0, 1, 2))),
            )
    return builder.build(Meta.parse({"complete": True, "evidence": "emulated"}))


def cells(pairs: Iterable[tuple[int, int]]) -> set[int]:
    """The nanoseconds that spans cover."""
    return {t for start, end in pairs for t in range(start, end)}


def runs(covered: set[int]) -> list[tuple[int, int]]:
    """The maximal runs of consecutive nanoseconds."""
    starts = sorted(t for t in covered if t - 1 not in covered)
    ends = sorted(t + 1 for t in covered if t + 1 not in covered)
    return list(zip(starts, ends, strict=True))


def columns(pairs: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def pairs_of(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


Row = tuple[Lane, Kind, str, int, int, int]
ENGINE, CALLER = HOST_LANES
COMPUTE, H2D, OTHER_COMPUTE = DEVICE_LANES


def trace_of(*rows: Row, **meta: object) -> Trace:
    """A trace from rows (lane, kind, name, start, end, step)."""
    builder = TraceBuilder()
    for lane, kind, name, start, end, step in rows:
        builder.span(builder.lane(lane), kind, name, start, end - start, step=step)
    return builder.build(Meta.parse({"evidence": "cuda_events", **meta}))


STEP: tuple[Row, ...] = (
    (ENGINE, Kind.CPU_WORK, "iteration", 0, 100, 0),
    (ENGINE, Kind.CPU_WORK, "schedule", 10, 30, 0),
    (ENGINE, Kind.CPU_WORK, "launch", 30, 40, 0),
    (ENGINE, Kind.CPU_WAIT, "wait", 50, 90, 0),
    (COMPUTE, Kind.GPU_COMPUTE, "compute", 35, 85, 0),
)
"""One synchronous step, with phases nested in an iteration, and a wait inside work."""


class Oracle:
    """The accounting of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.rows = range(len(trace))
        self.start = [int(t) for t in trace.start_ns]
        self.end = [int(t) for t in trace.end_ns]
        self.name = [trace.name_of(row) for row in self.rows]
        self.kind = [Kind(kind) for kind in trace.kind]
        self.step = [int(step) for step in trace.step]
        self.lane = [int(lane) for lane in trace.lane_id]
        self.device = [trace.lanes[lane].device for lane in self.lane]
        self.inner = {(lane, t): self._innermost(lane, t) for lane in self.host_lanes() for t in range(LENGTH)}

    def covers(self, row: int, t: int) -> bool:
        return self.start[row] <= t < self.end[row]

    def gpu(self, device: int, kinds: tuple[Kind, ...] = (Kind.GPU_COMPUTE,)) -> set[int]:
        rows = [row for row in self.rows if self.kind[row] in kinds and self.device[row] == device]
        return cells((self.start[row], self.end[row]) for row in rows)

    def innermost(self, lane: int, t: int) -> int | None:
        return self.inner.get((lane, t))

    def _innermost(self, lane: int, t: int) -> int | None:
        """The span of a host lane that started last, among those the shortest, among those the last in the trace."""
        rows = [r for r in self.rows if self.lane[r] == lane and self.kind[r] in COUNTED and self.covers(r, t)]
        return max(rows, key=lambda r: (self.start[r], -self.end[r], r), default=None)

    def launch(self, row: int) -> int | None:
        """The host span that launched a device span."""
        host = [r for r in self.rows if not self.kind[r].on_device]
        link, step = self.trace.link[row], self.step[row]
        linked = [r for r in host if link != -1 and self.trace.link[r] == link]
        of_step = [r for r in host if step != -1 and self.step[r] == step]
        named = [r for r in of_step if self.name[r] == f"{self.name[row]}.launch"]
        plain = [r for r in of_step if self.name[r] == "launch" and self.kind[row] == Kind.GPU_COMPUTE]
        for candidates in (linked, named, plain):
            if candidates:
                return candidates[-1]
        return None

    def launches_on(self, device: int | None) -> list[int]:
        """The launching host span of each span on a device (any, if None) that has one."""
        rows = [r for r in self.rows if self.kind[r].on_device and device in {None, self.device[r]}]
        return [launch for launch in map(self.launch, rows) if launch is not None]

    def host_lanes(self) -> set[int]:
        return {self.lane[r] for r in self.rows if self.kind[r] in COUNTED and self.end[r] > self.start[r]}

    def driving_lanes(self, device: int | None) -> set[int]:
        return {self.lane[launch] for launch in self.launches_on(device)} or self.host_lanes()

    def main_lane(self, device: int) -> int:
        """The lane that launches most on a device, or else the one with most host time; the first among equals."""
        launches = Counter(self.lane[launch] for launch in self.launches_on(device))
        if not launches:
            launches = Counter(
                lane for lane in self.host_lanes() for t in range(LENGTH) if self.innermost(lane, t) is not None
            )
        return min(launches, key=lambda lane: (-launches[lane], lane), default=-1)

    def cpu(self, device: int | None) -> set[int]:
        """When any driving lane works."""
        busy = set()
        for lane in self.driving_lanes(device):
            for t in range(LENGTH):
                row = self.innermost(lane, t)
                if row is not None and self.kind[row] == Kind.CPU_WORK:
                    busy.add(t)
        return busy

    def gaps(self, device: int, start: int, end: int, kinds: tuple[Kind, ...]) -> list[tuple[int, int]]:
        return runs(set(range(start, end)) - self.gpu(device, kinds))

    def ends_with(self, device: int, t: int, kinds: tuple[Kind, ...]) -> int | None:
        rows = [r for r in self.rows if self.kind[r] in kinds and self.device[r] == device]
        rows = [r for r in rows if self.start[r] == t and self.end[r] > t]
        return min(rows, key=lambda r: (self.lane[r], r), default=None)

    def cause(self, device: int, t: int, k: int | None) -> str:
        """Who is to blame for instant ``t`` of a gap that span ``k`` ends."""
        launch = None if k is None else self.launch(k)
        here = [r for r in self.rows if self.covers(r, t)]
        for once in ("capture", "warmup"):
            if any(self.name[r] == once for r in here):
                return once
        copies = [r for r in here if self.kind[r] in COPIES and self.device[r] == device]
        if launch is None or t < self.start[launch]:
            inner = self.innermost(self.main_lane(device) if launch is None else self.lane[launch], t)
            if inner is not None and self.kind[inner] == Kind.CPU_WORK:
                cause = f"phase {self.name[inner]}"
            elif copies:
                cause = "transfer"
            elif inner is None:
                cause = "unattributed"
            else:
                cause = "starved" if self.name[inner] == "no_requests" else "sync latency"
        elif t < self.end[launch]:
            cause = "launch"
        else:
            needed = [r for r in copies if self.kind[r] != Kind.GPU_D2H and self.step[r] == self.step[k] != -1]
            cause = "transfer" if needed else "queued"
        return cause

    def blame(self, device: int, gap: tuple[int, int], kinds: tuple[Kind, ...]) -> Counter[str]:
        k = self.ends_with(device, gap[1], kinds)
        return Counter(self.cause(device, t, k) for t in range(*gap))

    def phases(self, start: int, end: int, kinds: tuple[Kind, ...]) -> dict[tuple[str, bool], tuple[int, int]]:
        """(name, waiting) -> exclusive time, and what of it no device that the lane drives covered."""
        found: dict[tuple[str, bool], tuple[int, int]] = {}
        for lane in self.driving_lanes(None):
            driven = {
                self.device[r]
                for r in self.rows
                if self.kind[r].on_device and (launch := self.launch(r)) is not None and self.lane[launch] == lane
            } or set(self.device)
            gpu = set().union(*(self.gpu(device, kinds) for device in driven if device != -1))
            for t in range(start, end):
                row = self.innermost(lane, t)
                if row is not None:
                    key = (self.name[row], self.kind[row] == Kind.CPU_WAIT)
                    total, exposed = found.get(key, (0, 0))
                    found[key] = (total + 1, exposed + (t not in gpu))
        return found
