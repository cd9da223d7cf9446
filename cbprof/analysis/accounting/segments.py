"""Idle time is a function of time and of context length, not one number: a run cut into ten segments by either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.idle import idle_pct
from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.trace import Int64

SEGMENTS = 10


class Segment(NamedTuple):
    """[start, end) in nanoseconds, or in tokens of context; the steps that began there, their time, the idle part."""

    start: int
    end: int
    n_steps: int
    wall_ns: int
    idle_ns: int

    @property
    def idle_pct(self) -> float | None:
        return idle_pct(self.idle_ns, self.wall_ns)

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"idle_pct": self.idle_pct}


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """One row a segment; segment ``i`` is [edges[i], edges[i + 1])."""

    edges: Int64
    n_steps: Int64
    wall_ns: Int64
    idle_ns: Int64

    def __len__(self) -> int:
        return len(self.n_steps)

    def __iter__(self) -> Iterator[Segment]:
        columns = (self.edges[:-1], self.edges[1:], self.n_steps, self.wall_ns, self.idle_ns)
        return (Segment(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


_NONE = np.zeros(0, dtype=np.int64)
NO_SEGMENTS = Segments(_NONE, _NONE, _NONE, _NONE)


def over_time(states: States, steps: StepTimes) -> Segments:
    """The window of ``states`` in ten parts of equal length. Their idle times sum to the window's."""
    window = states.window
    edges = _edges(window.start_ns, window.end_ns)
    wall = np.diff(edges)
    n_steps = np.diff(np.searchsorted(np.sort(steps.start_ns), edges))
    return Segments(edges, n_steps, wall, wall - states.gpu.within(edges[:-1], edges[1:]))


def over_context(states: States, steps: StepTimes, parts: int = SEGMENTS) -> Segments:
    """The steps in up to ``parts`` ranges of context length: tokens of context per request, rounded down.

    The time of a step is its period, from the start of its compute to the next one's, so that the gap after a compute
    counts at its context. Steps whose context is not known are left out; without any, there are no segments.
    """
    rows = np.flatnonzero((steps.context >= 0) & (steps.requests > 0))
    if not len(rows):
        return NO_SEGMENTS
    context = steps.context[rows] // steps.requests[rows]
    edges = _edges(int(context.min()), int(context.max()) + 1, parts)
    segment = np.searchsorted(edges, context, side="right") - 1
    start, wall = steps.start_ns[rows], steps.period_ns[rows]
    idle = wall - states.gpu.within(start, start + wall)
    size = len(edges) - 1
    return Segments(
        edges, np.bincount(segment, minlength=size), sum_by(segment, wall, size), sum_by(segment, idle, size)
    )


def _edges(start: int, end: int, parts: int = SEGMENTS) -> Int64:
    """The edges of these parts of [start, end) whose sizes differ by at most 1, or of as many as there are integers."""
    parts = max(1, min(parts, end - start))
    return np.array([start + (end - start) * part // parts for part in range(parts + 1)], dtype=np.int64)
