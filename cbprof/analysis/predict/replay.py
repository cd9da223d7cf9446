"""The dependency graph of the two loops, replayed with given durations: when would everything run?

::

    host     | before N+1 .............. | wait N+2-S | after N+2-S | before N+2 ...
               schedule prepare h2d launch fetch        update
                                 |    |      |
    h2d                          +->[N+1]    |
    compute  [ N ................. ]  +->[ N+1 ........ ]
    d2h                             [N]                  [N+1]

The host is serial. A copy to the device starts once it is queued, compute once it is queued, its inputs are there and
the compute before it is over, the copy back after compute; each stream runs in order, and takes its measured latency
to begin. A host that slept goes on a little after its results are there: its wake-up. With S slots the host may be S-1
batches ahead of the one that it waits for: with one slot this is the sync loop, with two the async one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.trace import Int64


class Operation(NamedTuple):
    """One kind of device work, one row a batch; nanoseconds, all 0 where there is none.

    ``queued``: how far into ``before_ns`` the host queues it. ``latency``: from when it may start until it does.
    ``length``: how long it runs.
    """

    queued: Int64
    latency: Int64
    length: Int64


@dataclass(frozen=True, slots=True, eq=False)
class StepDurations:
    """What each batch costs, one row a batch in the order of their launches; nanoseconds.

    ``before_ns``: host work up to the wait for the batch's results; ``after_ns``: from there on. ``wake_ns``: from the
    results until a host that waited for them goes on; ``poll_ns``: what the wait takes if they are there already.
    ``not_before_ns``: the time at which a host that had nothing to do got its next request, on the time axis of the
    replay, or -1. ``alone``: whether the batch is begun only once all before it have landed.
    """

    before_ns: Int64
    after_ns: Int64
    wake_ns: Int64
    poll_ns: Int64
    h2d: Operation
    compute: Operation
    d2h: Operation
    not_before_ns: Int64
    alone: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.before_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """When everything starts, one row a batch. The host waits for its results from ``wait_start`` to ``after_start``.

    ``compute_ready``: when its compute was queued and its inputs were there. ``starved_from``: when the host ran out of
    requests before the batch, or -1.
    """

    before_start: Int64
    h2d_start: Int64
    compute_ready: Int64
    compute_start: Int64
    d2h_start: Int64
    wait_start: Int64
    after_start: Int64
    starved_from: Int64


def replay(steps: StepDurations, *, slots: int, start_ns: int = 0) -> Schedule:
    """Run the loop: one pass over the batches, exact integers. The host begins at ``start_ns``."""
    size = len(steps)
    before_start, wait_start, after_start = [0] * size, [0] * size, [0] * size
    h2d_start, compute_ready, compute_start = [0] * size, [0] * size, [0] * size
    d2h_start, d2h_end = [0] * size, [0] * size
    starved_from = [-1] * size
    after_ns, wake_ns, poll_ns = (column.tolist() for column in (steps.after_ns, steps.wake_ns, steps.poll_ns))
    flying: deque[int] = deque()

    host = h2d_free = compute_free = d2h_free = start_ns

    def land() -> None:
        """Wait for the oldest batch in flight and update it."""
        nonlocal host
        batch = flying.popleft()
        wait_start[batch] = host
        there = d2h_end[batch]
        after_start[batch] = host = max(host, there + wake_ns[batch]) if host < there else host + poll_ns[batch]
        host += after_ns[batch]

    columns = (steps.before_ns, steps.not_before_ns, steps.alone, *steps.h2d, *steps.compute, *steps.d2h)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for n, (before, not_before, alone, h2d_at, h2d_lag, h2d, at, lag, compute, d2h_at, d2h_lag, d2h) in enumerate(rows):
        while flying and (alone or not_before >= 0):  # all in flight land before the host runs out of work
            land()
        if host < not_before:
            starved_from[n], host = host, not_before
        before_start[n] = host
        h2d_start[n] = max(host + h2d_at, h2d_free) + h2d_lag
        h2d_free = h2d_start[n] + h2d
        compute_ready[n] = max(host + at, h2d_free)
        compute_start[n] = max(compute_ready[n], compute_free) + lag
        compute_free = compute_start[n] + compute
        d2h_start[n] = max(host + d2h_at, compute_free, d2h_free) + d2h_lag
        d2h_end[n] = d2h_free = d2h_start[n] + d2h
        host += before
        flying.append(n)
        if len(flying) == slots:
            land()
    while flying:
        land()

    times = (before_start, h2d_start, compute_ready, compute_start, d2h_start, wait_start, after_start, starved_from)
    return Schedule(*(np.array(column, dtype=np.int64) for column in times))
