"""Where the time of each request went: random runs of the real loops, against a split of one nanosecond at a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import oracle
import pytest
from oracle import Oracle
from simulation import StepClock, serve

from cbprof.analysis.accounting.blame import CAUSES
from cbprof.analysis.requests.lives import Life, lives
from cbprof.analysis.requests.turns import NEIGHBOURS
from cbprof.engine.batch import Batch, Row
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.request import Request
from cbprof.engine.run import Run
from cbprof.meta import Meta
from cbprof.record.clocks.base import ClockErrors, Times
from cbprof.record.span_tracer import SpanTracer
from cbprof.trace import Kind, Trace, TraceBuilder

COMPUTE = (Kind.GPU_COMPUTE,)
IN_WORDS = {cause.label: words for cause, words in CAUSES.items()}
SEEDS = range(12)
MODES: tuple[Mode, ...] = ("sync", "async")


class PlayedClock:
    """The device computes one batch after the other, each for a time drawn at random."""

    errors = ClockErrors(0, 0)

    def __init__(self, clock: StepClock, draw: random.Random) -> None:
        self._clock, self._draw = clock, draw
        self.done: list[int] = []

    def begin(self, stream: Any) -> int:
        return self._clock.now()

    def end(self, stream: Any, handle: int) -> Times:
        if stream.kind != "compute":
            return Times(handle, self._clock.now())
        start = max(handle, self.done[-1] if self.done else 0)
        self.done.append(start + self._draw.randint(3, 30))
        return Times(start, self.done[-1])

    def resolve(self, handle: Times) -> Times:
        return handle

    def anchor(self, *, final: bool = False) -> None: ...

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def close(self) -> None: ...


class PlayedTracer(SpanTracer):
    """The wait for a batch lasts until the device is done with it. The batches are kept."""

    def __init__(self, sink: TraceBuilder, clock: StepClock, device: PlayedClock) -> None:
        super().__init__(sink, device, now=clock.now, origin_ns=0)
        self._step_clock, self._device = clock, device
        self.batches: list[Batch] = []

    @contextmanager
    def wait(self, name: str, step: int, *, slot: int = -1) -> Iterator[None]:
        with super().wait(name, step, slot=slot):
            yield
            if name == "wait":
                self._step_clock.sleep_until(self._device.done[step])

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        super().batch(batch)


class Played(NamedTuple):
    trace: Trace
    batches: list[Batch]
    run: Run
    generated: Mapping[int, int]
    found: Mapping[int, Life]


def play(seed: int, mode: Mode) -> Played:
    """A random workload: chunks, late arrivals, too few blocks, tokens that end a request."""
    draw = random.Random(seed)
    config = EngineConfig(
        max_batch=draw.randint(2, 4),
        max_batch_tokens=draw.randint(4, 9),
        prefill_chunk=draw.randint(2, 5),
        max_context=10,
        block_size=2,
        num_blocks=draw.randint(6, 9),
    )
    requests = [
        Request(
            index + 3,
            [draw.randrange(97) for _ in range(draw.randint(1, 6))],
            draw.randint(1, 4),
            stop_tokens=[draw.randrange(97) for _ in range(12)],
            arrival_ns=draw.choice((0, draw.randint(0, 400))),
        )
        for index in range(6)
    ]
    clock, sink = StepClock(), TraceBuilder()
    device = PlayedClock(clock, draw)
    tracer = PlayedTracer(sink, clock, device)
    run = serve(config, requests, mode, seed=seed, vocab_size=97, hooks=tracer, clock=clock)
    tracer.close()
    trace = sink.build(Meta.parse({"evidence": "emulated", "complete": True}))
    generated = {request.id: len(request.generated) for request in requests}
    return Played(trace, tracer.batches, run, generated, {life.request: life for life in lives(trace)})


class Naive:
    """The parts of a life, one instant after the other."""

    def __init__(self, played: Played) -> None:
        self.played, self.trace = played, played.trace
        self.book = Oracle(played.trace)
        schedules = [row for row in self.book.rows if self.book.name[row] == "schedule"]
        self.looked = sorted(self.book.start[row] for row in schedules)
        self.decided = {
            step: max(self.book.start[row] for row in schedules if self.book.step[row] == step)
            for step in range(len(played.batches))
        }
        computes = [row for row in self.book.rows if self.book.kind[row] == Kind.GPU_COMPUTE]
        self.computed = {self.book.step[row]: row for row in computes}

    def done(self, step: int) -> int:
        return self.book.end[self.computed[step]]

    def alone_ns(self, step: int) -> int:
        """What the decodes of a mixed step take without its prefill."""
        decodes = {
            batch.step: (batch.num_requests, batch.context)
            for batch in self.played.batches
            if all(row.is_decode for row in batch.rows)
        }
        rows = [row for row in self.played.batches[step].rows if row.is_decode]
        if not decodes:
            return 1 << 60
        distance = min(abs(size - len(rows)) for size, _ in decodes.values())
        nearest = min(size for size, _ in decodes.values() if abs(size - len(rows)) == distance)
        context = sum(row.start + row.tokens for row in rows)
        peers = sorted((each, step) for step, (size, each) in decodes.items() if size == nearest)
        at = sum(each < context for each, _ in peers)
        around = peers[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]
        times = sorted(self.done(each) - self.book.start[self.computed[each]] for _, each in around)
        return times[(len(times) - 1) // 2]

    def part(self, request: int, rides: Mapping[int, Row], n_tokens: int, arrive: int, t: int) -> str:  # noqa: PLR0911 - a rule a line
        steps = sorted(rides)
        last = [step for step in steps if rides[step].samples][n_tokens - 1]
        first = self.decided[steps[0]]
        if t >= self.done(last):
            return "delivery"
        if t < min([first, *(look for look in self.looked if look >= arrive)]):
            return "not_arrived"
        if t < first:
            return "queue"
        for before, after in pairwise(steps):
            lost = rides[after].start < rides[before].start + rides[before].tokens
            if lost and max(self.decided[before + 1], self.done(before)) <= t < self.decided[after]:
                return "preempted"
        step = min(step for step in self.computed if self.done(step) > t)
        if step not in rides:
            return "other_batch"
        start = self.book.start[self.computed[step]]
        if t < start:
            cause = self.book.cause(0, t, self.computed[step])
            return f"idle.{IN_WORDS.get(cause) or cause.removeprefix('phase ')}"
        if not rides[step].is_decode:
            return "prefill"
        mixed = not all(row.is_decode for row in self.played.batches[step].rows)
        return "others_prefill" if mixed and t - start >= self.alone_ns(step) else "decode"

    def parts(self, request: int) -> Counter[str]:
        rides = {batch.step: row for batch in self.played.batches for row in batch.rows if row.request.id == request}
        life = self.played.found[request]
        assert life.arrive_ns is not None
        assert life.end_ns is not None
        n_tokens = self.played.generated[request]
        return Counter(
            self.part(request, rides, n_tokens, life.arrive_ns, t) for t in range(life.arrive_ns, life.end_ns)
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_nanosecond_of_every_request_has_its_part(seed: int, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(seed, mode)
    monkeypatch.setattr(oracle, "LENGTH", int(played.trace.end_ns.max()) + 1)
    naive = Naive(played)
    for request, life in played.found.items():
        assert life.parts_ns is not None
        assert sum(life.parts_ns.values()) == life.end_to_end_ns
        assert Counter({part: ns for part, ns in life.parts_ns.items() if ns}) == naive.parts(request), request


@pytest.mark.parametrize("mode", MODES)
def test_counts_are_those_of_the_scheduler(mode: Mode) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        played = play(seed, mode)
        counters, found = played.run.scheduler.counters, played.found.values()
        assert {life.request: life.tokens for life in found} == played.generated
        assert sum(life.dropped for life in found) == counters.dropped
        assert sum(life.preemptions for life in found) <= counters.preemptions
        assert all((life.recomputed > 0) >= (life.preemptions > 0) for life in found)
        seen.update(dropped=counters.dropped, preempted=sum(life.preemptions for life in found))
        for life in found:
            assert life.parts_ns is not None
            seen.update({part: ns for part, ns in life.parts_ns.items() if ns})
    expected = {"not_arrived", "queue", "preempted", "prefill", "decode", "others_prefill", "delivery"}
    assert expected <= {part for part, n in seen.items() if n}
    assert (seen["dropped"] > 0) == (mode == "async")
    assert seen["preempted"] > 0


def test_the_gaps_between_tokens_hold_the_life_up_to_the_last_token() -> None:
    for mode in MODES:
        for life in play(5, mode).found.values():
            for gap in life.gaps:
                assert sum(gap.parts_ns.values()) == gap.length_ns
            assert life.parts_ns is not None
            total: Counter[str] = Counter()
            for gap in life.gaps:
                total.update(gap.parts_ns)
            assert total == Counter(life.parts_ns)
