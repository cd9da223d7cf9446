"""One sentence on what bounds a run, the figures that it rests on, and what a tenth less of each side would bring.

The rules are asked in the order of :class:`Bound`; the first that holds is the verdict. Time lost to graph captures
and warm-up is left out, since it does not come again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cbprof.analysis.accounting.blame import BlameTotal, Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.states import StateTotals
from cbprof.analysis.verdict.blocked import Blocked
from cbprof.analysis.verdict.overlap import Overlap
from cbprof.analysis.verdict.shortened import Shortened
from cbprof.numbers import counted, part_of_it, percent

LITTLE_IDLE_PCT = 5
"""A device that is idle less than this, captures and queued work apart, is the bound itself."""

MUCH_IDLE_PCT = 25
"""A device that is idle more than this, captures apart, is not the bound, whatever was queued for it meanwhile."""

NOT_THE_HOST = frozenset({Cause.TRANSFER, Cause.STARVED, Cause.QUEUED, Cause.UNKNOWN})
"""Idle time that the host could not have filled, or of which nobody knows. In all else the host is late."""


class Bound(StrEnum):
    """What a run is bound by."""

    UNKNOWN = "unknown"
    STARVED = "starved"
    LAUNCH = "launch-bound"
    DEVICE = "device-bound"
    SERIALISED = "serialised"
    BOTH = "both"
    HOST = "host-bound"
    UNCLEAR = "unclear"


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

    ``causes``: of its idle time, largest first. ``comm_ns``: in collectives, ``exposed_comm_ns`` without compute beside
    them.
    """

    evidence_level: str
    n_gpu_events: int
    states: StateTotals
    gaps: Gaps
    causes: Sequence[BlameTotal]
    one_off_idle_ns: int
    overlap: Overlap
    blocked: Blocked
    shortened: Shortened | None
    comm_ns: int = 0
    exposed_comm_ns: int = 0
    missing_ns: int = 0

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
    def lasting_ns(self) -> int:
        """The window without captures and warm-up, and without the time in which records are missing."""
        return self.window_ns - self.one_off_idle_ns - self.missing_ns

    @property
    def lasting_idle_pct(self) -> float:
        """The share of idle time in that."""
        return 100 * (self.lasting_ns - self.gpu_ns) / self.lasting_ns

    @property
    def unqueued_idle_pct(self) -> float:
        """The part of it in which no work was queued for the device."""
        return self.lasting_idle_pct - 100 * self.caused_by(Cause.QUEUED) / self.lasting_ns

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
        return Verdict(Bound.UNKNOWN, "Nothing can be said: no work of a device is known in the window.", (), None)
    bound = _bound(found)
    return Verdict(bound, _sentence(bound, found), tuple(_evidence(found)), found.shortened)


def _bound(found: Findings) -> Bound:
    idle = sum(total.ns for total in found.causes)
    answers = (
        (Bound.STARVED, _much_idle(found) and 2 * found.caused_by(Cause.STARVED) > idle),
        (Bound.LAUNCH, _much_idle(found) and found.evidence_level == "cupti" and _runs_dry_often(found)),
        (Bound.DEVICE, not _much_idle(found) and found.lasting_idle_pct < MUCH_IDLE_PCT),
        (Bound.UNCLEAR, not _much_idle(found) or not found.cpu_ns or 2 * found.caused_by(*NOT_THE_HOST) > idle),
        (Bound.SERIALISED, _hides_little(found) and 2 * found.blocked.ns > found.gpu_ns),
        (Bound.BOTH, _gpu_work_counts_more(found)),
        (Bound.HOST, True),
    )
    return next(bound for bound, holds in answers if holds)


def _much_idle(found: Findings) -> bool:
    return found.unqueued_idle_pct >= LITTLE_IDLE_PCT


def _runs_dry_often(found: Findings) -> bool:
    """The device waited for a launch before at least half of what it ran, rather than once a step, or once in all."""
    in_one_gap = 2 * found.gaps.longest_ns > found.gaps.total_ns and len(found.gaps) > 1
    often = found.n_ran_dry > found.overlap.n_steps and 2 * found.n_ran_dry >= found.n_gpu_events
    return found.n_gpu_events > 1 and often and not in_one_gap


def _hides_little(found: Findings) -> bool:
    """Most of the host's work could be hidden, and is not, whatever the host did while no record tells."""
    states = found.states
    hidden, host = states.overlap + states.untraced_active, states.cpu + states.untraced_active
    return 2 * hidden < min(host, states.gpu) and states.cpu + states.untraced < states.gpu


def _gpu_work_counts_more(found: Findings) -> bool:
    """A tenth less GPU work would bring more than a tenth less host work."""
    saved = found.shortened
    return saved is not None and saved.host_ns is not None and saved.device_ns > saved.host_ns


def _sentence(bound: Bound, found: Findings) -> str:
    idle, all_idle = percent(found.lasting_idle_pct), sum(total.ns for total in found.causes)
    queued = ""
    if found.lasting_idle_pct >= LITTLE_IDLE_PCT:
        queued = f", and has work queued for all but {percent(found.unqueued_idle_pct)}"
    if bound is Bound.UNCLEAR and 2 * found.caused_by(Cause.UNKNOWN) > all_idle:
        return f"Unclear: the GPU is idle {idle} of the time, and what it waited for is unknown."
    dry = "most" if 2 * found.n_ran_dry > found.n_gpu_events else "half"
    return {
        Bound.STARVED: f"Starved: the GPU is idle {idle} of the time, mostly because no request was there to serve.",
        Bound.LAUNCH: f"Launch-bound: the GPU is idle {idle} of the time, running dry before {dry} of what it runs.",
        Bound.DEVICE: f"Device-bound: the GPU is idle {idle} of the time{queued}; {_what_could_help(found)}.",
        Bound.SERIALISED: f"Serialised by a blocking wait: the host sits in {_wait(found)} while the GPU works, "
        f"and the GPU is idle {idle} of the time, while the host works.",
        Bound.BOTH: f"Bound by both: the GPU is idle {idle} of the time{_host_late(found)}, but less GPU work would "
        "bring more than less host work.",
        Bound.HOST: f"Host-bound: the GPU is idle {idle} of the time{_host_late(found)}.",
        Bound.UNCLEAR: f"Unclear: the GPU is idle {idle} of the time, less than half of it known to be because "
        f"of the host; {_waited(found.causes, all_idle)}.",
    }[bound]


def _wait(found: Findings) -> str:
    return f'"{found.blocked.name}"' if found.blocked.name else "a wait"


def _host_late(found: Findings) -> str:
    """How much of the idle time passed because the host was late, and the largest part of that."""
    mine = [total for total in found.causes if total.cause not in NOT_THE_HOST]
    late, idle = sum(total.ns for total in mine), sum(total.ns for total in found.causes)
    for_the_host = "" if 100 * (idle - late) <= LITTLE_IDLE_PCT * idle else f", {percent(100 * late / idle)} of that"
    return f"{for_the_host} because the host is late, {_largest(mine, late)}"


def _waited(causes: Sequence[BlameTotal], whole_ns: int) -> str:
    """What the device waited for most, and what share of the whole that is: ``it waited most of it for a copy``."""
    largest = next(iter(causes), None)
    if largest is None:
        return "nothing is known that it waited for"
    if largest.cause is Cause.UNKNOWN:
        return _largest(causes, whole_ns)
    return f"it waited {part_of_it(largest.ns, whole_ns)} for {largest.in_a_sentence}"


def _largest(causes: Sequence[BlameTotal], whole_ns: int) -> str:
    """The largest of these causes, and what share of the whole it is: ``most of it in prepare``."""
    largest = next(iter(causes), None)
    if largest is None:
        return "all of it for nothing known"
    if largest.cause is Cause.UNKNOWN:
        return f"what the GPU waited for is unknown for {percent(100 * largest.ns / whole_ns)} of it"
    lost = "in" if largest.cause is Cause.PHASE else "for"
    return f"{part_of_it(largest.ns, whole_ns)} {lost} {largest.in_a_sentence}"


def _what_could_help(found: Findings) -> str:
    if not much_exposed(found.exposed_comm_ns, found.window_ns):
        return "only faster GPU work can bring more"
    share = percent(100 * found.exposed_comm_ns / found.gpu_ns)
    return f"{share} of its active time are collectives without compute beside them, which may wait for another rank"


def much_exposed(exposed_comm_ns: int, window_ns: int) -> bool:
    """Whether collectives without compute beside them take a part of the time that counts."""
    return 100 * exposed_comm_ns >= LITTLE_IDLE_PCT * window_ns


def _evidence(found: Findings) -> Iterator[str]:
    cause, lead = found.largest_cause, found.overlap.launch_lead
    if cause is not None:
        share = percent(100 * cause.ns / max(1, sum(total.ns for total in found.causes)))
        if cause.cause is not Cause.UNKNOWN:
            yield f"the GPU waited {share} of its idle time for {cause.in_a_sentence}"
        elif _bound(found) is not Bound.UNCLEAR:
            yield f"what the GPU waited for is unknown for {share} of its idle time"
    if found.comm_ns:
        share, exposed = (
            percent(100 * found.comm_ns / found.gpu_ns),
            percent(100 * found.exposed_comm_ns / found.comm_ns),
        )
        yield f"communication takes {share} of the GPU's active time; {exposed} of it has no compute beside it"
    if found.overlap.efficiency_pct is not None:
        yield _hidden(found, found.overlap.efficiency_pct)
    if lead is not None:
        yield f"{percent(lead.late_pct)} of steps were launched only after the compute before them had ended"
    if found.blocked.name is not None and (found.blocked.ns or found.states.host_known):
        blocked_pct = 100 * found.blocked.ns / found.gpu_ns
        yield f"the host was blocked in a wait for {percent(blocked_pct)} of the GPU's active time"
    if found.one_off_idle_ns:
        yield f"captures and warm-up cost {percent(100 * found.one_off_idle_ns / found.window_ns)} of the time, once"
    if found.missing_ns:
        share = percent(100 * found.missing_ns / found.window_ns)
        yield f"records are missing for {share} of the time, which counts neither as idle nor as active here"
    if found.evidence_level == "cupti" and (found.gaps.known.any() or not len(found.gaps)):
        yield f"the GPU ran dry {counted(found.n_ran_dry, 'time')} in {counted(found.n_gpu_events, 'operation')}"
    elif found.evidence_level != "cupti":
        yield "launch-bound holes inside a span cannot be seen: that needs CUPTI records"


def _hidden(found: Findings, efficiency_pct: float) -> str:
    """How much host work is hidden. Where it is more than the GPU could hide, hiding all of that is no praise."""
    if found.cpu_ns <= found.gpu_ns:
        return f"{percent(efficiency_pct)} of the host work that could be hidden is hidden"
    most = percent(100 * found.gpu_ns / found.cpu_ns)
    hidden = percent(100 * found.overlap.hidden_ns / found.cpu_ns)
    return f"{hidden} of the host work is hidden; the GPU is active too little to hide more than {most}"
