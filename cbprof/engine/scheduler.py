"""Who rides in the next batch, and what a finished batch means. Counts only; no tensors, no device.

``schedule`` uses nothing but what is known before the previous batch returns: counts. ``update`` fills in the values
and decides who stops. The sync loop alternates the two; the async loop schedules one batch ahead. Both get the same
batches as long as requests end by length, because that is known in advance.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from cbprof.engine.batch import Batch, Row
from cbprof.engine.blocks import BlockManager
from cbprof.engine.config import EngineConfig
from cbprof.engine.devices.base import IntArray
from cbprof.engine.request import Request
from cbprof.errors import UsageError


@dataclass
class Counters:
    """What happened over a run."""

    tokens: int = 0
    dropped: int = 0
    """Tokens computed for a request that had already met its stop token (async only)."""
    preemptions: int = 0
    finished: int = 0


@dataclass(frozen=True)
class Update:
    """What a batch brought: the token of each request that got one, and the requests that finished with it."""

    produced: dict[int, int] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)


class Scheduler:
    """First come, first served; decodes and prefill chunks share a batch; blocks run out: the youngest is preempted.

    A request is in one of four places: ``future`` (not arrived), ``waiting``, ``running``, or nowhere: finished, or
    preempted while a batch that it rides in is still out, in which case ``update`` brings it back to ``waiting``.
    """

    def __init__(self, config: EngineConfig, requests: Iterable[Request]) -> None:
        self.config = config
        self.blocks = BlockManager(config.cache_blocks, config.block_size, config.max_batch, config.max_blocks)
        self.future = sorted(requests, key=_age, reverse=True)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.counters = Counters()
        self.unfinished = len(self.future)
        for request in self.future:
            self._check_fits(request)

    def _check_fits(self, request: Request) -> None:
        if request.max_length > self.config.max_context:
            raise UsageError(
                f"request {request.id} needs {request.max_length} tokens (prompt {request.prompt_length} + "
                f"{request.max_length - request.prompt_length} new), but the longest context is "
                f"{self.config.max_context}: shorten it, or raise the maximum context"
            )
        if request.prompt_length in (0, request.max_length):
            raise UsageError(f"request {request.id} needs a prompt and at least 1 new token")

    def arrive(self, now_ns: int) -> list[Request]:
        """Move the requests that have arrived by ``now_ns`` to the queue, and return them."""
        arrived = []
        while self.future and self.future[-1].arrival_ns <= now_ns:
            arrived.append(self.future.pop())
        self.waiting.extend(arrived)
        return arrived

    def schedule(self, step: int) -> Batch | None:
        """The next batch, or None if no request can go on before a batch returns or a request arrives."""
        for request in [request for request in self.running if request.last_token_queued]:
            self._leave(request)

        rows: list[Row] = []
        budget = self.config.max_batch_tokens
        preempted = False
        for request in list(self.running):
            if budget == 0:
                break
            if request.seat < 0 or not request.can_ride(step):  # preempted a moment ago, for an older one
                continue
            count = min(request.remaining, budget, self.config.prefill_chunk)
            while not self.blocks.can_grow(request, request.computed + count):
                preempted = True
                if self._preempt_youngest() is request:
                    break
            if request.seat >= 0:
                rows.append(self._ride(request, count, step, len(rows)))
                budget -= count

        while self.waiting and budget and not preempted and self.blocks.can_seat(self.waiting[0], self.running):
            request = self.waiting.pop(0)
            self.blocks.seat(request)
            self.running.append(request)
            count = min(request.remaining, budget, self.config.prefill_chunk)
            rows.append(self._ride(request, count, step, len(rows)))
            budget -= count
        return Batch(step, tuple(rows)) if rows else None

    def _ride(self, request: Request, count: int, step: int, row: int) -> Row:
        """Put the next ``count`` tokens of a request into the batch of ``step``."""
        start = request.computed
        self.blocks.grow(request, start + count)
        carry = request.last_row if request.pending else -1
        request.computed += count
        samples = request.computed == request.length
        if samples:
            request.pending += 1
            request.last_step, request.last_row = step, row
        return Row(request, start, count, samples, carry, request.seat)

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        self.blocks.release(request)

    def _preempt_youngest(self) -> Request:
        """Take the youngest running request off the device; it will be computed again from its first token."""
        request = self.running[-1]
        self._leave(request)
        request.computed = 0
        self.counters.preemptions += 1
        if not request.pending:
            insort(self.waiting, request, key=_age)
        return request

    def update(self, batch: Batch, tokens: IntArray) -> Update:
        """Read back a batch: ``tokens[row]`` is what each row sampled. Requests are found by identity, never by row."""
        update = Update()
        for row, token in zip(batch.rows, tokens.tolist(), strict=False):
            if not row.samples:
                continue
            request = row.request
            request.pending -= 1
            if request.finished:  # it met its stop token one batch ago, when this one was already queued
                self.counters.dropped += 1
                continue
            request.append(token)
            update.produced[request.id] = token
            if request.finished:
                update.finished.append(request.id)
                if request.seat >= 0:
                    self._leave(request)
            elif request.seat < 0 and not request.pending:  # preempted while it rode in this batch
                insort(self.waiting, request, key=_age)
        self.counters.tokens += len(update.produced)
        self.counters.finished += len(update.finished)
        self.unfinished -= len(update.finished)
        return update


def _age(request: Request) -> tuple[int, int]:
    """Sort key: the oldest first."""
    return request.arrival_ns, request.id
