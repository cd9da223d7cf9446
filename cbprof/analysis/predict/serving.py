"""The loop with its scheduler: batches are formed again from the requests that are there, and found late to have ended.

A replay that keeps the measured batches is right where each batch follows from the one before. Two things change the
batches themselves: requests that arrive (a faster loop finds fewer of them waiting), and stop tokens (a loop that is
one batch ahead computes a token more for each request). Then the loop is run again, scheduler included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cbprof.analysis.predict.batch_costs import CostModel, facts_of, on_the_device_alone
from cbprof.analysis.predict.batching import NEVER, Batcher, Demand, Limits, Ride
from cbprof.analysis.predict.demand import demands, formed, limits
from cbprof.analysis.predict.durations import Measured
from cbprof.analysis.predict.predicted_trace import Replayed
from cbprof.analysis.predict.replay import BatchCosts, Operation, StepDurations, Timeline
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.riders import PrefillRow, Riders, rider_table
from cbprof.trace import BATCH_PHASES, NONE, Int64, Kind, RequestEvent, RequestTable, StepTable

ALIKE = 0.9
"""So large a part of the measured batches the policy must form as the engine did, before it forms others."""


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What there is to serve: requests, limits, and how long the host takes to decide on a batch.

    ``decided``: when it had decided on each measured batch, which took ``took_ns``; ``decide_ns`` is the median.
    """

    demands: tuple[Demand, ...]
    limits: Limits
    decided: Int64
    took_ns: Int64

    @property
    def decide_ns(self) -> int:
        return int(np.median(self.took_ns))

    @property
    def arrives_later(self) -> bool:
        """Whether a request arrives after the first batch was decided on."""
        return any(each.arrive_ns > self.decided[0] for each in self.demands)

    @property
    def stops_early(self) -> int:
        """How many requests meet a stop token."""
        return sum(each.stops for each in self.demands)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """Batches formed again. ``dropped``: tokens computed for requests that had ended; ``ceiling_ns``: from the start
    until the device is done, had the host and the copies taken no time.
    """

    service: Service
    replayed: Replayed
    dropped: int
    ceiling_ns: int


def service_of(measured: Measured) -> Service | None:
    """The service of a measured run; None where the trace does not say who rides, or the policy is another."""
    decided = _decided(measured)
    asked = demands(measured.trace, measured.batches, decided)
    if not asked:
        return None
    took = measured.pieces.before(2 * np.arange(len(decided)), decided)
    service = Service(asked, limits(measured.trace), decided, took)
    return service if forms_as_measured(service, measured) else None


def _decided(measured: Measured) -> Int64:
    """When the host had decided on each batch: the end of its last ``schedule``, or else when it began with it."""
    trace, batches = measured.trace, measured.batches
    spans = np.flatnonzero(
        np.isin(trace.name_id, trace.ids_of("schedule"))
        & (trace.kind == Kind.CPU_WORK)
        & (trace.lane_id == measured.lane)
    )
    row = batches.row_of(trace.step[spans])
    spans, row = spans[row != NONE], row[row != NONE]
    decided = measured.pieces.first_start(2 * np.arange(len(batches)), batches.launched)
    decided[row] = trace.end_of(spans)
    return decided


def forms_as_measured(service: Service, measured: Measured) -> bool:
    """Whether the policy, at the measured times, forms nearly all batches as the engine did."""
    batches = measured.batches
    seen = formed(measured.trace.riders, batches)
    batcher = Batcher(service.limits, service.demands)
    flying: list[tuple[Ride, ...]] = []
    same = 0
    for row, now in enumerate(service.decided.tolist()):
        landed = int(np.searchsorted(batches.results[:row], now))
        while flying and row - len(flying) < landed:
            batcher.land(flying.pop(0))
        rides = batcher.batch(row, now)
        same += {ride.queued.demand.request: ride.tokens for ride in rides} == seen[row]
        flying.append(rides)
    return same >= ALIKE * len(batches)


def serve(measured: Measured, service: Service, what_if: WhatIf) -> Served:
    """Run the loop in the order of ``what_if``."""
    table = measured.trace.steps
    row = np.searchsorted(table.step, measured.batches.step)
    facts = np.stack((table.requests[row], table.tokens[row], table.context[row]), axis=1)
    order = Timeline(measured.window.start_ns, slots=what_if.slots, together=what_if.together)
    loop = _Loop(CostModel(measured, facts), service, measured, order)
    loop.run()
    bare = _Loop(
        CostModel(measured, facts),
        replace(service, took_ns=np.zeros_like(service.took_ns)),
        measured,
        Timeline(measured.window.start_ns, slots=1, together=False),
        host=False,
    )
    bare.run()
    return loop.served(bare.timeline.end_ns - measured.window.start_ns)


class _Loop:
    """The loop whose order ``timeline`` has, with a host or without."""

    def __init__(
        self, model: CostModel, service: Service, measured: Measured, timeline: Timeline, *, host: bool = True
    ) -> None:
        self._model, self._service, self.timeline, self._host = model, service, timeline, host
        self._captures, self._before = measured.capture_ns.tolist(), measured.steps.before_ns.tolist()
        self._decide_ns, self._took = service.decide_ns, service.took_ns.tolist()
        self._batcher = Batcher(service.limits, service.demands)
        self._batches: list[tuple[Ride, ...]] = []
        self._rows: list[BatchCosts] = []
        self._donors: list[int] = []
        self._moments = [
            (each.arrive_ns, each.request, RequestEvent.ARRIVE)
            for each in service.demands
            if each.arrive_ns >= measured.window.start_ns
        ]
        self._had: set[int] = set()

    def run(self) -> None:
        timeline, batcher = self.timeline, self._batcher
        while batcher.unfinished or timeline.flying:
            step = len(self._batches)
            rides = batcher.batch(step, timeline.host + self._decide_ns)
            if rides:
                self._launch(step, rides)
                if timeline.full:
                    self._land()
                continue
            timeline.host += self._decide_ns  # in vain
            if timeline.flying:
                self._land()
            elif batcher.next_arrival_ns < NEVER:
                timeline.starve_until(batcher.next_arrival_ns)
            else:
                break  # what is left fits no batch

    def _launch(self, step: int, rides: tuple[Ride, ...]) -> None:
        costs, donor = self._model.costs(facts_of([(ride.start, ride.tokens) for ride in rides]))
        took = self._took[donor] * costs.before // max(self._before[donor], 1)
        newest = max(ride.queued.demand.arrive_ns for ride in rides)
        self.timeline.host = max(self.timeline.host, newest - took)  # a decision as fast as this comes later
        if not self._host:
            costs = on_the_device_alone(costs)
        elif step < len(self._captures) and (more := self._captures[step]):
            costs = costs._replace(
                before=costs.before + more, compute_at=costs.compute_at + more, d2h_at=costs.d2h_at + more
            )
        self.timeline.launch(costs)
        self._batches.append(rides)
        self._rows.append(costs)
        self._donors.append(donor)

    def _land(self) -> None:
        for batch in self.timeline.land():
            landed = self._batcher.land(self._batches[batch])
            for request in landed.produced:
                event = RequestEvent.TOKEN if request in self._had else RequestEvent.FIRST
                self._moments.append((self.timeline.host, request, event))
            self._had.update(landed.produced)
            self._moments += [(self.timeline.host, request, RequestEvent.FINISH) for request in landed.finished]

    def served(self, ceiling_ns: int) -> Served:
        size = len(self._rows)
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, len(BatchCosts._fields)).T
        repeated = np.zeros(size, dtype=np.int64)
        captures = self._captures[:size]
        repeated[: len(captures)] = captures
        moments = np.array(sorted(self._moments), dtype=np.int64).reshape(-1, 3)
        replayed = Replayed(
            schedule=self.timeline.schedule(),
            steps=StepDurations(
                before_ns=columns[0],
                after_ns=columns[1],
                wake_ns=columns[2],
                poll_ns=columns[3],
                h2d=Operation(*columns[4:7]),
                compute=Operation(*columns[7:10]),
                d2h=Operation(*columns[10:]),
                arrived_ns=np.full(size, NONE),
                not_before_ns=np.full(size, NONE),
                alone=np.zeros(size, dtype=bool),
            ),
            step=np.arange(size),
            donor=np.array(self._donors, dtype=np.int64),
            repeated_ns=repeated,
            table=self._facts(),
            riders=rider_table({step: _riders(rides) for step, rides in enumerate(self._batches)}),
            requests=RequestTable(moments[:, 0], moments[:, 1], moments[:, 2].astype(np.int8)),
        )
        return Served(self._service, replayed, self._batcher.dropped, ceiling_ns)

    def _facts(self) -> StepTable:
        facts = [facts_of([(ride.start, ride.tokens) for ride in rides]) for rides in self._batches]
        requests, tokens, context = np.array(facts, dtype=np.int64).reshape(-1, 3).T
        phase = [BATCH_PHASES.index(_phase(rides)) for rides in self._batches]
        step = np.arange(len(facts), dtype=np.int32)
        return StepTable(step, tokens, requests, context, np.array(phase, dtype=np.int8))


def _phase(rides: tuple[Ride, ...]) -> str:
    decodes = sum(ride.decodes for ride in rides)
    return "decode" if decodes == len(rides) else "mixed" if decodes else "prefill"


def _riders(rides: tuple[Ride, ...]) -> Riders:
    return Riders(
        tuple(ride.queued.demand.request for ride in rides if ride.decodes),
        tuple(
            PrefillRow(ride.queued.demand.request, ride.start, ride.tokens, ride.samples)
            for ride in rides
            if not ride.decodes
        ),
    )
