"""Hazards: planted ones of each kind are found, correct runs have none, and jitter within the clock error is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import traces
from replay_oracle import Costs, costs, trace_of_run
from simulated_device import SimulatedDevice
from simulation import serve
from test_tracer import CONFIG, Ticks, make

from cbprof.analysis.hazards.hazards import Example, Hazards, Verdict, find_hazards
from cbprof.engine import async_loop, sync_loop
from cbprof.engine.config import Mode
from cbprof.engine.request import Request
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.meta import Meta
from cbprof.record.clocks.base import ClockErrors, Times
from cbprof.record.span_tracer import SpanTracer
from cbprof.trace import Kind, Trace, TraceBuilder

DATA = Path(__file__).parent / "data"
REAL = DATA / "h200_transformers"

Change = Callable[[str, int, int, int], tuple[int, int]]
"""(name, step, start, end) of a span to its new start and end."""


def changed(trace: Trace, change: Change, **meta: Any) -> Trace:
    """The trace with other times. Facts of None are taken out of its metadata."""
    builder = TraceBuilder()
    for lane in trace.lanes:
        builder.lane(lane)
    for row in range(len(trace)):
        name, step = trace.name_of(row), int(trace.step[row])
        name = f"{name} on device" if trace.on_device[row] else name
        start, end = change(name, step, int(trace.start_ns[row]), int(trace.end_ns[row]))
        builder.span(
            int(trace.lane_id[row]),
            Kind(trace.kind[row]),
            trace.name_of(row),
            start,
            end - start,
            step=step,
            slot=int(trace.slot[row]),
            link=int(trace.link[row]),
        )
    facts = {**trace.meta.to_json(), **meta}
    return builder.build(Meta.parse({key: value for key, value in facts.items() if value is not None}))


def moved(moves: str, of_step: int, by: int) -> Change:
    def change(name: str, step: int, start: int, end: int) -> tuple[int, int]:
        shift = by if (name, step) == (moves, of_step) else 0
        return start + shift, end + shift

    return change


def async_trace(steps: int = 6, **meta: Any) -> Trace:
    """All costs in microseconds, so that there is room for errors of some hundred nanoseconds."""
    trace = trace_of_run([Costs()] * steps, 2)
    return changed(trace, lambda _name, _step, start, end: (1000 * start, 1000 * end), **meta)


def found_in(hazards: Hazards) -> list[str]:
    return [result.rule.key for result in hazards.rules if result.verdict is Verdict.FOUND]


# What the rules compare, by hand. In steady state of the trace above, in us: compute N is [8 + 20N, 28 + 20N], D2H N
# follows for 1, update N for 2, then schedule, prepare, h2d, launch of N+2 from 31 + 20N on; its H2D is [37, 39] + 20N.
PLANTED = {
    # compute 3 is [68, 88]; H2D 3 was [57, 59]
    "h2d_before_compute": ("h2d on device", 3, 10_500, Example(3, 3, 1_500)),
    # D2H 2 was [68, 69], compute 2 ends at 68
    "compute_before_d2h": ("d2h on device", 2, -400, Example(2, 2, 400)),
    # update 2 starts when D2H 2 ends, at 69
    "d2h_before_update": ("d2h on device", 2, 300, Example(2, 2, 300)),
    "compute_in_order": ("compute on device", 3, -700, Example(2, 3, 700)),
    # prepare 4 was [73, 76]; H2D 2 ended at 39
    "host_buffer_kept": ("prepare", 4, -35_000, Example(2, 4, 1_000)),
    # H2D 4 was [77, 79]; compute 2 ended at 68
    "inputs_kept": ("h2d on device", 4, -9_900, Example(2, 4, 900)),
    # compute 4 starts at 88; D2H 2 ended at 69
    "outputs_kept": ("d2h on device", 2, 19_800, Example(2, 4, 800)),
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_hazard_is_found(rule: str) -> None:
    name, step, by, example = PLANTED[rule]
    trace = async_trace(clock_error_ns=200, device_error_ns=100, edges=None)
    hazards = find_hazards(changed(trace, moved(name, step, by)))
    result = hazards[rule]
    assert hazards.found
    assert result.verdict is Verdict.FOUND
    assert (result.n_found, result.examples) == (1, (example,))
    assert result.worst_margin_ns == -example.late_ns
    assert result.missing is None


@pytest.mark.parametrize("rule", PLANTED)
def test_within_the_error_it_is_only_possible(rule: str) -> None:
    name, step, by, example = PLANTED[rule]
    trace = async_trace(clock_error_ns=40_000, device_error_ns=40_000, edges=None)
    hazards = find_hazards(changed(trace, moved(name, step, by)))
    result = hazards[rule]
    assert not hazards.found
    assert result.verdict is Verdict.POSSIBLE
    assert (result.n_possible, result.examples) == (1, (example,))


def test_the_clock_error_counts_where_host_and_device_meet_and_the_device_error_elsewhere() -> None:
    for errors, host, device in (
        ((500, 0), Verdict.POSSIBLE, Verdict.FOUND),
        ((0, 500), Verdict.FOUND, Verdict.POSSIBLE),
    ):
        facts = dict(zip(("clock_error_ns", "device_error_ns"), errors, strict=True))
        trace = async_trace(**facts)
        assert find_hazards(changed(trace, moved("d2h on device", 2, 300)))["d2h_before_update"].verdict is host
        assert find_hazards(changed(trace, moved("d2h on device", 2, -400)))["compute_before_d2h"].verdict is device


def test_tokens_carried_over_are_read_before_their_slot_computes_again() -> None:
    """Compute 3 reads the output of batch 2 and lasts into compute 4, which overwrites it."""

    def change(name: str, step: int, start: int, end: int) -> tuple[int, int]:
        return start, end + (600 if (name, step) == ("compute on device", 3) else 0)

    hazards = find_hazards(changed(async_trace(), change))
    assert hazards["outputs_kept"].examples == (Example(3, 4, 600),)
    assert "compute_in_order" in found_in(hazards)


def test_an_update_that_does_not_wait() -> None:
    """Update 2 begins at 50 us, long before its tokens are there."""
    hazards = find_hazards(changed(async_trace(), moved("update", 2, -19_000)))
    assert found_in(hazards) == ["d2h_before_update"]


@given(st.lists(costs, min_size=1, max_size=6), st.integers(1, 3))
def test_a_correct_run_has_none(steps: list[Costs], slots: int) -> None:
    hazards = find_hazards(trace_of_run(steps, slots))
    assert not hazards.found
    assert hazards.edges_known
    assert hazards.missing == ()
    assert all(result.n_possible == 0 for result in hazards.rules)


@given(st.lists(costs, min_size=2, max_size=6), st.integers(1, 3), st.integers(0, 9), st.integers(-9, 9), st.integers())
def test_jitter_within_the_clock_error_is_never_found(
    steps: list[Costs], slots: int, jitter: int, offset: int, seed: int
) -> None:
    """Each time of the device is off by up to ``jitter``, and all of them together against the host by ``offset``."""
    draw = random.Random(seed)

    def change(name: str, step: int, start: int, end: int) -> tuple[int, int]:
        if "on device" not in name:
            return start, end
        start, end = (time + offset + draw.randint(-jitter, jitter) for time in (start, end))
        return start, max(start, end)  # moves an end by less than its jitter allows

    trace = trace_of_run(steps, slots)
    assert not find_hazards(
        changed(trace, change, clock_error_ns=abs(offset) + jitter, device_error_ns=2 * jitter)
    ).found
    if offset == 0:  # and where the file states no error: events resolve half a microsecond
        assert not find_hazards(changed(trace, change, clock_error_ns=None, device_error_ns=None)).found


# Files that state no error --------------------------------------------------------------------------------------------

UNSTATED = {"clock_error_ns": None, "device_error_ns": None}


def test_errors_are_derived_from_impossible_orders() -> None:
    """Compute 3 overlaps compute 2 on one stream by 7 us, and H2D 4 starts 30 us before its launch does, at 76 us."""

    def change(name: str, step: int, start: int, end: int) -> tuple[int, int]:
        shift = {("compute on device", 3): -7_000, ("h2d on device", 4): -31_000}.get((name, step), 0)
        return start + shift, end + shift

    bounds = find_hazards(changed(async_trace(), change, **UNSTATED)).bounds
    assert (bounds.device.ns, bounds.device.stated, bounds.device.impossible) == (7_000, False, 1)
    assert (bounds.clock.ns, bounds.clock.stated, bounds.clock.impossible) == (30_000, False, 1)


def test_an_overlap_on_one_stream_says_that_the_clock_is_off() -> None:
    """No in-order stream overlaps itself, so this is no race, and a D2H that early is none either."""
    trace = changed(async_trace(), moved("compute on device", 3, -7_000), **UNSTATED)
    trace = changed(trace, moved("d2h on device", 4, -6_000))
    hazards = find_hazards(trace)
    assert not hazards.found
    assert hazards["compute_in_order"].verdict is Verdict.POSSIBLE
    assert hazards["compute_before_d2h"].verdict is Verdict.POSSIBLE
    assert hazards["compute_before_d2h"].error_ns == 7_000


def test_what_the_file_states_is_taken_as_it_is() -> None:
    trace = changed(async_trace(), moved("compute on device", 3, -7_000), clock_error_ns=None, device_error_ns=10)
    hazards = find_hazards(trace)
    assert hazards.bounds.device.stated
    assert not hazards.bounds.clock.stated
    assert "compute_in_order" in found_in(hazards)


# Orderings that were never asked for ----------------------------------------------------------------------------------


def requests() -> list[Request]:
    return [Request(index, [1 + index] * (3 + index), 4) for index in range(4)]


def recorded(mode: Mode = "async", **device: Any) -> Trace:
    """A run of the engine on the simulated device. Device times are those of the launch, so that no race shows."""
    tracer, sink, _ = make()
    config = device.pop("config", CONFIG)
    serve(config, requests(), mode, seed=1, vocab_size=97, hooks=tracer, **device)
    edges = [
        {name: getattr(edge, name) for name in ("event", "recorded_on", "waiter", "steps_before", "count")}
        for edge in tracer.close().edges
    ]
    return sink.build(Meta.parse({"mode": mode, "clock_error_ns": 10**6, "device_error_ns": 10**6, "edges": edges}))


def test_the_loops_ask_for_every_ordering() -> None:
    for mode in ("sync", "async"):
        hazards = find_hazards(recorded(mode))  # type: ignore[arg-type]
        assert hazards.edges_known
        assert not hazards.found


@pytest.mark.parametrize(
    ("event", "rule", "text"),
    [
        ("inputs_ready", "h2d_before_compute", "compute N never waits for H2D N"),
        ("outputs_ready", "compute_before_d2h", "D2H N never waits for compute N"),
    ],
)
def test_a_forgotten_event_is_named_although_timing_hid_it(
    monkeypatch: pytest.MonkeyPatch, event: str, rule: str, text: str
) -> None:
    order = async_loop.order
    monkeypatch.setattr(async_loop, "order", lambda e, *rest: None if e.name == event else order(e, *rest))
    hazards = find_hazards(recorded())
    assert found_in(hazards) == [rule]
    assert hazards[rule].n_found == 0
    assert [missing.text for missing in hazards.missing] == [text]


def test_an_event_waited_for_but_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(event: Any, first: Any, then: Any, step: int, hooks: Any) -> None:
        then.wait(event)
        hooks.waited(event, then, step)

    monkeypatch.setattr(async_loop, "order", order)
    hazards = find_hazards(recorded())
    assert found_in(hazards) == ["h2d_before_compute", "compute_before_d2h"]
    assert hazards.missing[0].text.endswith("; it waits for inputs_ready, which was never recorded")


def test_an_event_waited_for_before_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait then takes the record of the last batch in this slot."""

    def order(event: Any, first: Any, then: Any, step: int, hooks: Any) -> None:
        then.wait(event)
        hooks.waited(event, then, step)
        event.record(first)
        hooks.recorded(event, first, step)

    monkeypatch.setattr(async_loop, "order", order)
    missing = find_hazards(recorded())["compute_before_d2h"].missing
    assert missing is not None
    assert "D2H N never waits for compute N" in missing.text
    assert "it waits for outputs_ready as recorded 2 steps earlier" in missing.text


def test_an_event_forgotten_in_some_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    order = async_loop.order
    monkeypatch.setattr(
        async_loop, "order", lambda e, a, b, step, hooks: None if step == 2 else order(e, a, b, step, hooks)
    )
    trace = recorded()
    missing = find_hazards(trace)["h2d_before_compute"].missing
    assert missing is not None
    assert missing.text == f"compute N does not wait for H2D N, in 1 of {len(trace.steps)} steps"


@pytest.mark.parametrize(("mode", "loop"), [("sync", sync_loop), ("async", async_loop)])
def test_a_host_that_does_not_wait(monkeypatch: pytest.MonkeyPatch, mode: Mode, loop: Any) -> None:
    monkeypatch.setattr(loop, "block", lambda *arguments: None)
    trace = recorded(mode)
    # Without any wait of the host a sync run notes no edge at all, which is as if it had not been asked.
    if mode == "sync":
        assert not find_hazards(trace).edges_known
    else:
        assert find_hazards(trace)["d2h_before_update"].missing is not None


def test_one_slot_for_two_batches() -> None:
    hazards = find_hazards(recorded(shared_slot=True))
    assert found_in(hazards) == ["d2h_before_update", "host_buffer_kept"]
    assert "as recorded 1 step later" in hazards.missing[0].text
    assert "first batch 1 in the slot of batch 0" in hazards.missing[1].text


def test_a_host_that_waits_for_the_copy_itself_may_prepare_early() -> None:
    """An engine with one pinned buffer may wait for its H2D before it rewrites it."""
    trace = changed(async_trace(), moved("prepare", 4, -20_000))
    assert found_in(find_hazards(trace)) == ["host_buffer_kept"]
    waits = {"event": "copied", "recorded_on": "h2d", "waiter": "host", "steps_before": 2, "count": 6}
    assert not find_hazards(changed(trace, moved("", 0, 0), edges=[*trace.meta.to_json()["edges"], waits])).found


@pytest.mark.parametrize("edges", [None, [], "edges", ["done"], [{"event": "done"}]])
def test_edges_that_say_nothing_are_not_held_against_a_run(edges: Any) -> None:
    hazards = find_hazards(async_trace(edges=edges))
    assert not hazards.edges_known
    assert not hazards.found


# On a device that stamps what it really ran ---------------------------------------------------------------------------


class StampedOperations:
    """A device clock over the simulated device: operations are stamped when the seeded draw lets them happen."""

    errors = ClockErrors(0, 0)
    programs = {"h2d": "h2d", "step": "compute", "d2h": "d2h"}  # noqa: RUF012

    def __init__(self, now: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued = dict.fromkeys(self.programs.values(), 0)
        self.stamps: dict[str, list[Times]] = {stream: [] for stream in self.queued}
        execute_one = SimulatedDevice.execute_one

        def execute_and_stamp(device: SimulatedDevice) -> None:
            heads = [(queue, queue[0], len(queue)) for queue in device._queues.values() if queue]
            start = now()
            execute_one(device)
            (done,) = {head.what: head for queue, head, size in heads if len(queue) < size}.values()
            if done.what in self.programs:
                self.stamps[self.programs[done.what]].append(Times(start, now()))

        monkeypatch.setattr(SimulatedDevice, "execute_one", execute_and_stamp)

    def begin(self, stream: Any) -> tuple[str, int]:
        self.queued[stream.kind] += 1
        return stream.kind, self.queued[stream.kind] - 1

    def end(self, stream: Any, handle: tuple[str, int]) -> tuple[str, int]:
        return handle

    def resolve(self, handle: tuple[str, int]) -> Times | None:
        stream, index = handle
        return self.stamps[stream][index] if index < len(self.stamps[stream]) else None

    def anchor(self, *, final: bool = False) -> None:
        pass

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass


def stamped(monkeypatch: pytest.MonkeyPatch, seeds: int, broken: tuple[str, ...] = ()) -> Iterator[Hazards]:
    """What is found in runs whose order is drawn from each seed."""
    for seed in range(seeds):
        with monkeypatch.context() as patch:
            now, sink = Ticks(), TraceBuilder()
            tracer = SpanTracer(sink, StampedOperations(now, patch), now=now)
            serve(CONFIG, requests(), "async", seed=seed, vocab_size=97, eagerness=0.3, broken=broken, hooks=tracer)
            closed = tracer.close(patience_s=0)
        errors = {"clock_error_ns": closed.clock_error_ns, "device_error_ns": closed.device_error_ns}
        yield find_hazards(sink.build(Meta.parse({"mode": "async", **errors})))


def test_every_order_that_the_events_allow_is_free_of_hazards(monkeypatch: pytest.MonkeyPatch) -> None:
    for hazards in stamped(monkeypatch, seeds=20):
        assert not hazards.found
        assert all(result.n_pairs > 0 for result in hazards.rules)


@pytest.mark.parametrize(
    ("event", "rule"),
    [("inputs_ready", "h2d_before_compute"), ("outputs_ready", "compute_before_d2h"), ("done", "d2h_before_update")],
)
def test_an_event_that_the_device_ignores_shows_in_some_order(
    monkeypatch: pytest.MonkeyPatch, event: str, rule: str
) -> None:
    assert any(hazards[rule].n_found for hazards in stamped(monkeypatch, seeds=20, broken=(event,)))


# Reports --------------------------------------------------------------------------------------------------------------


def test_the_json_has_the_promised_keys() -> None:
    report = find_hazards(changed(async_trace(), moved("compute on device", 3, -700))).to_json()
    assert report["found"] is True
    assert report["device_error"] == {"ns": 1, "stated": True, "impossible_orders": 0}
    rules = {rule["rule"]: rule for rule in report["rules"]}
    assert list(rules) == list(PLANTED)
    assert rules["compute_in_order"]["verdict"] == "found"
    assert rules["compute_in_order"]["examples"] == [{"earlier_step": 2, "later_step": 3, "late_ns": 700}]
    assert rules["inputs_kept"]["missing_edge"] is None


def test_what_a_trace_does_not_hold_is_not_checked() -> None:
    hazards = find_hazards(trace_of_run([Costs(h2d=0, d2h=0)] * 4, 2))
    assert hazards["h2d_before_compute"].verdict is Verdict.NOT_CHECKED
    assert hazards["compute_in_order"].verdict is Verdict.NOT_SEEN
    assert hazards["d2h_before_update"].n_pairs == 4, "held against compute where nothing is copied back"
    assert hazards.lacking == ("H2D spans", "D2H spans")


def test_a_trace_without_batches_is_refused() -> None:
    for trace in (TraceBuilder().build(), async_trace(evidence="cupti")):
        with pytest.raises(UsageError, match="nothing to check"):
            find_hazards(trace)


@given(traces(), st.sampled_from(["sync", "async", None]))
def test_any_trace_is_checked_or_refused(trace: Trace, mode: str | None) -> None:
    try:
        hazards = find_hazards(replace(trace, meta=trace.meta.changed(mode=mode)))
    except UsageError:
        assert not (trace.on_device & (trace.step >= 0)).any()
    else:
        assert hazards.found == any(result.n_found for result in hazards.rules)
        assert all(result.n_found + result.n_possible <= result.n_pairs for result in hazards.rules)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_recorded_pair_on_the_device_process(mode: str) -> None:
    hazards = find_hazards(load(DATA / f"host_{mode}.json.gz"))
    assert hazards.edges_known
    assert {result.verdict for result in hazards.rules} == {Verdict.NOT_SEEN}


def test_the_real_runs_are_within_the_clock_error() -> None:
    sync, overlapped = (find_hazards(load(REAL / f"{mode}_8b_bs32_8k.json.gz")) for mode in ("sync", "async"))
    assert not sync.found
    assert not overlapped.found
    assert (overlapped.bounds.device.impossible, overlapped.bounds.device.ns) == (175, 20_706)
    early = overlapped["compute_before_d2h"]
    assert (early.verdict, early.n_possible, early.worst_margin_ns) == (Verdict.POSSIBLE, 173, -12_642)
