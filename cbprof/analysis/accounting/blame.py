"""Who is to blame for a gap: every nanosecond of it gets exactly one cause.

K is the device span that ends the gap, L the host span that launched K::

    device  | compute N |  . . . . . . . . gap . . . . . . . . | compute N+1 = K
    host    | wait  | update | schedule | prepare | L: launch  |
                    |        before L             |  inside L  | after L

Before L, what the host did at each instant is to blame; inside L, the launch; after L the work was queued, and waited
for a copy or for its turn, whatever the host did meanwhile. Captures and warm-ups come first wherever they lie, since
they happen once. The causes of a gap sum to its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.host import HostTimeline, frames, main_lane
from cbprof.analysis.accounting.intervals import EMPTY, Intervals, overlaps, sum_by, union, union_of
from cbprof.analysis.accounting.window import ONE_OFF, spans_named
from cbprof.names import short
from cbprof.trace import COPY_KINDS, NONE, Int8, Int32, Int64, Kind, Trace, one_of, take_or

NO_REQUESTS = "no_requests"
"""The name of a wait in which the engine has nothing to do."""


class Cause(IntEnum):
    """Why the device had nothing to run."""

    CAPTURE = 0
    WARMUP = 1
    PHASE = 2
    TRANSFER = 3
    STARVED = 4
    SYNC_LATENCY = 5
    UNATTRIBUTED = 6
    LAUNCH = 7
    QUEUED = 8
    UNTRACED = 9
    UNKNOWN = 10
    IN_STEP = 11
    MISSING = 12

    @property
    def label(self) -> str:
        """The short name of the data formats; a cause of :data:`NAMED` goes by the name of its host span instead."""
        name = self.name.lower().replace("_", " ")
        return f"({name})" if self in IN_BRACKETS else name


IN_BRACKETS = frozenset({Cause.UNTRACED, Cause.UNKNOWN, Cause.IN_STEP, Cause.MISSING})
"""What a record would have told, and none does."""

NAMED = (Cause.PHASE, Cause.IN_STEP)
"""The causes of which a gap tells the host span: what it worked at, or the frame of the step that it was in."""


CAUSES: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.CAPTURE: "graph capture, once",
        Cause.WARMUP: "warm-up, once",
        Cause.TRANSFER: "a copy",
        Cause.STARVED: "requests to arrive",
        Cause.SYNC_LATENCY: "the host to wake up",
        Cause.UNATTRIBUTED: "(no host span)",
        Cause.LAUNCH: "launch",
        Cause.QUEUED: "its turn in the queue",
        Cause.UNTRACED: "(host time without a record)",
        Cause.UNKNOWN: "(unknown)",
        Cause.MISSING: "(records are missing)",
        Cause.IN_STEP: "(inside the step, no record)",
    }
)
"""The causes that are not a phase of the host in the words of all text, as the end of "the GPU waited for"."""


_IN_A_SENTENCE = {
    Cause.UNATTRIBUTED: "host time outside all spans",
    Cause.UNTRACED: "host time without a record",
    Cause.UNKNOWN: "unknown reasons",
    Cause.IN_STEP: "host time inside the step without a record",
}


class BlameTotal(NamedTuple):
    """One cause over all gaps. ``label`` is the name of the host phase, or the short name of the cause."""

    cause: Cause
    label: str
    ns: int

    @property
    def in_words(self) -> str:
        """The same as the end of "the GPU waited for"."""
        return CAUSES.get(self.cause) or short(self.label)

    @property
    def in_a_sentence(self) -> str:
        """The same without the brackets that mark in tables what no record tells."""
        return _IN_A_SENTENCE.get(self.cause) or self.in_words


class BlameParts(NamedTuple):
    """Times that sum to the gaps, each with its gap, cause and the host span that is to blame, or -1; in no order."""

    gap: Int64
    cause: Int8
    span: Int64
    ns: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """One row for each gap and cause, sorted by gap, then cause. ``ns`` > 0.

    ``gap``: row of the gap. ``cause``: values of :class:`Cause`. ``name_id``: for the causes of :data:`NAMED` what the
    host span is called (index of ``names``: the labels of the host's timeline), else -1.
    ``parts``: the same by host span in place of its name.
    """

    gap: Int64
    cause: Int8
    name_id: Int32
    ns: Int64
    names: tuple[str, ...]
    parts: BlameParts

    def __len__(self) -> int:
        return len(self.gap)

    def label(self, row: int) -> str:
        cause = Cause(self.cause[row])
        return self.names[self.name_id[row]] if cause in NAMED else cause.label

    def of_gap(self, gap: int) -> tuple[BlameTotal, ...]:
        """The causes of one gap."""
        first, last = np.searchsorted(self.gap, (gap, gap + 1))
        return tuple(
            BlameTotal(Cause(self.cause[row]), self.label(row), int(self.ns[row])) for row in range(first, last)
        )

    def to_json(self, gap: int) -> dict[str, int]:
        """What else than launching and queueing passed the time of one gap: nanoseconds by label, the most first."""
        found: dict[str, int] = {}
        for part in self.of_gap(gap):
            if part.cause not in {Cause.LAUNCH, Cause.QUEUED, Cause.UNKNOWN, Cause.MISSING}:
                found[part.label] = found.get(part.label, 0) + part.ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def totals(self) -> tuple[BlameTotal, ...]:
        """The causes over all gaps, largest first. The frames of all steps are one."""
        key = cause_key(self.cause, self.name_id, self.names)
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        ns = sum_by(group, self.ns, len(first))
        causes = [Cause(self.cause[row]) for row in first.tolist()]
        labels = [
            each.label if each is Cause.IN_STEP else self.label(row)
            for each, row in zip(causes, first.tolist(), strict=True)
        ]
        totals = map(BlameTotal, causes, labels, ns.tolist())
        return tuple(sorted(totals, key=lambda total: -total.ns))


def cause_key(cause: Int8, name_id: Int32, names: Sequence[str]) -> Int64:
    """One number for each cause, and each phase: below causes x (names + 1). The frames of all steps are one cause."""
    named = np.where(cause == Cause.PHASE, name_id, NONE)
    return cause.astype(np.int64) * (len(names) + 1) + named + 1


class BlamePieces(NamedTuple):
    """When each cause held: pieces that partition the gaps, in the order of time; the columns of :class:`Blame`.

    ``span``: the host span that is to blame, or -1.
    """

    start: Int64
    end: Int64
    cause: Int8
    name_id: Int32
    span: Int64


def blame_gaps(trace: Trace, device: int, gaps: Gaps, host: HostTimeline) -> Blame:
    """Split every gap of a device by cause: the rules of the module's docstring, in the order that decides."""
    return _book(trace, device, gaps, host).close()


def blame_pieces(trace: Trace, device: int, gaps: Gaps, host: HostTimeline) -> BlamePieces:
    """The same, piece by piece, for a picture."""
    return _book(trace, device, gaps, host).pieces()


def _book(trace: Trace, device: int, gaps: Gaps, host: HostTimeline) -> _Ledger:
    ledger = _Ledger(gaps, host.labels, host.label_of[trace.name_id], frames(trace))
    before, inside, after = gaps.before_launch(), gaps.inside_launch(), gaps.after_launch()
    lane_of_gap = take_or(trace.lane_id, gaps.launch, main_lane(trace, host, device))
    if trace.is_profile:
        return _blame_profile(device, ledger, host, lane_of_gap)

    for cause, name in zip((Cause.CAPTURE, Cause.WARMUP), ONE_OFF, strict=True):
        rows = spans_named(trace, name)
        once = union_of(trace, rows)
        before, inside, after = (ledger.take(zone, once, cause) for zone in (before, inside, after))

    copying = _copies(trace, device)
    for zone, lane in _by_lane(before, ledger, host, lane_of_gap):
        did = lane.within(zone)
        rest = ledger.take_phases(zone, did.select(did.working))
        rest = ledger.take(rest, copying, Cause.TRANSFER)
        waits = did.select(~did.working)
        starved = one_of(trace.name_id[waits.span], trace.ids_of(NO_REQUESTS))
        rest = ledger.take(rest, waits.select(starved).covered(), Cause.STARVED)
        rest = ledger.take(rest, waits.covered(), Cause.SYNC_LATENCY)
        ledger.enter_all(rest, Cause.UNATTRIBUTED)

    ledger.enter_all(inside, Cause.LAUNCH)
    after = ledger.take(after, _copies_needed(trace, device, gaps), Cause.TRANSFER)
    ledger.enter_all(after, Cause.QUEUED)
    return ledger


def _blame_profile(device: int, ledger: _Ledger, host: HostTimeline, lane_of_gap: Int32) -> _Ledger:
    """The split for a profiler's trace: before L by the innermost host event on its thread, whatever that is.

    A profiler names every call, waits included, but not what they mean; where it recorded none, the time is untraced.
    Where it is not known what launched K, nothing is. Queued work that nothing kept back tells of missing records.
    """
    for zone, did in _by_lane(ledger.gaps.before_launch(), ledger, host, lane_of_gap):
        ledger.enter_all(ledger.take_phases(zone, did), Cause.UNTRACED)
    ledger.enter_all(ledger.gaps.inside_launch(), Cause.LAUNCH)
    after = ledger.take(ledger.gaps.after_launch(), host.known.missing.get(device, EMPTY), Cause.MISSING)
    ledger.enter_all(after, Cause.QUEUED)
    ledger.enter_all(ledger.gaps.unknown(), Cause.UNKNOWN)
    return ledger


def _by_lane(
    zone: Intervals, ledger: _Ledger, host: HostTimeline, lane_of_gap: Int32
) -> Iterator[tuple[Intervals, HostTimeline]]:
    """The parts of a zone by the host lane that is to launch what ends their gap, and what that lane did."""
    lane_of_zone = lane_of_gap[ledger.gap_of(zone.start)]
    for lane in np.unique(lane_of_zone):
        mine = lane_of_zone == lane
        yield Intervals(zone.start[mine], zone.end[mine]), host.select(host.lane == lane)


@dataclass(slots=True)
class _Ledger:
    """Collects (gap, cause, host span, time) entries. A zone is a set of time within the gaps.

    ``label_id``: of each span of the trace, an index of ``labels``. ``framing``: mask of the frames of steps.
    """

    gaps: Gaps
    labels: tuple[str, ...]
    label_id: Int32
    framing: npt.NDArray[np.bool_]
    gap: list[Int64] = field(default_factory=list)
    start: list[Int64] = field(default_factory=list)
    cause: list[Int8] = field(default_factory=list)
    span: list[Int64] = field(default_factory=list)
    ns: list[Int64] = field(default_factory=list)

    def gap_of(self, time: Int64) -> Int64:
        return np.searchsorted(self.gaps.start, time, side="right") - 1

    def enter(self, pieces: Intervals, cause: Int8, span: Int64) -> None:
        """Book these pieces, each within one gap, each on a cause and a host span, or -1."""
        self.gap.append(self.gap_of(pieces.start))
        self.start.append(pieces.start)
        self.cause.append(cause)
        self.span.append(span)
        self.ns.append(pieces.length_ns)

    def enter_all(self, zone: Intervals, cause: Cause) -> None:
        """Book the whole zone on one cause."""
        size = len(zone.start)
        self.enter(zone, np.full(size, cause, dtype=np.int8), np.full(size, NONE, dtype=np.int64))

    def take(self, zone: Intervals, taken: Intervals, cause: Cause) -> Intervals:
        """Book what of the zone lies in ``taken``; return what is left."""
        taken = zone.intersect(taken)
        self.enter_all(taken, cause)
        return zone.subtract(taken)

    def take_phases(self, zone: Intervals, work: HostTimeline) -> Intervals:
        """Book what of the zone the host worked, on the phase it worked at; return what is left."""
        met = overlaps(zone.start, zone.end, work.start, work.end)
        span = work.span[met.b]
        cause = np.where(self.framing[span], np.int8(Cause.IN_STEP), np.int8(Cause.PHASE))
        self.enter(Intervals(met.start, met.end), cause, span)
        return zone.subtract(union(met.start, met.end))

    def pieces(self) -> BlamePieces:
        """The entries as they were made, in the order of time."""
        start, ns = np.concatenate(self.start), np.concatenate(self.ns)
        order = np.argsort(start, kind="stable")
        start, cause = start[order], np.concatenate(self.cause)[order]
        span = np.concatenate(self.span)[order]
        return BlamePieces(start, start + ns[order], cause, self._names_of(span), span)

    def close(self) -> Blame:
        """Sum the entries of each gap, cause and name."""
        gap, cause = np.concatenate(self.gap), np.concatenate(self.cause)
        span, ns = np.concatenate(self.span), np.concatenate(self.ns)
        name_id = self._names_of(span)
        key = (gap * len(Cause) + cause) * (len(self.labels) + 1) + name_id + 1
        order = np.argsort(key, kind="stable")
        begins = np.flatnonzero(np.diff(key[order], prepend=NONE))
        first = order[begins]
        return Blame(
            gap=gap[first],
            cause=cause[first],
            name_id=name_id[first],
            ns=np.add.reduceat(ns[order], begins) if len(begins) else ns,
            names=self.labels,
            parts=BlameParts(gap, cause, span, ns),
        )

    def _names_of(self, span: Int64) -> Int32:
        return take_or(self.label_id, span, NONE)


def _copies(trace: Trace, device: int) -> Intervals:
    rows = np.flatnonzero(trace.mask(kinds=COPY_KINDS, device=device))
    return union_of(trace, rows)


def _copies_needed(trace: Trace, device: int, gaps: Gaps) -> Intervals:
    """When, after its launch, a copy that K depends on ran: one to the device, or on it, of the same step."""
    kinds = tuple(kind for kind in COPY_KINDS if kind != Kind.GPU_D2H)
    copies = np.flatnonzero(trace.mask(kinds=kinds, device=device) & (trace.step != NONE))
    copies = copies[np.argsort(trace.step[copies], kind="stable")]
    # The pairs of a gap and a copy of the step that ends it.
    first = np.searchsorted(trace.step[copies], gaps.step, side="left")
    count = np.searchsorted(trace.step[copies], gaps.step, side="right") - first
    gap = np.repeat(np.arange(len(gaps)), count)
    copy = copies[np.arange(len(gap)) + (first - (np.cumsum(count) - count))[gap]]
    launched = gaps.end - gaps.queue_ns
    return union(
        np.maximum(launched[gap], trace.start_ns[copy]),
        np.minimum(gaps.end[gap], trace.end_of(copy)),
    )
