"""The engine's scheduler and its counts-only twin in a prediction form the same batches, whatever the workload."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.predict.batching import NEVER, Batcher, Demand, Limits, Ride
from cbprof.engine.batch import Batch
from cbprof.engine.config import EngineConfig
from cbprof.engine.request import Request
from cbprof.engine.scheduler import Scheduler

STOP, OTHER = 1, 0
SPARE = 9
"""So many tokens may a request have beyond the one that stops it, which the engine cannot foresee."""


class Shape(NamedTuple):
    """Of a request. ``stops``: it ends by a stop token."""

    prompt: int
    output: int
    arrive_ns: int
    stops: bool

    @property
    def most(self) -> int:
        return self.output + SPARE * self.stops


shapes = st.builds(Shape, st.integers(1, 40), st.integers(1, 12), st.integers(0, 30), st.booleans())


@st.composite
def configs(draw: st.DrawFn, requests: list[Shape]) -> EngineConfig:
    longest = max(each.prompt + each.most for each in requests)
    block_size, batch = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return EngineConfig(
        max_batch=batch,
        max_batch_tokens=draw(st.integers(batch, 48)),
        prefill_chunk=draw(st.integers(1, 24)),
        max_context=longest,
        block_size=block_size,
        num_blocks=-(-longest // block_size) + draw(st.integers(0, 8) | st.integers(60, 250)),
    )


def tokens_of(batch: Batch, requests: list[Shape]) -> np.ndarray:
    """What each row samples: a stop token where its request is to end by one."""

    def is_last(request: int, generated: int) -> bool:
        return requests[request].stops and generated == requests[request].output

    ends = [is_last(row.request.id, 1 + row.start + row.tokens - requests[row.request.id].prompt) for row in batch.rows]
    return np.array([STOP if end else OTHER for end in ends], np.int32)


@given(st.data(), st.lists(shapes, min_size=1, max_size=8), st.integers(1, 4))
def test_the_twins_form_the_same_batches(data: st.DataObject, requests: list[Shape], in_flight: int) -> None:
    """``in_flight``: batches that are queued when the oldest is read back; 1 is the sync order."""
    config = data.draw(configs(requests))
    engine = Scheduler(
        config,
        [
            Request(number, [OTHER] * each.prompt, each.most, stop_tokens=[STOP], arrival_ns=each.arrive_ns)
            for number, each in enumerate(requests)
        ],
    )
    limits = Limits(
        config.max_batch, config.max_batch_tokens, config.prefill_chunk, config.cache_blocks, config.block_size
    )
    twin = Batcher(
        limits,
        [Demand(number, each.arrive_ns, each.prompt, each.output, each.stops) for number, each in enumerate(requests)],
    )
    queued: deque[tuple[Batch, tuple[Ride, ...]]] = deque()
    step = now_ns = 0
    while engine.unfinished:
        engine.arrive(now_ns)
        batch, rides = engine.schedule(step), twin.batch(step, now_ns)
        rows = () if batch is None else batch.rows
        assert [(row.request.id, row.start, row.tokens, row.samples) for row in rows] == [
            (ride.queued.demand.request, ride.start, ride.tokens, ride.samples) for ride in rides
        ]
        if batch is not None:
            queued.append((batch, rides))
            step += 1
        if queued and (batch is None or len(queued) == in_flight):
            oldest, theirs = queued.popleft()
            update, landed = engine.update(oldest, tokens_of(oldest, requests)), twin.land(theirs)
            assert (list(update.produced), update.finished) == (landed.produced, landed.finished)
        elif batch is None:
            assert twin.next_arrival_ns != NEVER
            now_ns = twin.next_arrival_ns
        now_ns += 1
        assert (engine.unfinished, engine.counters.dropped) == (twin.unfinished, twin.dropped)
        assert engine.blocks.free_blocks == twin._free
