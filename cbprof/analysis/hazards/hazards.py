"""Is it safe? The orderings that async batching rests on, checked in what happened and in what was asked for.

::

    h2d      [N]  [N+1]                  1  H2D N before compute N
              |1    |        6           2  compute N before D2H N
    compute  [ N ......][ N+1 ....]      3  D2H N before update N
                    4  |2                4  compute N before compute N+1
    d2h                [N]               5  a slot's host buffer: prepare after the H2D before it
                         |3              6  a slot's inputs:      H2D after the compute before it
    host     |prep N+2|   |update N|     7  a slot's outputs:     compute after they were read

A pair in the wrong order by more than the clocks can be off is *found*; within that error it is *possible*, and no
proof of anything. Timing can hide a race, so an ordering that the engine never asked for counts as found as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from cbprof.analysis.hazards.batch_times import UNKNOWN, BatchTimes, batch_times
from cbprof.analysis.hazards.clock_errors import ClockBounds, ErrorBound, clock_bounds
from cbprof.analysis.hazards.missing_edges import MissingEdge, missing_edges
from cbprof.errors import UsageError
from cbprof.trace import NONE, Int64, Trace

SCHEMA = 1
EXAMPLES = 3


class Verdict(StrEnum):
    """``found``: a pair out of order beyond the error, or no ordering at all. ``possible``: within the error."""

    FOUND = "found"
    POSSIBLE = "possible"
    NOT_SEEN = "not seen"
    NOT_CHECKED = "not checked"


class Rule(NamedTuple):
    """``clocks``: whether two times of the device are compared, or one with a time of the host."""

    key: str
    text: str
    clocks: Literal["device", "host"]


RULES = (
    Rule("h2d_before_compute", "H2D N before compute N", "device"),
    Rule("compute_before_d2h", "compute N before D2H N", "device"),
    Rule("d2h_before_update", "D2H N before update N", "host"),
    Rule("compute_in_order", "compute N before compute N+1", "device"),
    Rule("host_buffer_kept", "H2D of a slot before its next prepare", "host"),
    Rule("inputs_kept", "compute of a slot before its next H2D", "device"),
    Rule("outputs_kept", "D2H of a slot before its next compute", "device"),
)


class Example(NamedTuple):
    """A pair in the wrong order: what should have ended in one step ended ``late_ns`` after the other began."""

    earlier_step: int
    later_step: int
    late_ns: int


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What came of one rule. ``error_ns`` is what its two times can be off against each other.

    ``worst_margin_ns``: the least time between the end of what comes first and the start of what comes after; negative
    where they overlap, None where no pair was compared. ``n_found`` pairs overlap by more than the error,
    ``n_possible`` by less. ``examples``: the first pairs out of order, found ones before possible ones.
    """

    rule: Rule
    verdict: Verdict
    n_pairs: int
    n_found: int
    n_possible: int
    worst_margin_ns: int | None
    error_ns: int
    examples: tuple[Example, ...]
    missing: MissingEdge | None


@dataclass(frozen=True, slots=True)
class Hazards:
    """All rules, and the error bounds that they were held against.

    ``edges_known``: whether the file says which events were waited for. ``lacking``: what a rule that was not checked
    would have needed.
    """

    rules: tuple[RuleResult, ...]
    bounds: ClockBounds
    edges_known: bool
    lacking: tuple[str, ...]

    @property
    def found(self) -> bool:
        return any(result.verdict is Verdict.FOUND for result in self.rules)

    @property
    def missing(self) -> tuple[MissingEdge, ...]:
        return tuple(result.missing for result in self.rules if result.missing is not None)

    def __getitem__(self, key: str) -> RuleResult:
        """The result of a rule by its key."""
        return next(result for result in self.rules if result.rule.key == key)

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        return {
            "schema": SCHEMA,
            "found": self.found,
            "clock_error": _bound(self.bounds.clock),
            "device_error": _bound(self.bounds.device),
            "edges_known": self.edges_known,
            "lacking": list(self.lacking),
            "rules": [_result(result) for result in self.rules],
        }


def find_hazards(trace: Trace) -> Hazards:
    """Check every rule on every device.

    Raises UsageError where no span on a device says which step it belongs to, and for a profile of kernels: a step of
    it holds many copies and kernels, and the first and the last of each kind say nothing about their order.
    """
    if trace.evidence == "cupti":
        raise UsageError(
            "nothing to check: a profile of kernels does not say what a batch is; record with `cbprof run`"
        )
    per_device = [times for device in trace.devices if len(times := batch_times(trace, device))]
    if not per_device:
        raise UsageError("nothing to check: no span on a device says which step it belongs to, see docs/hazards.md")
    bounds = clock_bounds(trace)
    missing = [missing_edges(trace, times) for times in per_device]
    lacking: dict[str, MissingEdge] = {}
    for edge in (edge for edges in missing if edges is not None for edge in edges):
        lacking.setdefault(edge.rule, edge)
    pairs = [_pairs(times) for times in per_device]
    results = tuple(
        _judge(rule, [of_device[rule.key] for of_device in pairs], bounds, lacking.get(rule.key)) for rule in RULES
    )
    edges_known = any(edges is not None for edges in missing)
    return Hazards(results, bounds, edges_known, tuple(_lacking(per_device)))


def _lacking(per_device: Sequence[BatchTimes]) -> Iterator[str]:
    """What no batch has."""
    for what, column, absent in (
        ("H2D spans", "h2d_start", UNKNOWN),
        ("compute spans", "compute_start", UNKNOWN),
        ("D2H spans", "d2h_start", UNKNOWN),
        ("`prepare` phases", "prepared", UNKNOWN),
        ("waits or `update` phases", "read", UNKNOWN),
        ("slots", "slot", NONE),
    ):
        if all((getattr(times, column) == absent).all() for times in per_device):
            yield what


class _Pairs(NamedTuple):
    """Rows of batches, and the time from the end of what comes first to the start of what comes after."""

    earlier_step: Int64
    later_step: Int64
    margin: Int64


def _pairs(times: BatchTimes) -> dict[str, _Pairs]:
    """The pairs that each rule compares on one device."""
    m = times
    same = np.arange(len(m))
    this, following = same[:-1], same[1:]
    earlier, later = m.next_in_slot()

    def compare(first: Int64, end: Int64, then: Int64, start: Int64) -> _Pairs:
        known = (end[first] != UNKNOWN) & (start[then] != UNKNOWN)
        first, then = first[known], then[known]
        return _Pairs(m.step[first], m.step[then], start[then] - end[first])

    # Without a copy back, as where the host's read does it, the outputs are there when compute is over.
    results_end = np.where(m.d2h_end == UNKNOWN, m.compute_end, m.d2h_end)
    copied_back = compare(earlier, m.d2h_end, later, m.compute_start)
    # Compute N+1 may carry tokens over from the outputs of N, if it does not itself overwrite them.
    carried = (earlier + 1 < len(m)) & (earlier + 1 != later)
    carried_over = compare(earlier[carried] + 1, m.compute_end, later[carried], m.compute_start)
    return {
        "h2d_before_compute": compare(same, m.h2d_end, same, m.compute_start),
        "compute_before_d2h": compare(same, m.compute_end, same, m.d2h_start),
        "d2h_before_update": compare(same, results_end, same, m.read),
        "compute_in_order": compare(this, m.compute_end, following, m.compute_start),
        "host_buffer_kept": compare(earlier, m.h2d_end, later, m.prepared),
        "inputs_kept": compare(earlier, m.compute_end, later, m.h2d_start),
        "outputs_kept": _Pairs(*map(np.concatenate, zip(copied_back, carried_over, strict=True))),
    }


def _judge(rule: Rule, per_device: list[_Pairs], bounds: ClockBounds, missing: MissingEdge | None) -> RuleResult:
    earlier, later, margin = map(np.concatenate, zip(*per_device, strict=True))
    error = (bounds.device if rule.clocks == "device" else bounds.clock).ns
    found, possible = margin < -error, (margin < 0) & (margin >= -error)
    if missing is not None or found.any():
        verdict = Verdict.FOUND
    elif possible.any():
        verdict = Verdict.POSSIBLE
    else:
        verdict = Verdict.NOT_SEEN if len(margin) else Verdict.NOT_CHECKED
    first = np.concatenate((np.flatnonzero(found), np.flatnonzero(possible)))[:EXAMPLES]
    return RuleResult(
        rule=rule,
        verdict=verdict,
        n_pairs=len(margin),
        n_found=int(found.sum()),
        n_possible=int(possible.sum()),
        worst_margin_ns=int(margin.min()) if len(margin) else None,
        error_ns=error,
        examples=tuple(Example(int(earlier[row]), int(later[row]), -int(margin[row])) for row in first.tolist()),
        missing=missing,
    )


def _bound(bound: ErrorBound) -> dict[str, Any]:
    return {"ns": bound.ns, "stated": bound.stated, "impossible_orders": bound.impossible}


def _result(result: RuleResult) -> dict[str, Any]:
    return {
        "rule": result.rule.key,
        "text": result.rule.text,
        "clocks": result.rule.clocks,
        "verdict": result.verdict.value,
        "n_pairs": result.n_pairs,
        "n_found": result.n_found,
        "n_possible": result.n_possible,
        "worst_margin_ns": result.worst_margin_ns,
        "error_ns": result.error_ns,
        "examples": [example._asdict() for example in result.examples],
        "missing_edge": None if result.missing is None else result.missing.text,
    }
