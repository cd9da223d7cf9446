"""The next batch, by the policy of the engine: first come, first served; decodes and chunks of prefill share a batch.

The counts-only twin of ``engine/scheduler.py``, which this room may not import: a request is so many tokens of prompt
and output. That a recorded run forms the same batches at the same times is checked before a replay relies on it
(:func:`cbprof.analysis.predict.serving.forms_as_measured`); ``tests/test_batching_policy.py`` holds the twins against
each other.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cbprof.policy import WATERMARK_PCT

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the engine; ``blocks`` of ``block_size`` tokens are its KV cache."""

    requests: int
    tokens: int
    chunk: int
    blocks: int = NEVER
    block_size: int = 1

    def blocks_for(self, length: int) -> int:
        return -(-length // self.block_size)


@dataclass(frozen=True, slots=True)
class Demand:
    """A request: when it arrives, its prompt and its output in tokens.

    ``stops``: it ends by a stop token, so that the host knows of its end only once it has the token.
    """

    request: int
    arrive_ns: int
    prompt: int
    output: int
    stops: bool


class Queued:
    """A request in the hands of the batcher: see the diagram in ``engine/request.py``."""

    __slots__ = ("blocks", "computed", "demand", "finished", "known", "last_step", "pending", "seated")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.known = demand.prompt
        self.pending = self.computed = self.blocks = 0
        self.last_step = -1
        self.seated = self.finished = False

    @property
    def length(self) -> int:
        return self.known + self.pending

    @property
    def last_token_queued(self) -> bool:
        return not self.demand.stops and self.length >= self.demand.prompt + self.demand.output

    @property
    def age(self) -> tuple[int, int]:
        return self.demand.arrive_ns, self.demand.request


class Ride(NamedTuple):
    """``tokens`` of a request from position ``start`` on; ``samples``: they bring a token."""

    queued: Queued
    start: int
    tokens: int
    samples: bool

    @property
    def decodes(self) -> bool:
        return self.tokens == 1 and self.start >= self.queued.demand.prompt


class Landed(NamedTuple):
    """What a batch brought: the requests that got a token, and those that finished with it."""

    produced: list[int]
    finished: list[int]


class Batcher:
    """Requests on their way: not yet arrived, waiting, or running."""

    def __init__(self, limits: Limits, demands: Iterable[Demand]) -> None:
        self._limits = limits
        self._future = sorted(map(Queued, demands), key=lambda each: each.age, reverse=True)
        self._waiting: list[Queued] = []
        self._running: list[Queued] = []
        self._free = limits.blocks
        self.unfinished = len(self._future)
        self.dropped = 0

    @property
    def next_arrival_ns(self) -> int:
        """When the next request arrives; NEVER if all have."""
        return self._future[-1].demand.arrive_ns if self._future else NEVER

    def batch(self, step: int, now_ns: int) -> tuple[Ride, ...]:
        """The next batch, of what has arrived by now; empty if none can go on."""
        while self.next_arrival_ns <= now_ns:
            self._waiting.append(self._future.pop())
        for each in [each for each in self._running if each.last_token_queued]:
            self._leave(each)
        rides: list[Ride] = []
        budget, preempted = self._limits.tokens, False
        for each in list(self._running):
            if budget == 0:
                break
            if not each.seated or (each.pending and each.last_step != step - 1):
                continue
            count = self._count(each, budget)
            while self._limits.blocks_for(each.computed + count) > each.blocks + self._free:
                preempted = True
                if self._preempt_youngest() is each:
                    break
            if each.seated:
                rides.append(self._ride(each, count, step))
                budget -= count
        while self._waiting and budget and not preempted and self._can_seat(self._waiting[0]):
            each = self._waiting.pop(0)
            each.seated = True
            self._running.append(each)
            count = self._count(each, budget)
            rides.append(self._ride(each, count, step))
            budget -= count
        return tuple(rides)

    def land(self, rides: Iterable[Ride]) -> Landed:
        """Read a batch back."""
        produced, finished = [], []
        for each in (ride.queued for ride in rides if ride.samples):
            each.pending -= 1
            if each.finished:
                self.dropped += 1
                continue
            each.known += 1
            each.finished = each.known >= each.demand.prompt + each.demand.output
            produced.append(each.demand.request)
            if each.finished:
                finished.append(each.demand.request)
                if each.seated:
                    self._leave(each)
            elif not each.seated and not each.pending:
                insort(self._waiting, each, key=lambda each: each.age)
        self.unfinished -= len(finished)
        return Landed(produced, finished)

    def _count(self, each: Queued, budget: int) -> int:
        return min(each.length - each.computed, budget, self._limits.chunk)

    def _can_seat(self, each: Queued) -> bool:
        needs = self._limits.blocks_for
        promised = sum(max(0, needs(other.length) - other.blocks) for other in self._running)
        if self._running:
            promised += self._limits.blocks * WATERMARK_PCT // 100
        return len(self._running) < self._limits.requests and needs(each.length) + promised <= self._free

    def _ride(self, each: Queued, count: int, step: int) -> Ride:
        start = each.computed
        blocks = max(self._limits.blocks_for(start + count), each.blocks)
        self._free -= blocks - each.blocks
        each.blocks, each.computed = blocks, start + count
        samples = each.computed == each.length
        if samples:
            each.pending += 1
            each.last_step = step
        return Ride(each, start, count, samples)

    def _leave(self, each: Queued) -> None:
        self._running.remove(each)
        self._free += each.blocks
        each.blocks, each.seated = 0, False

    def _preempt_youngest(self) -> Queued:
        each = self._running[-1]
        self._leave(each)
        each.computed = 0
        if not each.pending:
            insort(self._waiting, each, key=lambda each: each.age)
        return each
