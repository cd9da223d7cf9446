"""Work of the device that brought no token: computed again after a preemption, or for a request that had ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.window import Window
from cbprof.trace import Int64, Kind, RequestEvent, RequestTable, Trace


@dataclass(frozen=True, slots=True)
class LostWork:
    """``preemptions``: how often a request lost its seat; ``recomputed``: tokens computed again after that, None where
    unknown; ``dropped``: tokens computed for requests that had ended, as async does with stop tokens.
    """

    preemptions: int
    recomputed: int | None
    dropped: int

    def __bool__(self) -> bool:
        return bool(self.preemptions or self.recomputed or self.dropped)

    def to_json(self) -> dict[str, Any]:
        return {
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed,
            "dropped_tokens": self.dropped,
        }


class Again(NamedTuple):
    """For each row of riders: whether its request had lost its seat before it, and how many tokens it repeats."""

    preempted: npt.NDArray[np.bool_]
    tokens: Int64


def computed_again(request: Int64, start: Int64, tokens: Int64) -> Again:
    """Of rows sorted by request, then by step. ``start``: the first position of a row; -1, unknown, counts as new."""
    reach = np.maximum(start + tokens, 0)
    first = np.concatenate(([True], request[1:] != request[:-1]))[: len(request)]
    longest = int(reach.max(initial=0)) + 1
    apart = np.cumsum(first) * longest  # so that no request sees how far another reached
    furthest = np.maximum.accumulate(reach + apart) - apart
    before, furthest = np.roll(reach, 1), np.roll(furthest, 1)
    known = ~first & (start >= 0)
    return Again(
        preempted=known & (start < before),
        tokens=np.where(known, np.maximum(np.minimum(furthest, reach) - start, 0), 0),
    )


def lost_work(trace: Trace, window: Window, *, whole_run: bool) -> LostWork | None:
    """What was lost in steps whose compute began in the window; None where no record says it.

    Without a record of who rode in which step, the counts of the run itself, where the window is the ``whole_run``.
    """
    riders = trace.riders
    if not len(riders):
        return _as_told(trace.meta.extra) if whole_run else None
    computed = (trace.kind == Kind.GPU_COMPUTE) & (trace.step >= 0)
    ran = np.unique(trace.step[computed])
    inside = computed & (trace.start_ns >= window.start_ns) & (trace.start_ns < window.end_ns)
    order = np.argsort(riders.request, kind="stable")
    order = order[np.isin(riders.step[order], ran)]
    request = riders.request[order]
    again = computed_again(request, riders.start[order], riders.tokens[order])
    here = np.isin(riders.step[order], np.unique(trace.step[inside]))
    late = _after_the_end(trace.requests, request, riders.samples[order] == 1)
    return LostWork(int(again.preempted[here].sum()), int(again.tokens[here].sum()), int(late[here].sum()))


def _after_the_end(table: RequestTable, request: Int64, samples: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mask of the rows that sampled a token which their request, finished, never got."""
    came = (table.event == RequestEvent.FIRST) | (table.event == RequestEvent.TOKEN)
    whole = np.intersect1d(
        table.request[table.event == RequestEvent.FIRST], table.request[table.event == RequestEvent.FINISH]
    )
    got = np.sort(table.request[came])
    first = np.searchsorted(request, request)
    sampled = np.concatenate(([0], np.cumsum(samples)))
    nth = sampled[1:] - sampled[first]  # of its request, this row included
    tokens = np.searchsorted(got, request, side="right") - np.searchsorted(got, request)
    return samples & np.isin(request, whole) & (nth > tokens)


def _as_told(said: Mapping[str, Any]) -> LostWork | None:
    preemptions, dropped = said.get("preemptions"), said.get("dropped_tokens")
    if type(preemptions) is not int or type(dropped) is not int or min(preemptions, dropped) < 0:
        return None
    return LostWork(preemptions, None if preemptions else 0, dropped)
