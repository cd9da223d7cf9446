"""What a trace is: columns of spans, on lanes, with the facts of their steps and requests.

A :class:`Trace` is frozen and its numpy columns are read-only. All times are integer nanoseconds from the run's
origin. ``-1`` means "none" in every integer column that can be empty.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cbprof.meta import NOTHING_SAID, Evidence, Meta
from cbprof.riders import NO_RIDERS, Riders, RiderTable, rider_table

if TYPE_CHECKING:
    import pandas as pd

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

NONE = -1

MANY_NAMES = 10_000
"""From as many names on, it pays to find out which of them spans of some kinds have."""

MOST_COMPARED = 8
"""With more values than this a table look-up is faster than comparing a column with each."""


class Kind(IntEnum):
    """What a span is evidence of; the ``cat`` of trace.json."""

    CPU_WORK = 0
    CPU_WAIT = 1
    CPU_ANNOTATION = 2
    CPU_OVERHEAD = 3
    GPU_COMPUTE = 4
    GPU_H2D = 5
    GPU_D2H = 6
    GPU_COPY = 7
    GPU_SET = 8
    GPU_COMM = 9

    @property
    def category(self) -> str:
        """The name in a file, such as ``cpu.work``."""
        return self.name.lower().replace("_", ".", 1)

    @property
    def on_device(self) -> bool:
        return self >= Kind.GPU_COMPUTE


CATEGORIES: Mapping[str, Kind] = MappingProxyType({kind.category: kind for kind in Kind})
CALL_KINDS = (Kind.CPU_WORK, Kind.CPU_WAIT)
COPY_KINDS = (Kind.GPU_H2D, Kind.GPU_D2H, Kind.GPU_COPY, Kind.GPU_SET)

GRAPH_REPLAY = "CUDA graph"
"""Begins the name of a compute span that is a whole graph replay: its kernels were not recorded one by one."""

BatchPhase = Literal["prefill", "decode", "mixed"]
BATCH_PHASES: tuple[BatchPhase, ...] = ("prefill", "decode", "mixed")


class RequestEvent(IntEnum):
    """A moment in the life of a request."""

    ARRIVE = 0
    FIRST = 1
    TOKEN = 2
    FINISH = 3


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the timeline: a host thread (``device`` -1) or a stream of a device."""

    name: str
    device: int = NONE
    rank: int = NONE

    @property
    def on_device(self) -> bool:
        return self.device != NONE


@dataclass(frozen=True, slots=True)
class StepTable:
    """The facts of each batch, one row a step, sorted by ``step``. ``phase`` indexes :data:`BATCH_PHASES`."""

    step: Int32
    tokens: Int64
    requests: Int64
    context: Int64
    phase: Int8

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class RequestTable:
    """What happened to each request and when, sorted by ``time_ns``. ``event`` holds :class:`RequestEvent` values."""

    time_ns: Int64
    request: Int64
    event: Int8

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True)
class Trace:
    """Spans in columns, sorted by (start, longest first), so that a parent precedes what it encloses.

    ``step`` is the batch that a span works on, never the loop iteration. ``link`` joins a launch on the host to its
    span on the device. ``extra`` keeps what a file said about a span beyond the columns (index of span -> args).
    """

    start_ns: Int64
    dur_ns: Int64
    link: Int64
    name_id: Int32
    step: Int32
    lane_id: Int32
    kind: Int8
    slot: Int8
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    steps: StepTable
    requests: RequestTable
    meta: Meta
    extra: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    riders: RiderTable = NO_RIDERS

    def __post_init__(self) -> None:
        columns = (self.start_ns, self.dur_ns, self.link, self.name_id, self.step, self.lane_id, self.kind, self.slot)
        if len({len(column) for column in columns}) != 1:
            raise ValueError("the columns of a trace must have one length")
        for column in columns:
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64:
        return self.start_ns + self.dur_ns

    def end_of(self, rows: Int64 | npt.NDArray[np.bool_]) -> Int64:
        """The ends of some spans, by their rows or a mask."""
        ends: Int64 = self.start_ns[rows] + self.dur_ns[rows]
        return ends

    @property
    def on_device(self) -> npt.NDArray[np.bool_]:
        """Mask of the spans that ran on a device."""
        return self.kind >= Kind.GPU_COMPUTE

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have a span, in order."""
        device_of_lane = np.array([lane.device for lane in self.lanes], dtype=np.int64)
        found = np.unique(device_of_lane[np.flatnonzero(np.bincount(self.lane_id[self.on_device]))])
        return tuple(int(device) for device in found if device != NONE)

    @property
    def mode(self) -> str | None:
        """``sync``, ``async`` or None where the file does not say."""
        return self.meta.mode

    @property
    def evidence(self) -> Evidence:
        """How the activity of the device was measured."""
        return self.meta.evidence

    @property
    def is_profile(self) -> bool:
        """Whether it is a profiler's record of calls, kernels and copies, rather than an engine's own spans."""
        return self.evidence == "cupti"

    @property
    def complete(self) -> bool:
        """False where the run was cut short or the file was truncated."""
        return self.meta.complete

    def ids_of(self, *names: str) -> list[int]:
        """The ids of these names, ascending; of a name that the trace does not have, none."""
        wanted = frozenset(names)
        if not wanted:
            return []
        return [index for index, name in enumerate(self.names) if name in wanted]

    def ids_where(self, holds: Callable[[str], object], kinds: Sequence[Kind] = ()) -> list[int]:
        """The ids of the names for which ``holds`` is true, ascending.

        ``kinds``: names that no span of these kinds has may be left out. Of hundreds of thousands of names, nearly all
        are those of annotations.
        """
        if not kinds or len(self.names) < MANY_NAMES:
            return [index for index, held in enumerate(map(holds, self.names)) if held]
        met = np.zeros(len(self.names), dtype=bool)
        met[self.name_id[self.mask(kinds=kinds)]] = True
        return [index for index in np.flatnonzero(met).tolist() if holds(self.names[index])]

    def name_of(self, index: int) -> str:
        return str(self.names[self.name_id[index]])

    def mask(self, *, kinds: Sequence[Kind] = (), device: int | None = None) -> npt.NDArray[np.bool_]:
        """Mask of the spans of these kinds (all, if none is given) on this device (any, if None)."""
        chosen = one_of(self.kind, kinds) if kinds else np.ones(len(self), dtype=bool)
        if device is not None:
            chosen &= one_of(self.lane_id, [index for index, lane in enumerate(self.lanes) if lane.device == device])
        return chosen

    def to_pandas(self) -> pd.DataFrame:
        """One row a span, with names spelled out; for notebooks."""
        import pandas as pd

        lane_names = [lane.name for lane in self.lanes]
        return pd.DataFrame(
            {
                "start_ns": self.start_ns,
                "dur_ns": self.dur_ns,
                "name": pd.Categorical.from_codes(self.name_id, pd.Index(self.names)),
                "kind": pd.Categorical.from_codes(self.kind, pd.Index([kind.category for kind in Kind])),
                "step": self.step,
                "slot": self.slot,
                "link": self.link,
                "lane": [lane_names[lane] for lane in self.lane_id],
                "device": [self.lanes[lane].device for lane in self.lane_id],
            }
        )


def one_of(column: Int8 | Int32 | Int64, values: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Mask of the elements that are one of a few values: as np.isin, but at the speed of a comparison each."""
    if len(values) > MOST_COMPARED:
        return np.isin(column, np.array(values, dtype=column.dtype))
    if len(values) > 2 and max(values) - min(values) < len(set(values)):  # the kinds of a device follow each other
        return (column >= min(values)) & (column <= max(values))
    mask = np.zeros(len(column), dtype=bool)
    for value in values:
        mask |= column == value
    return mask


Column = TypeVar("Column", Int64, Int32, Int8)


def take_or(column: Column, rows: Int64 | Int32, default: int) -> Column:
    """The elements of these rows; ``default`` where the row is -1."""
    if not len(column):
        return np.full(len(rows), default, dtype=column.dtype)
    taken = column[rows]
    taken[rows == NONE] = default
    return taken


class SpanSink(Protocol):
    """Where spans go: a :class:`TraceBuilder` in memory, or a writer of a file."""

    def lane(self, lane: Lane) -> int:
        """The id of a lane, declared on first use."""

    def span(
        self,
        lane_id: int,
        kind: Kind,
        name: str,
        start_ns: int,
        dur_ns: int,
        *,
        step: int = NONE,
        slot: int = NONE,
        link: int = NONE,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one span. ``extra`` carries whatever else is known about it."""

    def batch(
        self, step: int, *, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        """Add the facts of one step; a file shows them on the step's ``schedule`` span."""

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        """Add a moment in the life of a request."""

    def tokens(self, requests: Sequence[int], time_ns: int) -> None:
        """Each of these requests got a token, not its first."""


class TraceBuilder:
    """Collects spans in any order and builds the sorted, frozen :class:`Trace`."""

    def __init__(self) -> None:
        self._start, self._dur, self._link = array("q"), array("q"), array("q")
        self._name, self._step, self._lane = array("i"), array("i"), array("i")
        self._kind, self._slot = array("b"), array("b")
        self._names: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._extra: dict[int, Mapping[str, Any]] = {}
        self._batches: dict[int, tuple[int, int, int, int]] = {}
        self._riders: dict[int, Riders] = {}
        self._moments = array("q"), array("q"), array("b")  # the columns of the request table

    def __len__(self) -> int:
        return len(self._start)

    def lane(self, lane: Lane) -> int:
        return self._lanes.setdefault(lane, len(self._lanes))

    def span(
        self,
        lane_id: int,
        kind: Kind,
        name: str,
        start_ns: int,
        dur_ns: int,
        *,
        step: int = NONE,
        slot: int = NONE,
        link: int = NONE,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if dur_ns < 0:
            raise ValueError(f"span {name!r} at {start_ns} ns has a negative duration: {dur_ns} ns")
        if extra:
            self._extra[len(self._start)] = extra
        self._start.append(start_ns)
        self._dur.append(dur_ns)
        self._link.append(link)
        self._name.append(self._names.setdefault(name, len(self._names)))
        self._step.append(step)
        self._lane.append(lane_id)
        self._kind.append(kind)
        self._slot.append(slot)

    def batch(
        self, step: int, *, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        self._batches[step] = (tokens, requests, context, BATCH_PHASES.index(phase))
        if riders is not None:
            self._riders[step] = riders

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        self._add_moments(event, (request,), time_ns)

    def tokens(self, requests: Sequence[int], time_ns: int) -> None:
        self._add_moments(RequestEvent.TOKEN, requests, time_ns)

    def _add_moments(self, event: RequestEvent, requests: Sequence[int], time_ns: int) -> None:
        time, request, events = self._moments
        request.extend(requests)
        time.extend((time_ns,) * len(requests))
        events.extend((event,) * len(requests))

    def build(self, meta: Meta = NOTHING_SAID) -> Trace:
        """The trace so far, with its facts. The builder can go on."""
        start = np.array(self._start, dtype=np.int64)
        dur = np.array(self._dur, dtype=np.int64)
        order = np.lexsort((-dur, start))
        position = {int(old): new for new, old in enumerate(order)} if self._extra else {}
        steps = np.array([(step, *facts) for step, facts in sorted(self._batches.items())], dtype=np.int64)
        steps = steps.reshape(-1, 5)
        time, request, event = (np.array(column, dtype=column.typecode) for column in self._moments)
        moments = np.lexsort((event, request, time))
        return Trace(
            start_ns=start[order],
            dur_ns=dur[order],
            link=np.array(self._link, dtype=np.int64)[order],
            name_id=np.array(self._name, dtype=np.int32)[order],
            step=np.array(self._step, dtype=np.int32)[order],
            lane_id=np.array(self._lane, dtype=np.int32)[order],
            kind=np.array(self._kind, dtype=np.int8)[order],
            slot=np.array(self._slot, dtype=np.int8)[order],
            names=tuple(self._names),
            lanes=tuple(self._lanes),
            steps=StepTable(
                step=steps[:, 0].astype(np.int32),
                tokens=steps[:, 1],
                requests=steps[:, 2],
                context=steps[:, 3],
                phase=steps[:, 4].astype(np.int8),
            ),
            requests=RequestTable(time_ns=time[moments], request=request[moments], event=event[moments]),
            meta=meta,
            extra={position[index]: args for index, args in self._extra.items()},
            riders=rider_table(self._riders),
        )
