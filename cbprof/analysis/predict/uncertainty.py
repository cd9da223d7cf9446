"""How far off a prediction may be, and what of it weighs most.

Another run of the same loop draws other durations; clocks are right to within their error; and what the trace does not
show was assumed. Each is a :class:`Doubt`; the interval adds them up as independent ones, by their squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cbprof.analysis.predict.durations import Measured
from cbprof.analysis.predict.predicted_trace import Replayed
from cbprof.analysis.predict.replay import Operation, StepDurations, replay
from cbprof.trace import NONE, Int64

NORMAL_95 = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


class Doubt(NamedTuple):
    """What is not known for sure, in words, and by how much the predicted time would change, in nanoseconds: from
    ``low_ns``, at most 0, to ``high_ns``, at least 0."""

    what: str
    low_ns: int
    high_ns: int


def interval_of(predicted_ns: int, doubts: Iterable[Doubt]) -> tuple[int, int]:
    """The predicted time, from the shortest to the longest that is likely."""
    doubts = tuple(doubts)
    low, high = (sum(side**2 for side in sides) ** 0.5 for sides in zip(*((d[1], d[2]) for d in doubts), strict=True))
    return max(0, round(predicted_ns - low)), round(predicted_ns + high)


def another_run(begins: Int64, *, every: int = 1, kind: Int64 | None = None) -> Doubt:
    """What chance does to the sum of all steps: 95 % of the differences between two runs.

    ``begins``: of the predicted steps, of which those of one burst (``every``) count as one; ``kind``: a number for
    each, by which they are alike, unless few of them are. The variance is that from one step to the next of its kind
    (von Neumann's), so that steps which grow with their context are no chance. Steps count as independent.
    """
    length = np.diff(begins[::every]).astype(np.float64)
    change = np.diff(length)
    if kind is not None:
        kind = kind[::every]
        alike = (kind[:-2] == kind[1:-1]) & (kind[1:-1] == kind[2:])
        change = change[alike] if 2 * alike.sum() >= len(change) else change
    if not len(change):
        return Doubt("too few steps are alike to know what another run would draw", 0, 0)
    variance = float((change**2).mean()) / 2
    either_side = round(NORMAL_95 * (2 * len(length) * variance) ** 0.5)
    return Doubt("another run draws other durations", -either_side, either_side)


def doubts(measured: Measured, replayed: Replayed) -> tuple[Doubt, ...]:
    """Of a prediction from a recorded run, what may change it most first."""
    schedule, table = replayed.schedule, replayed.table
    tokens = dict(zip(table.step.tolist(), table.tokens.tolist(), strict=True))
    kind = np.array([tokens.get(step, NONE) for step in replayed.step.tolist()], dtype=np.int64)
    kind = np.where(schedule.starved_from == NONE, kind, -2 - np.arange(len(kind)))  # begun when a request arrived
    every = measured.what_if.slots if measured.what_if.together else 1
    usual_ns = int(np.median(np.diff(schedule.before_start))) if len(kind) > 1 else 0
    error_ns = len(measured.batches) * (measured.trace.meta.clock_error_ns or 0)
    found = [
        another_run(schedule.before_start, every=every, kind=kind),
        Doubt("where in a step the run begins and ends", -usual_ns, usual_ns),
        Doubt("host and device are on one clock to within its error, in every step", -error_ns, error_ns),
        *_assumed(measured),
    ]
    return tuple(sorted(found, key=lambda doubt: doubt.low_ns - doubt.high_ns))


def _assumed(measured: Measured) -> Iterable[Doubt]:
    """What the trace does not show, as the replay with it and without it."""
    what_if, start_ns = measured.what_if, measured.window.start_ns

    def ends(steps: StepDurations) -> int:
        schedule = replay(steps, slots=what_if.slots, together=what_if.together, start_ns=start_ns)
        return int((schedule.after_start + steps.after_ns).max())

    assumed_end = ends(measured.steps)
    for what, without in _ASSUMPTIONS.items():
        change_ns = ends(without(measured)) - assumed_end
        yield Doubt(what, min(change_ns, 0), max(change_ns, 0))


def _without_glue(measured: Measured) -> StepDurations:
    pieces = measured.pieces
    marked = replace(pieces, predicted_ns=np.where(pieces.span == NONE, 0, pieces.predicted_ns))
    return replace(measured, pieces=marked).steps


def _without_wake_up(measured: Measured) -> StepDurations:
    return replace(measured.steps, wake_ns=np.minimum(measured.steps.wake_ns, 0))


def _without_latency(measured: Measured) -> StepDurations:
    def at_once(operation: Operation) -> Operation:
        return operation._replace(latency=np.zeros_like(operation.latency))

    steps = measured.steps
    return replace(steps, h2d=at_once(steps.h2d), compute=at_once(steps.compute), d2h=at_once(steps.d2h))


_ASSUMPTIONS: dict[str, Callable[[Measured], StepDurations]] = {
    "host time without a span counts as work": _without_glue,
    "the host wakes up as late as it was measured": _without_wake_up,
    "work of the device begins as late after its launch as it was measured": _without_latency,
}
