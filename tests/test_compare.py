"""Did the change work: aligned steps, runs of different lengths, intervals, workloads, and what counts as worse."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import COMPUTE, ENGINE, Row, trace_of, traces
from rich.console import Console
from typer.testing import CliRunner

from cbprof.analysis.gate.compare import FailIf, Ratio, block_edges, compare, ratio_of_sums
from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import load, save
from cbprof.render.tables.summary import comparison_table
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

WORKLOAD = {"batch": 4, "requests": 4, "new_tokens": [10, 10]}


def run(*, steps: int = 20, host: int = 20, gpu: int = 80, tokens: int | None = None, **meta: object) -> Trace:
    """Steps of ``host`` ns of work and ``gpu`` ns of compute, one after the other; four tokens a step."""
    rows: list[Row] = []
    for step in range(steps):
        start = step * (host + gpu)
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, start + host - 5, step),
            (ENGINE, Kind.CPU_WORK, "launch", start + host - 5, start + host, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start + host, start + host + gpu, step),
        ]
    facts = {"evidence": "emulated", "workload": WORKLOAD, "tokens": 4 * steps if tokens is None else tokens}
    return trace_of(*rows, **{**facts, **meta})


def value_within(ratio: Ratio | None) -> float:
    """The value of a ratio, which its interval must hold."""
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= ratio.value <= ratio.high
    return ratio.value


def test_a_run_against_itself() -> None:
    found = compare(run(), run())
    assert found.same_workload is True
    assert found.differences == ()
    assert (found.per_step, found.per_token, found.idle_pp) == (Ratio(1, 1, 1), Ratio(1, 1, 1), 0)


def test_half_the_host_work() -> None:
    found = compare(run(host=40, gpu=60), run(host=20, gpu=60))
    assert value_within(found.per_token) == 0.8
    assert found.idle_pp == pytest.approx(25 - 40)
    schedule, launch = found.phases
    assert (schedule.name, schedule.before_ns, schedule.after_ns, schedule.ratio) == ("schedule", 35, 15, 15 / 35)
    assert (schedule.before_exposed_ns, schedule.after_exposed_ns) == (35, 15)
    assert launch.ratio == 1


def test_runs_of_different_lengths_are_compared_per_token_and_by_the_steps_that_both_have() -> None:
    found = compare(run(steps=20), run(steps=50, host=30, gpu=70))
    assert found.n_aligned == 20
    assert value_within(found.per_token) == 1
    # The last period of a run lasts until its end, which lacks the 20 or 30 ns before the next compute.
    assert value_within(found.per_step) == 20 * 100 / (19 * 100 + 80)
    twice_the_tokens = compare(run(steps=20), run(steps=20, tokens=160))
    assert twice_the_tokens.per_token == Ratio(0.5, 0.5, 0.5)
    assert twice_the_tokens.per_step == Ratio(1, 1, 1)


def test_a_few_steps_have_a_ratio_and_no_interval() -> None:
    assert compare(run(steps=3), run(steps=3)).per_step == Ratio(1, None, None)


def test_a_phase_of_only_one_run() -> None:
    extra: Row = (ENGINE, Kind.CPU_WORK, "detokenize", 20, 70, 0)
    step: list[Row] = [
        (ENGINE, Kind.CPU_WORK, "launch", 0, 20, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 20, 100, 0),
    ]
    other = trace_of(*step, extra, evidence="emulated")
    change = next(change for change in compare(run(), other).phases if change.name == "detokenize")
    assert (change.before_ns, change.after_ns, change.ratio) == (None, 50, None)


def test_differences_are_named() -> None:
    before = run(model="tiny", device="A", workload={**WORKLOAD, "tokens": 1})
    after = run(model="big", device="B", workload={**WORKLOAD, "new_tokens": [9, 9], "tokens": 2})
    found = compare(before, after)
    assert found.same_workload is False
    assert [(each.key, each.before, each.after) for each in found.differences] == [
        ("workload.new_tokens", [10, 10], [9, 9]),
        ("model", "tiny", "big"),
        ("device", "A", "B"),
    ]


def test_what_only_one_trace_states_is_a_difference_but_no_other_workload() -> None:
    found = compare(run(), run(dtype="bfloat16"))
    assert found.same_workload is True
    assert [(each.key, each.before) for each in found.differences] == [("dtype", None)]
    assert compare(run(), run(workload=None)).same_workload is None
    assert compare(run(device="A"), run(device="B")).same_workload is True, "another device, the same question"


def test_nothing_to_compare() -> None:
    found = compare(TraceBuilder().build(), run())
    assert (found.per_step, found.per_token, found.idle_pp, found.n_aligned) == (None, None, None, 0)
    json.dumps(found.to_json())


@given(traces(), traces())
def test_any_two_traces_compare(before: Trace, after: Trace) -> None:
    json.dumps(compare(before, after).to_json())


# --- the bootstrap ---


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """200 pairs of runs whose blocks vary by 10 % around a true ratio of 1.05."""
    rng = np.random.default_rng(1)
    held = 0
    for seed in range(200):
        before, after = (rng.normal(mean, mean / 10, 50).astype(np.int64) for mean in (1_000_000, 1_050_000))
        found = ratio_of_sums(before, after, seed=seed)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.05 <= found.high
    assert 180 <= held <= 199


def test_a_trend_that_both_runs_share_does_not_widen_the_interval() -> None:
    before = np.arange(1000, 51_000, 1000)
    assert ratio_of_sums(before, before * 2) == Ratio(2, 2, 2)


def test_the_interval_is_the_same_for_the_same_seed() -> None:
    before, after = np.arange(1, 30), np.arange(2, 31)[::-1].copy()
    assert ratio_of_sums(before, after, seed=3) == ratio_of_sums(before, after, seed=3)
    assert ratio_of_sums(before, after, seed=3) != ratio_of_sums(before, after, seed=4)


@given(st.integers(0, 300), st.integers(1, 60))
def test_blocks_cover_every_step_once(count: int, blocks: int) -> None:
    edges = block_edges(count, blocks)
    sizes = np.diff(edges)
    assert sizes.sum() == count
    assert len(sizes) == min(blocks, count)
    assert sizes.max(initial=0) - sizes.min(initial=count) <= 1


# --- what counts as worse ---


@pytest.mark.parametrize(
    ("condition", "passed"),
    [
        ("slower:9.9%", False),
        ("slower:10%", True),
        ("idle:7.2pp", False),
        ("idle:7.3pp", True),
        ("longest-gap:49%", False),
        ("longest-gap:50%", True),
        ("p99-step:9%", False),
        ("p99-step:10%", True),
        ("workload", True),
    ],
)
def test_conditions(condition: str, passed: bool) -> None:
    """20 ns of host work and 80 of compute against 30 and 80: 10 % slower, 20 % and then 27.27 % idle."""
    assert FailIf.parse(condition).judge(compare(run(), run(host=30))).passed is passed


def two_gpus(worse: int, period: int) -> Trace:
    """4000 ns on two GPUs: one takes 100 ns a step, GPU ``worse`` as long as asked for; each step computes for 50."""
    rows: list[Row] = [(ENGINE, Kind.CPU_WORK, "schedule", 0, 10, 0)]
    for device in (0, 1):
        length = period if device == worse else 100
        rows += [
            (Lane("compute", device), Kind.GPU_COMPUTE, "compute", (n + 1) * length - 50, (n + 1) * length, n)
            for n in range(4000 // length)
        ]
    return trace_of(*rows, evidence="emulated")


@pytest.mark.parametrize("worse", [0, 1])
def test_whichever_gpu_became_slower_fails(worse: int) -> None:
    found = compare(two_gpus(worse, 100), two_gpus(worse, 200))
    assert found.n_aligned == 20
    for text in ("slower:90%", "longest-gap:199%", "p99-step:90%", "idle:20pp"):
        assert not FailIf.parse(text).judge(found).passed, text
    assert all(FailIf.parse(text).judge(found).passed for text in ("longest-gap:200%", "p99-step:100%", "idle:25pp"))


def test_better_is_never_worse() -> None:
    found = compare(run(host=30), run())
    assert all(FailIf.parse(text).judge(found).passed for text in ("slower:0%", "idle:0pp", "longest-gap:0%"))


def test_what_is_unknown_fails() -> None:
    found = compare(TraceBuilder().build(), run())
    for text in ("slower:2%", "idle:1pp", "longest-gap:1%", "p99-step:1%", "workload"):
        assert not FailIf.parse(text).judge(found).passed, text


@pytest.mark.parametrize(
    "text", ["faster:2%", "slower", "slower:", "slower:2pp", "workload:1%", "idle:1%", "slower:-1%"]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-if"):
        FailIf.parse(text)


# --- the command ---


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    save(run(mode="sync"), tmp_path / "before.json")
    save(run(host=30, mode="sync", model="other|model"), tmp_path / "after.json")
    return ["compare", "before.json", "after.json"]


def test_the_command_says_what_changed(files: list[str]) -> None:
    result = CliRunner().invoke(app, files)
    assert result.exit_code == 0
    for text in ("the same workload", "other|model", "time per token", "1.10x [1.0", "host phase, per step"):
        assert text in result.stdout, text


def test_the_command_fails_where_it_got_worse(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--fail-if", "slower:2%", "--fail-if", "idle:50pp"])
    assert result.exit_code == 1
    assert "FAIL slower: time per token +10.00 %, allowed +2 %" in result.stdout
    assert "ok   idle: idle share +7.27 pp, allowed +50 pp" in result.stdout


def test_markdown(files: list[str]) -> None:
    text = CliRunner().invoke(app, [*files, "--format", "md", "--fail-if", "slower:2%"]).stdout
    assert "| GPU idle | 20.00 % | 27.27 % |" in text
    assert "| model | not stated | other\\|model |" in text
    assert "| FAIL | slower | time per token +10.00 %, allowed +2 % |" in text


def test_json(files: list[str]) -> None:
    document = json.loads(CliRunner().invoke(app, [*files, "--json", "--fail-if", "idle:1pp"]).stdout)
    assert document["time_per_token_ratio"]["value"] == 1.1
    assert document["files"] == ["before.json", "after.json"]
    assert [limit["passed"] for limit in document["fail_if"]] == [False]


def test_real_runs() -> None:
    """transformers on an H200, sync against async. The async run is complete, the sync run was stopped."""
    folder = Path(__file__).parent / "data" / "h200_transformers"
    found = compare(*(load(folder / f"{mode}_8b_bs32_8k.json.gz") for mode in ("sync", "async")))
    assert found.same_workload is True
    assert found.n_aligned == 7935
    assert found.idle_pp == pytest.approx(0.232 - 24.336, abs=0.002)
    assert found.per_step is not None
    assert found.per_step.value == pytest.approx(0.761, abs=0.001)
    assert found.per_token is not None
    assert found.per_token.value == pytest.approx((362.389 / 262_144) / (450.013 / 253_888), rel=1e-5)


def measured_by(evidence: str) -> Trace:
    return trace_of(*rows_of(), evidence=evidence)


def rows_of() -> list[Row]:
    rows: list[Row] = []
    for step in range(4):
        start = 100 * step
        rows += [
            (ENGINE, Kind.CPU_WORK, "launch", start, start + 10, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start + 10, start + 90, step),
        ]
    return rows


@pytest.mark.parametrize(
    ("before", "after"), [("cuda_events", "cupti"), ("cupti", "emulated"), ("emulated", "cuda_events")]
)
def test_what_was_measured_in_different_ways_is_not_compared(before: str, after: str) -> None:
    first, second = measured_by(before), measured_by(after)
    with pytest.raises(UsageError, match=rf"\({before}\).*\({after}\).*do not mean the same") as refused:
        compare(first, second)
    assert refused.value.exit_code == 2
    text = io.StringIO()
    Console(file=text, width=80).print(comparison_table(summarize(first), summarize(second)))
    assert "as fast" not in text.getvalue()
    assert "no figure of one can be set against the other" in " ".join(text.getvalue().replace("│", " ").split())


@pytest.mark.parametrize("other", ["predicted", "unknown", "cuda_events"])
def test_a_prediction_and_what_does_not_say_are_compared(other: str) -> None:
    assert compare(measured_by("cuda_events"), measured_by(other)).per_step is not None


def test_a_gain_above_the_bound_is_explained() -> None:
    """The GPU's own work took half the time: twice as fast, where a GPU that never waits gives 1.22."""
    faster = [(lane, kind, name, a // 2, b // 2, step) for lane, kind, name, a, b, step in rows_of()]
    texts = []
    for after in (faster, rows_of()):
        text = io.StringIO()
        tables = comparison_table(summarize(trace_of(*rows_of())), summarize(trace_of(*after)))
        Console(file=text, width=80).print(tables)
        texts.append(" ".join(text.getvalue().replace("│", " ").split()))
    explained = "and more, since the GPU's own work took less time as well"
    assert [explained in text for text in texts] == [True, False]
