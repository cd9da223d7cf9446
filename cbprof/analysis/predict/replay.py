"""The dependency graph of the loops, replayed with given durations: when would everything run?

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
batches ahead of the one that it waits for: with one slot this is the sync loop, with two the async one. In the
multi-step loop (``together``) it fills all slots, waits for every batch of them, and only then goes on with any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.trace import NONE, Int64


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
    ``arrived_ns``: the host does not begin the batch earlier, since a request of it has to arrive. ``not_before_ns``:
    the time at which a host that had nothing to do got its next request, on the time axis of the replay, or -1.
    ``alone``: whether the batch is begun only once all before it have landed.
    """

    before_ns: Int64
    after_ns: Int64
    wake_ns: Int64
    poll_ns: Int64
    h2d: Operation
    compute: Operation
    d2h: Operation
    arrived_ns: Int64
    not_before_ns: Int64
    alone: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.before_ns)

    def rows(self) -> Iterator[BatchCosts]:
        """What each batch costs, one by one."""
        host = (self.before_ns, self.after_ns, self.wake_ns, self.poll_ns)
        columns = (*host, *self.h2d, *self.compute, *self.d2h)
        return map(BatchCosts._make, zip(*(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """When everything starts, one row a batch. The host waits for its results from ``wait_start`` to ``wait_end``.

    ``compute_ready``: when its compute was queued and its inputs were there. ``starved_from``: when the host ran out of
    requests before the batch, or -1.
    """

    before_start: Int64
    h2d_start: Int64
    compute_ready: Int64
    compute_start: Int64
    d2h_start: Int64
    wait_start: Int64
    wait_end: Int64
    after_start: Int64
    starved_from: Int64


class BatchCosts(NamedTuple):
    """One row of :class:`StepDurations` without its conditions; ``h2d_at``: queued so far into ``before``."""

    before: int
    after: int
    wake: int
    poll: int
    h2d_at: int
    h2d_lag: int
    h2d: int
    compute_at: int
    compute_lag: int
    compute: int
    d2h_at: int
    d2h_lag: int
    d2h: int


class Timeline:
    """The loop under way: how far the host and the streams are, and when everything so far started."""

    def __init__(self, start_ns: int, *, slots: int, together: bool) -> None:
        self._slots, self._together = slots, together
        self.host = self._h2d_free = self._compute_free = self._d2h_free = start_ns
        self.flying: deque[int] = deque()
        self._starved_from = NONE
        self._costs: list[BatchCosts] = []
        self._started: list[tuple[int, int, int, int, int, int]] = []
        self._landed: list[tuple[int, int, int]] = []
        self._results: list[int] = []

    def starve_until(self, time: int) -> None:
        """The host has nothing to do until ``time``, unless it is later already."""
        if self.host < time:
            self._starved_from = self.host if self._starved_from == NONE else self._starved_from
            self.host = time

    def launch(self, costs: BatchCosts) -> None:
        """Prepare and queue the next batch."""
        begin = self.host
        h2d = max(begin + costs.h2d_at, self._h2d_free) + costs.h2d_lag
        self._h2d_free = h2d + costs.h2d
        ready = max(begin + costs.compute_at, self._h2d_free)
        compute = max(ready, self._compute_free) + costs.compute_lag
        self._compute_free = compute + costs.compute
        d2h = max(begin + costs.d2h_at, self._compute_free, self._d2h_free) + costs.d2h_lag
        self._d2h_free = d2h + costs.d2h
        self._results.append(self._d2h_free)
        self._started.append((begin, h2d, ready, compute, d2h, self._starved_from))
        self._starved_from = NONE
        self.host = begin + costs.before
        self.flying.append(len(self._costs))
        self._costs.append(costs)

    @property
    def full(self) -> bool:
        """Whether each slot holds a batch."""
        return len(self.flying) == self._slots

    def land(self) -> Iterator[int]:
        """Wait for the oldest batch in flight, or for all of them together, and update it; its number, once that is
        done."""
        batches = [self.flying.popleft() for _ in range(len(self.flying) if self._together else 1)]
        waits = []
        for batch in batches:
            costs, there, begin = self._costs[batch], self._results[batch], self.host
            self.host = max(begin, there + costs.wake) if begin < there else begin + costs.poll
            waits.append((begin, self.host))
        for batch, wait in zip(batches, waits, strict=True):
            self._landed.append((*wait, self.host))
            self.host += self._costs[batch].after
            yield batch

    def land_all(self) -> None:
        """Land whatever is in flight."""
        while self.flying:
            deque(self.land(), maxlen=0)

    @property
    def end_ns(self) -> int:
        """When host and device are done with what was launched."""
        return max(self.host, self._d2h_free)

    def schedule(self) -> Schedule:
        """When everything started. All batches have landed."""
        started = np.array(self._started, dtype=np.int64).reshape(-1, 6)
        landed = np.array(self._landed, dtype=np.int64).reshape(-1, 3)
        before, h2d, ready, compute, d2h, starved = started.T
        wait_start, wait_end, after = landed.T
        return Schedule(before, h2d, ready, compute, d2h, wait_start, wait_end, after, starved)


def replay(steps: StepDurations, *, slots: int, together: bool = False, start_ns: int = 0) -> Schedule:
    """Run the loop: one pass over the batches, exact integers. The host begins at ``start_ns``."""
    loop = Timeline(start_ns, slots=slots, together=together)
    conditions = (steps.arrived_ns, steps.not_before_ns, steps.alone)
    rows = zip(steps.rows(), *(column.tolist() for column in conditions), strict=True)
    for costs, arrived, not_before, alone in rows:
        if alone or not_before >= 0:  # all in flight land before the host runs out of work
            loop.land_all()
        loop.starve_until(max(arrived, not_before))
        loop.launch(costs)
        if loop.full:
            deque(loop.land(), maxlen=0)
    loop.land_all()
    return loop.schedule()
