"""What the experiments read from their own recordings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cbprof.analysis.hazards.hazards import Verdict, find_hazards
from cbprof.trace import Int64, Kind, Trace


class Spans(NamedTuple):
    """Spans of one sort, a row each, in the order of time."""

    start: Int64
    end: Int64

    @property
    def median_ns(self) -> int:
        return median(self.end - self.start)


def host_spans(trace: Trace, name: str) -> Spans:
    """The host's spans of this name."""
    named = np.array([each == name for each in trace.names], dtype=bool)
    return _spans(trace, ~trace.on_device & named[trace.name_id])


def device_spans(trace: Trace, kind: Kind) -> Spans:
    return _spans(trace, trace.kind == kind)


def _spans(trace: Trace, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Spans:
    return Spans(trace.start_ns[chosen], trace.end_ns[chosen])


def period_ns(trace: Trace) -> int:
    """From the start of one compute to the start of the next; the median, which a pause of the machine leaves alone."""
    return median(np.diff(device_spans(trace, Kind.GPU_COMPUTE).start))


def median(values: Int64) -> int:
    """The upper median: a value that was measured."""
    return int(np.sort(values)[len(values) // 2])


def hazards_found(trace: Trace) -> list[str]:
    """The keys of the rules that the analyzer finds broken."""
    return [result.rule.key for result in find_hazards(trace).rules if result.verdict is Verdict.FOUND]
