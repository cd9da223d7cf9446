"""Tokens computed in vain: in the engine's own counts, request by request, and in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console, RenderableType
from virtual_time import Costs, record_virtual, stop_tokens

from cbprof.analysis.gate.compare import compare
from cbprof.analysis.requests.lives import lives
from cbprof.analysis.requests.lost import LostWork, computed_again
from cbprof.analysis.summary import summarize
from cbprof.engine.config import EngineConfig
from cbprof.engine.run import Run
from cbprof.engine.workload import Workload
from cbprof.numbers import UNKNOWN
from cbprof.render.tables.compare import comparison_panels, sheets
from cbprof.render.tables.summary import lost_in_words, summary_table
from cbprof.render.tables.summary_sheets import key_figures
from cbprof.riders import NO_RIDERS
from cbprof.trace import Trace

CONFIG = EngineConfig(max_batch=8, max_batch_tokens=64, prefill_chunk=64, max_context=96, num_blocks=14)
WORKLOAD = Workload(requests=16, prompt_len=(10, 30), new_tokens=(40, 60), stop_tokens=stop_tokens(40))


def text_of(found: RenderableType) -> str:
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(found)
    return capture.get()


@pytest.fixture(scope="module")
def ahead() -> tuple[Trace, Run]:
    return record_virtual(CONFIG, WORKLOAD, "async", Costs())


@pytest.fixture(scope="module")
def in_turn() -> tuple[Trace, Run]:
    return record_virtual(CONFIG, WORKLOAD, "sync", Costs())


def test_what_was_lost_is_what_the_engine_counted(ahead: tuple[Trace, Run], in_turn: tuple[Trace, Run]) -> None:
    for trace, run in (ahead, in_turn):
        lost, counters = summarize(trace).lost, run.scheduler.counters
        assert lost is not None
        assert (lost.preemptions, lost.dropped) == (counters.preemptions, counters.dropped)
        assert lost.preemptions > 0
        own = lives(trace)
        assert lost == LostWork(
            *(sum(getattr(each, name) for each in own) for name in ("preemptions", "recomputed", "dropped"))
        )
    assert summarize(ahead[0]).lost.dropped > 0 == summarize(in_turn[0]).lost.dropped  # type: ignore[union-attr]


def test_stretches_of_a_run_share_what_it_lost(ahead: tuple[Trace, Run]) -> None:
    trace, _ = ahead
    whole, half = summarize(trace), int(trace.step.max()) // 2
    parts = [summarize(trace, steps=steps).lost for steps in ((None, half), (half, None))]
    assert whole.lost is not None
    for name in ("preemptions", "recomputed", "dropped"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole.lost, name)


def test_without_riders_the_run_itself_says_it(ahead: tuple[Trace, Run]) -> None:
    trace, _ = ahead
    bare = replace(trace, riders=NO_RIDERS)
    assert summarize(bare).lost is None
    told = replace(bare, meta=replace(bare.meta, extra={"dropped_tokens": 3, "preemptions": 2}))
    assert summarize(told).lost == LostWork(2, None, 3)
    assert summarize(told, steps=(0, 5)).lost is None
    for said in ({"dropped_tokens": "3", "preemptions": 2}, {"dropped_tokens": -1, "preemptions": 0}):
        assert summarize(replace(bare, meta=replace(bare.meta, extra=said))).lost is None


def test_rows_that_repeat_tokens() -> None:
    """Request 0 is preempted twice, the second time before it got as far again; 1 has no known start, 2 is whole."""
    request = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    start = np.array([0, 8, 0, 0, -1, 4, 0, 4])
    tokens = np.array([8, 4, 6, 14, 1, 4, 4, 4])
    again = computed_again(request, start, tokens)
    assert again.preempted.tolist() == [False, False, True, True, False, False, False, False]
    assert again.tokens.tolist() == [0, 0, 6, 12, 0, 0, 0, 0]
    nothing = np.empty(0, dtype=np.int64)
    assert not len(computed_again(nothing, nothing, nothing).tokens)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (None, UNKNOWN),
        (LostWork(0, 0, 0), "nothing"),
        (LostWork(1, 7, 0), "1 preemption, 7 tokens computed again"),
        (LostWork(2, None, 1), "1 token dropped, 2 preemptions"),
    ],
)
def test_in_words(lost: LostWork | None, words: str) -> None:
    assert lost_in_words(lost) == words


def test_reports_and_comparisons_show_it(ahead: tuple[Trace, Run], in_turn: tuple[Trace, Run]) -> None:
    summary = summarize(ahead[0])
    words = lost_in_words(summary.lost)
    assert "dropped" in words
    assert f"lost     {words}" in text_of(summary_table(summary))
    assert ("lost", words) in key_figures(summary).rows
    assert summary.to_json()["lost"]["dropped_tokens"] == ahead[1].scheduler.counters.dropped
    found = compare(in_turn[0], ahead[0])
    assert "tokens dropped" in text_of(comparison_panels(found, ("a", "b"), ()))
    assert ("lost", lost_in_words(found.before.lost), words) in next(iter(sheets(found, ("a", "b")))).rows
    assert found.to_json()["after"]["lost"] == summary.to_json()["lost"]


def test_a_run_that_lost_nothing_has_no_line_for_it() -> None:
    trace, _ = record_virtual(EngineConfig(max_batch=2), Workload(requests=2, new_tokens=(3, 3)), "async", Costs())
    summary = summarize(trace)
    assert summary.lost == LostWork(0, 0, 0)
    assert "lost" not in text_of(summary_table(summary))
    assert "dropped" not in text_of(comparison_panels(compare(trace, trace), ("a", "b"), ()))
