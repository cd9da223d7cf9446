"""What happens once and not in every step: graph captures and warm-up, and the idle time that they cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.blame import Blame, Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.host import HostTimeline
from cbprof.analysis.accounting.intervals import union_of
from cbprof.analysis.accounting.window import ONE_OFF, spans_named
from cbprof.trace import NONE, Kind, Trace


class OneOff(NamedTuple):
    """The host spans named ``capture`` or ``warmup`` in a whole trace, before the run as well as in it."""

    name: str
    n_spans: int
    total_ns: int

    def to_json(self) -> dict[str, int]:
        return {"count": self.n_spans, "total_ns": self.total_ns}


def one_offs(trace: Trace) -> tuple[OneOff, ...]:
    """Those that the trace has."""
    found = []
    for name in ONE_OFF:
        rows = spans_named(trace, name)
        if len(rows):
            found.append(OneOff(name, len(rows), union_of(trace, rows).total_ns))
    return tuple(found)


def one_off_idle_ns(trace: Trace, device: int, host: HostTimeline, gaps: Gaps, blame: Blame) -> int:
    """Idle time of a device that would not come again: gaps that follow a capture, captures and warm-up in other gaps.

    A capture rarely lies in the gap that it causes: it keeps the host from preparing the next batch while the device
    still computes, and the gap opens afterwards. So a gap counts where a capture began between the launch that came
    before and the launch of the compute which ends the gap::

        host    | launch N [capture ......] | prepare N+1 | launch N+1
        device  | compute N                 | . . . gap . . . . | compute N+1
    """
    follows = _follows_a_capture(trace, device, host, gaps)
    once = np.isin(blame.cause, (Cause.CAPTURE, Cause.WARMUP))
    elsewhere = blame.ns[once & ~follows[blame.gap]]
    return int(gaps.length_ns[follows].sum() + elsewhere.sum())


def _follows_a_capture(trace: Trace, device: int, host: HostTimeline, gaps: Gaps) -> npt.NDArray[np.bool_]:
    """Mask of the gaps whose compute was the first to be launched after a capture began."""
    captures = trace.start_ns[spans_named(trace, ONE_OFF[0])]  # ascending, as all spans are
    launched = gaps.launch != NONE
    if not len(captures) or not launched.any():
        return np.zeros(len(gaps), dtype=bool)
    computes = host.launch_of[trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device)]
    start = trace.start_ns[np.unique(computes[computes != NONE])]
    own = trace.start_ns[gaps.launch]
    before = np.concatenate(([np.iinfo(np.int64).min], start))[np.searchsorted(start, own)]
    follows: npt.NDArray[np.bool_] = np.searchsorted(captures, own) > np.searchsorted(captures, before)
    follows &= launched
    return follows
