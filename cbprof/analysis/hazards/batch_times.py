"""When each batch touched what: the times whose order decides whether a run is safe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.blame import NO_REQUESTS
from cbprof.trace import NONE, Int64, Kind, Trace, one_of

UNKNOWN = np.iinfo(np.int64).min
"""A moment that the trace does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchTimes:
    """One row a batch of one device, ascending by ``step``; times of the trace, or UNKNOWN.

    ``prepared``: the host begins to write the slot's host buffer. ``read``: it begins to read the outputs, when its
    ``update`` starts, or when the wait inside it returns. Device work: from its first span to its last.
    """

    step: Int64
    slot: Int64
    prepared: Int64
    h2d_start: Int64
    h2d_end: Int64
    compute_start: Int64
    compute_end: Int64
    d2h_start: Int64
    d2h_end: Int64
    read: Int64

    def __len__(self) -> int:
        return len(self.step)

    def next_in_slot(self) -> tuple[Int64, Int64]:
        """(earlier, later): the pairs of rows that used one slot in turn."""
        order = np.lexsort((self.step, self.slot))
        same = (self.slot[order][1:] == self.slot[order][:-1]) & (self.slot[order][1:] != NONE)
        return order[:-1][same], order[1:][same]


def batch_times(trace: Trace, device: int) -> BatchTimes:
    """The times of every batch that has a span on ``device``. A sync run without slots counts as one slot."""
    of_device = np.flatnonzero(trace.mask(device=device) & trace.on_device & (trace.step != NONE))
    step = np.unique(trace.step[of_device]).astype(np.int64)

    def first(rows: Int64) -> Int64:
        found = np.full(len(step), np.iinfo(np.int64).max)
        np.minimum.at(found, np.searchsorted(step, trace.step[rows]), trace.start_ns[rows])
        return np.where(found == np.iinfo(np.int64).max, UNKNOWN, found)

    def last(rows: Int64) -> Int64:
        found = np.full(len(step), UNKNOWN)
        np.maximum.at(found, np.searchsorted(step, trace.step[rows]), trace.end_ns[rows])
        return found

    def ran(kind: Kind) -> Int64:
        rows: Int64 = of_device[trace.kind[of_device] == kind]
        return rows

    def on_host(kind: Kind, *names: str) -> Int64:
        named = one_of(trace.name_id, trace.ids_of(*names))
        return np.flatnonzero((trace.kind == kind) & named & np.isin(trace.step, step))

    wait_names = [name for name in trace.names if name != NO_REQUESTS]
    waits, updates = on_host(Kind.CPU_WAIT, *wait_names), on_host(Kind.CPU_WORK, "update")
    waited, update_start, update_end = last(waits), first(updates), last(updates)
    waits_first = (update_start == UNKNOWN) | ((waited > update_start) & (waited <= update_end))
    h2d, compute, d2h = ran(Kind.GPU_H2D), ran(Kind.GPU_COMPUTE), ran(Kind.GPU_D2H)

    slot = np.full(len(step), 0 if trace.mode == "sync" else NONE, dtype=np.int64)
    slotted = of_device[trace.slot[of_device] != NONE]
    slot[np.searchsorted(step, trace.step[slotted])] = trace.slot[slotted]
    return BatchTimes(
        step=step,
        slot=slot,
        prepared=first(on_host(Kind.CPU_WORK, "prepare")),
        h2d_start=first(h2d),
        h2d_end=last(h2d),
        compute_start=first(compute),
        compute_end=last(compute),
        d2h_start=first(d2h),
        d2h_end=last(d2h),
        read=np.where(waits_first, waited, update_start),
    )
