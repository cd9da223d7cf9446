"""The loops on the simulated device: every allowed order gives the right tokens, every planted fault shows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from simulation import alone, everything_is_given_back, serve

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.request import Request
from cbprof.engine.run import Run

VOCAB = 97
SEEDS = 10_000
FAULT_SEEDS = 200
CONFIG = EngineConfig(max_batch=3, max_batch_tokens=8, prefill_chunk=4, max_context=10, block_size=2, num_blocks=9)


def make_requests(stop_tokens: tuple[int, ...] = ()) -> list[Request]:
    """Four requests for three places: chunked prompts, one that waits, one that comes late."""
    shapes = [(5, 4, 0), (2, 5, 0), (7, 3, 1), (1, 3, 4)]
    return [
        Request(index, [index * 7 + i for i in range(prompt)], new, stop_tokens=stop_tokens, arrival_ns=arrival)
        for index, (prompt, new, arrival) in enumerate(shapes)
    ]


EXPECTED = [alone(request, VOCAB) for request in make_requests()]
# Token 2 of request 0 and of whoever else meets it: some requests end early, while they already ride in the next batch.
STOP = (EXPECTED[0][1],)
EXPECTED_WITH_STOP = [alone(request, VOCAB) for request in make_requests(STOP)]


class Served(NamedTuple):
    run: Run
    tokens: list[list[int]]


def serve_these(
    mode: Mode,
    seed: int,
    *,
    stop_tokens: tuple[int, ...] = (),
    slots: int = 2,
    broken: tuple[str, ...] = (),
    shared_slot: bool = False,
) -> Served:
    requests = make_requests(stop_tokens)
    config = replace(CONFIG, slots=slots)
    run = serve(
        config,
        requests,
        mode,
        seed=seed,
        vocab_size=VOCAB,
        eagerness=seed % 10 / 11,
        broken=broken,
        shared_slot=shared_slot,
    )
    return Served(run, [request.generated for request in requests])


@pytest.mark.parametrize("part", range(10))
def test_async_is_right_in_every_order(part: int) -> None:
    wrong = []
    for seed in range(part, SEEDS, 10):
        run, tokens = serve_these("async", seed)
        if tokens != EXPECTED or not everything_is_given_back(run):
            wrong.append(seed)
    assert not wrong


@pytest.mark.parametrize("seed", range(100))
def test_stop_tokens_drop_the_token_of_the_next_batch(seed: int) -> None:
    run, tokens = serve_these("async", seed, stop_tokens=STOP)
    assert tokens == EXPECTED_WITH_STOP
    assert run.scheduler.counters.dropped > 0
    assert everything_is_given_back(run)


@pytest.mark.parametrize("seed", range(20))
def test_sync_is_right_and_drops_nothing(seed: int) -> None:
    assert serve_these("sync", seed).tokens == EXPECTED
    run, tokens = serve_these("sync", seed, stop_tokens=STOP)
    assert tokens == EXPECTED_WITH_STOP
    assert run.scheduler.counters.dropped == 0


@pytest.mark.parametrize("event", ["inputs_ready", "outputs_ready", "done"])
def test_a_missing_event_gives_wrong_tokens(event: str) -> None:
    wrong = [seed for seed in range(FAULT_SEEDS) if serve_these("async", seed, broken=(event,)).tokens != EXPECTED]
    assert wrong
    again = wrong[0]
    assert serve_these("async", again, broken=(event,)).tokens == serve_these("async", again, broken=(event,)).tokens


def test_one_slot_for_two_batches_gives_wrong_tokens() -> None:
    assert any(serve_these("async", seed, shared_slot=True).tokens != EXPECTED for seed in range(FAULT_SEEDS))


@pytest.mark.parametrize("slots", [1, 3, 4, 7])
def test_more_slots_run_further_ahead(slots: int) -> None:
    for seed in range(300):
        run, tokens = serve_these("async", seed, slots=slots)
        assert tokens == EXPECTED
        assert everything_is_given_back(run)
        run, tokens = serve_these("async", seed, slots=slots, stop_tokens=STOP)
        assert tokens == EXPECTED_WITH_STOP
        assert everything_is_given_back(run)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7])
def test_bursts_are_right_in_every_order(slots: int) -> None:
    for seed in range(300):
        run, tokens = serve_these("multi", seed, slots=slots)
        assert tokens == EXPECTED
        assert everything_is_given_back(run)
        run, tokens = serve_these("multi", seed, slots=slots, stop_tokens=STOP)
        assert tokens == EXPECTED_WITH_STOP
        assert slots > 1 or not run.scheduler.counters.dropped
        assert everything_is_given_back(run)


@pytest.mark.parametrize("event", ["inputs_ready", "outputs_ready", "done"])
def test_a_burst_needs_its_events(event: str) -> None:
    broken = (event,)
    assert any(serve_these("multi", seed, slots=3, broken=broken).tokens != EXPECTED for seed in range(FAULT_SEEDS))


def test_more_slots_compute_more_behind_a_stop_token() -> None:
    dropped = [
        serve_these("async", 0, slots=slots, stop_tokens=STOP).run.scheduler.counters.dropped for slots in (1, 2, 3)
    ]
    assert dropped == sorted(set(dropped))
    assert dropped[0] == 0


def test_one_slot_is_enough_for_sync() -> None:
    assert all(serve_these("sync", seed, slots=1).tokens == EXPECTED for seed in range(20))


def test_preemption_happens_in_this_workload() -> None:
    assert serve_these("async", 0).run.scheduler.counters.preemptions > 0
    assert serve_these("sync", 0).run.scheduler.counters.preemptions > 0
