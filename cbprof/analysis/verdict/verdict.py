"""One sentence on what bounds a run, the figures that it rests on, and what a tenth less of each side would bring.

The rules are asked in the order of :class:`Bound`; the first that holds is the verdict. Time lost to graph captures
and warm-up is left out, since it does not come again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.blame import BlameTotal, Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.phases import PhaseTime
from cbprof.analysis.accounting.states import States, StateTotals
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.analysis.verdict.overlap import Overlap
from cbprof.numbers import percent

LITTLE_IDLE_PCT = 5
"""A device that is idle less than this, captures and queued work apart, is the bound itself."""

MUCH_IDLE_PCT = 25
"""A device that is idle more than this, captures apart, is not the bound, whatever was queued for it meanwhile."""

SHORTENED_BY = 10
"""Per cent by which the what-ifs shorten one side."""

NOT_THE_HOST = frozenset({Cause.TRANSFER, Cause.STARVED, Cause.QUEUED, Cause.UNKNOWN})
"""Idle time that the host could not have filled, or of which nobody knows. In all else the host is late."""


class Bound(StrEnum):
    """What a run is bound by."""

    UNKNOWN = "unknown"
    STARVED = "starved"
    LAUNCH = "launch-bound"
    DEVICE = "device-bound"
    SERIALISED = "serialised"
    HOST = "host-bound"
    UNCLEAR = "unclear"


class Shortened(NamedTuple):
    """How many nanoseconds a tenth less device work, or a tenth less host work, could take off the window."""

    device_ns: int
    host_ns: int


def shortened(states: States, steps: StepTimes) -> Shortened:
    """A bound, step by step: a tenth of a side's work, but no more than the time in which that side works alone.

    Once that time is gone the other side is what the step waits for. Without steps the window counts as one.
    """
    if not len(steps):
        found = states.totals()
        gpu_alone = found.gpu - found.overlap
        return Shortened(min(_share(found.gpu), gpu_alone), min(_share(found.cpu), found.cpu_only))
    start, end = steps.start_ns, steps.end_ns
    gpu_alone_in_step = states.gpu.within(start, end) - states.overlap.within(start, end)
    return Shortened(
        device_ns=int(np.minimum(_share(steps.compute_ns), gpu_alone_in_step).sum()),
        host_ns=int(np.minimum(_share(steps.cpu_work_ns), steps.cpu_exposed_ns).sum()),
    )


def _share(ns: Any) -> Any:
    """The part of a number of nanoseconds, or of a column of them, by which the what-ifs shorten it."""
    return ns * SHORTENED_BY // 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """``sentence`` in plain words; ``evidence``: one figure a line, the strongest first."""

    bound: Bound
    sentence: str
    evidence: tuple[str, ...]
    shortened: Shortened | None

    def to_json(self) -> dict[str, Any]:
        """``shortened_ns``: what a tenth less work of the device, or of the host, could take off the window."""
        shortened = self.shortened
        return {
            "bound": self.bound.value,
            "sentence": self.sentence,
            "evidence": list(self.evidence),
            "shortened_ns": {"device": shortened.device_ns, "host": shortened.host_ns} if shortened else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What a verdict on one device rests on: its figures in a window.

    ``causes``: of its idle time, largest first. ``waits``: the blocking phases of the host.
    """

    evidence_level: str
    n_gpu_events: int
    states: StateTotals
    gaps: Gaps
    causes: Sequence[BlameTotal]
    one_off_idle_ns: int
    overlap: Overlap
    waits: Sequence[PhaseTime]
    shortened: Shortened | None

    @property
    def window_ns(self) -> int:
        return sum(self.states)

    @property
    def gpu_ns(self) -> int:
        return self.states.gpu

    @property
    def cpu_ns(self) -> int:
        return self.states.cpu

    @property
    def lasting_idle_pct(self) -> float:
        """The share of idle time, captures and warm-up left out of both."""
        window = self.window_ns - self.one_off_idle_ns
        return 100 * (window - self.gpu_ns) / window

    @property
    def blocked_ns(self) -> int:
        """How long the host sat in a blocking wait while the device was active."""
        return sum(wait.total_ns - wait.exposed_ns for wait in self.waits)

    @property
    def unqueued_idle_pct(self) -> float:
        """The part of it in which no work was queued for the device."""
        return self.lasting_idle_pct - 100 * self.caused_by(Cause.QUEUED) / (self.window_ns - self.one_off_idle_ns)

    def caused_by(self, *causes: Cause) -> int:
        """Idle time with one of these causes."""
        return sum(total.ns for total in self.causes if total.cause in causes)

    @property
    def largest_cause(self) -> BlameTotal | None:
        return next(iter(self.causes), None)

    @property
    def n_ran_dry(self) -> int:
        """Gaps that lasted because the next launch was known to be late or slow, rather than waiting in the queue."""
        return int((self.gaps.host_late_ns + self.gaps.in_launch_ns > self.gaps.queue_ns).sum())


def judge(found: Findings | None) -> Verdict:
    """The verdict on one device; None where its idle time is unknown."""
    if found is None or not found.gpu_ns:
        return Verdict(Bound.UNKNOWN, "Nothing can be said: no device activity was recorded in the window.", (), None)
    bound = _bound(found)
    return Verdict(bound, _sentence(bound, found), tuple(_evidence(found)), found.shortened)


def _bound(found: Findings) -> Bound:
    idle = sum(total.ns for total in found.causes)
    answers = (
        (Bound.STARVED, _much_idle(found) and 2 * found.caused_by(Cause.STARVED) > idle),
        (Bound.LAUNCH, _much_idle(found) and found.evidence_level == "cupti" and _runs_dry_often(found)),
        (Bound.DEVICE, not _much_idle(found) and found.lasting_idle_pct < MUCH_IDLE_PCT),
        (Bound.UNCLEAR, not _much_idle(found) or not found.cpu_ns or 2 * found.caused_by(*NOT_THE_HOST) > idle),
        (Bound.SERIALISED, _hides_little(found) and 2 * found.blocked_ns > found.gpu_ns),
        (Bound.HOST, True),
    )
    return next(bound for bound, holds in answers if holds)


def _much_idle(found: Findings) -> bool:
    return found.unqueued_idle_pct >= LITTLE_IDLE_PCT


def _runs_dry_often(found: Findings) -> bool:
    """The device waited for a launch before at least half of what it ran, rather than once a step."""
    return found.n_gpu_events > 1 and 2 * found.n_ran_dry >= found.n_gpu_events


def _hides_little(found: Findings) -> bool:
    """Most of the host's work could be hidden, and is not."""
    efficiency = found.overlap.efficiency_pct
    return efficiency is not None and efficiency < 50 and found.cpu_ns < found.gpu_ns


def _sentence(bound: Bound, found: Findings) -> str:
    idle, cause = percent(found.lasting_idle_pct), found.largest_cause
    name = cause.in_words if cause else "nothing"
    lost = "in" if cause and cause.cause is Cause.PHASE else "for"
    wait = max(found.waits, key=lambda wait: wait.total_ns - wait.exposed_ns, default=None)
    where = f'"{wait.name}"' if wait else "a wait"
    queued = ""
    if found.lasting_idle_pct >= LITTLE_IDLE_PCT:
        queued = f", and has work queued for all but {percent(found.unqueued_idle_pct)}"
    if bound is Bound.UNCLEAR and cause and cause.cause is Cause.UNKNOWN:
        return f"Unclear: the GPU is idle {idle} of the time, and what it waited for is unknown."
    return {
        Bound.STARVED: f"Starved: the GPU is idle {idle} of the time, mostly because no request was there to serve.",
        Bound.LAUNCH: f"Launch-bound: the GPU is idle {idle} of the time, running dry before most of what it runs.",
        Bound.DEVICE: f"Device-bound: the GPU is idle {idle} of the time{queued}; only faster GPU work can bring more.",
        Bound.SERIALISED: f"Serialised by a blocking wait: the host sits in {where} while the GPU works, "
        f"and the GPU is idle {idle} of the time while the host does.",
        Bound.HOST: f"Host-bound: the GPU is idle {idle} of the time because the host is late, "
        f"most of it {lost} {name}.",
        Bound.UNCLEAR: f"Unclear: the GPU is idle {idle} of the time, and less than half of that is known to be "
        f"for the host; most of it is {lost} {name}.",
    }[bound]


def _evidence(found: Findings) -> Iterator[str]:
    cause, lead = found.largest_cause, found.overlap.launch_lead
    if cause is not None:
        share = percent(100 * cause.ns / max(1, found.gaps.total_ns))
        yield f"the GPU waited {share} of its idle time for {cause.in_words}"
    if found.overlap.efficiency_pct is not None:
        yield f"{percent(found.overlap.efficiency_pct)} of the host work that could be hidden is hidden"
    if lead is not None:
        yield f"{percent(lead.late_pct)} of steps were launched only after the compute before them had ended"
    if found.waits:
        blocked_pct = 100 * found.blocked_ns / found.gpu_ns
        yield f"the host was blocked in a wait for {percent(blocked_pct)} of the GPU's active time"
    if found.one_off_idle_ns:
        yield f"captures and warm-up cost {percent(100 * found.one_off_idle_ns / found.window_ns)} of the time, once"
    if found.evidence_level == "cupti" and (found.gaps.known.any() or not len(found.gaps)):
        yield f"the GPU ran dry {found.n_ran_dry:,} times in {found.n_gpu_events:,} operations"
    elif found.evidence_level != "cupti":
        yield "launch-bound holes inside a span cannot be seen: that needs CUPTI records"
