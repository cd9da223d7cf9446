"""Random workloads on the simulated device: the loops keep their promises whatever the limits are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import alone, everything_is_given_back, serve

from cbprof.engine.batch import Batch
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.hooks import NoHooks
from cbprof.engine.request import Request
from cbprof.engine.scheduler import Scheduler
from cbprof.errors import UsageError

VOCAB = 11  # few tokens, so that stop tokens are met


@dataclass(frozen=True)
class Case:
    """A workload and the limits it is served under."""

    config: EngineConfig
    shapes: tuple[tuple[int, int, int], ...]
    """Prompt length, new tokens and arrival of each request."""
    stop_tokens: tuple[int, ...]
    seed: int

    def requests(self) -> list[Request]:
        return [
            Request(i, [(i + j) % VOCAB for j in range(prompt)], new, stop_tokens=self.stop_tokens, arrival_ns=arrival)
            for i, (prompt, new, arrival) in enumerate(self.shapes)
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shapes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(0, 12)), min_size=1, max_size=7))
    longest = max(prompt + new for prompt, new, _ in shapes)
    block_size = draw(st.integers(1, 4))
    batch = draw(st.integers(1, 4))
    config = EngineConfig(
        max_batch=batch,
        max_batch_tokens=draw(st.integers(batch, 12)),
        prefill_chunk=draw(st.integers(1, 6)),
        max_context=longest,
        block_size=block_size,
        num_blocks=-(-longest // block_size) + draw(st.integers(0, 6)),
    )
    return Case(
        config, tuple(shapes), tuple(draw(st.lists(st.integers(0, VOCAB - 1), max_size=2))), draw(st.integers(0, 999))
    )


@dataclass
class Watcher(NoHooks):
    """Hooks that keep what the loops report."""

    batches: list[Batch] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    arrived_at: dict[int, int] = field(default_factory=dict)

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        self.finished += finished

    def arrived(self, request: int, time_ns: int) -> None:
        self.arrived_at[request] = time_ns


@settings(max_examples=100)
@given(case=cases(), mode=st.sampled_from(["sync", "async"]))
def test_every_workload_is_served_right(case: Case, mode: Mode) -> None:
    config, requests, watcher = case.config, case.requests(), Watcher()
    run = serve(config, requests, mode, seed=case.seed, vocab_size=VOCAB, hooks=watcher)

    assert [request.generated for request in requests] == [alone(request, VOCAB) for request in requests]
    assert sorted(watcher.finished) == list(range(len(requests))), "each request finishes once"
    assert sorted(watcher.arrived_at) == list(range(len(requests)))
    assert everything_is_given_back(run)
    for batch in watcher.batches:
        assert 1 <= batch.num_requests <= config.max_batch
        assert batch.num_tokens <= config.max_batch_tokens
        assert all(1 <= row.tokens <= config.prefill_chunk for row in batch.rows)
        assert len({row.request.id for row in batch.rows}) == batch.num_requests
    if mode == "sync" or not case.stop_tokens:
        assert run.scheduler.counters.dropped == 0


@settings(max_examples=60)
@given(case=cases())
def test_both_loops_make_the_same_batches_when_requests_end_by_length(case: Case) -> None:
    shapes = []
    for mode in ("sync", "async"):
        requests = [Request(i, [1] * prompt, new) for i, (prompt, new, _) in enumerate(case.shapes)]
        watcher = Watcher()
        run = serve(case.config, requests, mode, seed=1, vocab_size=VOCAB, hooks=watcher)
        if run.scheduler.counters.preemptions:  # a victim that is still out comes back one batch later
            return
        shapes.append([[(row.request.id, row.start, row.tokens) for row in batch.rows] for batch in watcher.batches])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_prompts_in_chunks_are_not_admitted_beyond_the_cache(mode: Mode) -> None:
    """Each prompt takes half of the cache, a chunk at a time: two fit, and a third would push one out every time."""
    config = EngineConfig(
        max_batch=8, max_batch_tokens=32, prefill_chunk=8, max_context=80, block_size=4, num_blocks=40, slots=2
    )
    requests, watcher = [Request(index, [1] * 64, 8) for index in range(12)], Watcher()
    run = serve(config, requests, mode, seed=1, vocab_size=VOCAB, hooks=watcher)
    computed = sum(batch.num_tokens for batch in watcher.batches)
    assert run.scheduler.counters.preemptions == 0
    assert computed == 12 * (64 + 7)


def test_a_request_longer_than_the_longest_context_is_refused() -> None:
    config = EngineConfig(max_batch=1, max_context=32, block_size=16)
    with pytest.raises(UsageError, match=r"request 0 needs 40 tokens .*the longest context is 32"):
        Scheduler(config, [Request(0, [1] * 30, 10)])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_batch": 0}, "max batch is 0: it must be at least 1"),
        ({"max_batch": 9, "max_batch_tokens": 8}, "room for at least one token"),
        ({"num_blocks": -1}, "num blocks is -1"),
        ({"num_blocks": 4, "max_context": 65}, "4 KV blocks of 16 hold 64 tokens, but one request may need 65"),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EngineConfig(**limits)  # type: ignore[arg-type]
