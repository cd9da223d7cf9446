"""The two loops on the simulated device: every allowed order gives the right tokens, every planted fault shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from cbprof.engine.async_loop import run_async
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.devices.simulated import SimulatedDevice, next_token
from cbprof.engine.noise import noise_keys
from cbprof.engine.request import Request
from cbprof.engine.run import Run, prepare_run
from cbprof.engine.sync_loop import run_sync

VOCAB = 97
SEEDS = 10_000
FAULT_SEEDS = 200
CONFIG = EngineConfig(max_batch=3, max_batch_tokens=8, prefill_chunk=4, max_context=10, block_size=2, num_blocks=9)


@dataclass
class TickingClock:
    """Time passes by one nanosecond a look."""

    time: int = 0

    def now(self) -> int:
        self.time += 1
        return self.time

    def sleep_until(self, time_ns: int) -> None:
        self.time = max(self.time, time_ns)


class Served(NamedTuple):
    run: Run
    tokens: dict[int, list[int]]


def make_requests(stop_tokens: tuple[int, ...] = ()) -> list[Request]:
    """Four requests for three places: chunked prompts, one that waits, one that comes late."""
    shapes = [(5, 4, 0), (2, 5, 0), (7, 3, 1), (1, 3, 4)]
    return [
        Request(index, [index * 7 + i for i in range(prompt)], new, stop_tokens=stop_tokens, arrival_ns=arrival)
        for index, (prompt, new, arrival) in enumerate(shapes)
    ]


def expected_tokens(request: Request) -> list[int]:
    """One request on its own, token by token."""
    ids = request.ids[: request.prompt_length].tolist()
    while True:
        key = noise_keys(0, np.array([request.id]), np.array([len(ids)]))[0]
        ids.append(next_token(np.array(ids, np.int32), int(key), VOCAB))
        if ids[-1] in request.stop_tokens or len(ids) == request.max_length:
            return ids[request.prompt_length :]


EXPECTED = {request.id: expected_tokens(request) for request in make_requests()}
# Token 2 of request 0 and of whoever else meets it: some requests end early, while they already ride in the next batch.
STOP = (EXPECTED[0][1],)
EXPECTED_WITH_STOP = {request.id: expected_tokens(request) for request in make_requests(STOP)}


def serve(
    mode: Mode, seed: int, *, stop_tokens: tuple[int, ...] = (), slots: int = 2, broken: tuple[str, ...] = ()
) -> Served:
    device = SimulatedDevice(
        CONFIG.layout,
        num_blocks=CONFIG.cache_blocks,
        buckets=CONFIG.buckets,
        seed=seed,
        slots=slots,
        vocab_size=VOCAB,
        eagerness=seed % 10 / 11,
        broken=broken,
    )
    requests = make_requests(stop_tokens)
    run = prepare_run(CONFIG, device, requests, mode, clock=TickingClock())
    (run_sync if mode == "sync" else run_async)(run)
    return Served(run, {request.id: request.generated for request in requests})


@pytest.mark.parametrize("part", range(10))
def test_async_is_right_in_every_order(part: int) -> None:
    wrong = []
    for seed in range(part, SEEDS, 10):
        run, tokens = serve("async", seed)
        blocks = run.scheduler.blocks
        if tokens != EXPECTED or blocks.free_blocks != CONFIG.cache_blocks or blocks.free_seats != CONFIG.max_batch:
            wrong.append(seed)
    assert not wrong


@pytest.mark.parametrize("seed", range(100))
def test_stop_tokens_drop_the_token_of_the_next_batch(seed: int) -> None:
    run, tokens = serve("async", seed, stop_tokens=STOP)
    assert tokens == EXPECTED_WITH_STOP
    assert run.scheduler.counters.dropped > 0
    assert run.scheduler.blocks.free_blocks == CONFIG.cache_blocks


@pytest.mark.parametrize("seed", range(20))
def test_sync_is_right_and_drops_nothing(seed: int) -> None:
    assert serve("sync", seed).tokens == EXPECTED
    run, tokens = serve("sync", seed, stop_tokens=STOP)
    assert tokens == EXPECTED_WITH_STOP
    assert run.scheduler.counters.dropped == 0


@pytest.mark.parametrize("event", ["inputs_ready", "outputs_ready", "done"])
def test_a_missing_event_gives_wrong_tokens(event: str) -> None:
    wrong = [seed for seed in range(FAULT_SEEDS) if serve("async", seed, broken=(event,)).tokens != EXPECTED]
    assert wrong
    again = wrong[0]
    assert serve("async", again, broken=(event,)).tokens == serve("async", again, broken=(event,)).tokens


def test_one_slot_for_two_batches_gives_wrong_tokens() -> None:
    assert any(serve("async", seed, slots=1).tokens != EXPECTED for seed in range(FAULT_SEEDS))


def test_one_slot_is_enough_for_sync() -> None:
    assert all(serve("sync", seed, slots=1).tokens == EXPECTED for seed in range(20))


def test_preemption_happens_in_this_workload() -> None:
    assert serve("async", 0).run.scheduler.counters.preemptions > 0
    assert serve("sync", 0).run.scheduler.counters.preemptions > 0
