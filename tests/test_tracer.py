"""What the tracer writes: every span with its step and its link, facts before spans, and nothing half."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import serve

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.request import Request
from cbprof.errors import CbprofError
from cbprof.record import drain as drain_module
from cbprof.record.clocks.base import ClockErrors, NoClock, Times
from cbprof.record.drain import Edge, EdgeCounter
from cbprof.record.span_tracer import SpanTracer
from cbprof.riders import pack
from cbprof.trace import Kind, Lane, RequestEvent, TraceBuilder

H2D, COMPUTE, D2H = (SimpleNamespace(kind=kind) for kind in ("h2d", "compute", "d2h"))


@dataclass
class Ticks:
    """A host clock that advances by 10 ns a look."""

    time_ns: int = 1000

    def __call__(self) -> int:
        self.time_ns += 10
        return self.time_ns


@dataclass
class TickingClock:
    """Device times are the host's at ``begin`` and ``end``; ``ready`` says how many spans may be resolved."""

    now: Ticks
    ready: int = 1_000_000
    calls: list[str] = field(default_factory=list)
    errors = ClockErrors(70, 5)

    def begin(self, stream: Any) -> int:
        self.calls.append(f"begin {stream.kind}")
        return self.now()

    def end(self, stream: Any, handle: int) -> Times:
        self.calls.append(f"end {stream.kind}")
        return Times(handle, self.now())

    def resolve(self, handle: Times) -> Times | None:
        self.ready -= 1
        return handle if self.ready >= 0 else None

    def anchor(self, *, final: bool = False) -> None:
        self.calls.append("final anchor" if final else "anchor")

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.calls.append("pause")
        yield
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


class Log(TraceBuilder):
    """A sink that also notes the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def span(self, lane_id: int, kind: Kind, name: str, *times: int, **facts: Any) -> None:
        self.calls.append(f"span {name}")
        super().span(lane_id, kind, name, *times, **facts)

    def batch(self, step: int, **facts: Any) -> None:
        self.calls.append(f"batch {step}")
        super().batch(step, **facts)

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        self.calls.append(f"{event.name} {request}")
        super().request(event, request, time_ns)

    def tokens(self, requests: Sequence[int], time_ns: int) -> None:
        self.calls.append(f"TOKEN {pack(requests)}")
        super().tokens(requests, time_ns)

    def flush(self) -> None:
        self.calls.append("flush")


def make(ready: int = 1_000_000) -> tuple[SpanTracer, Log, TickingClock]:
    now, sink = Ticks(), Log()
    clock = TickingClock(now, ready)
    return SpanTracer(sink, clock, now=now), sink, clock


def rows(sink: TraceBuilder) -> list[tuple[str, str, int, int, int, int, int, Lane]]:
    """(name, category, start, duration, step, slot, link, lane) of each span."""
    trace = sink.build()
    return [
        (
            trace.name_of(i),
            Kind(trace.kind[i]).category,
            *(int(column[i]) for column in (trace.start_ns, trace.dur_ns, trace.step, trace.slot, trace.link)),
            trace.lanes[trace.lane_id[i]],
        )
        for i in range(len(trace))
    ]


def test_host_spans_nest_and_carry_their_step() -> None:
    tracer, sink, _ = make()
    with tracer.phase("update", 3, slot=1), tracer.phase("detokenize", 3):
        pass
    with tracer.wait("wait", 4, slot=0):
        pass
    tracer.drain()
    engine = Lane("engine")
    assert rows(sink) == [
        ("update", "cpu.work", 10, 30, 3, 1, -1, engine),
        ("detokenize", "cpu.work", 20, 10, 3, -1, -1, engine),
        ("wait", "cpu.wait", 50, 10, 4, 0, -1, engine),
    ]
    assert sink.calls[-1] == "flush"


def test_device_spans_are_linked_to_their_launches_and_lie_inside_them() -> None:
    now, sink = Ticks(), Log()
    tracer = SpanTracer(sink, TickingClock(now), lane="loop", now=now, device=2)
    for name, stream in [("h2d", H2D), ("launch", COMPUTE), ("fetch", D2H)]:
        with tracer.phase(name, 7, slot=1, stream=stream):
            pass
    tracer.drain()
    host = Lane("loop")
    assert rows(sink) == [
        ("h2d", "cpu.work", 10, 30, 7, 1, 0, host),
        ("h2d", "gpu.h2d", 20, 10, 7, 1, 0, Lane("h2d", device=2)),
        ("launch", "cpu.work", 50, 30, 7, 1, 1, host),
        ("compute", "gpu.compute", 60, 10, 7, 1, 1, Lane("compute", device=2)),
        ("fetch", "cpu.work", 90, 30, 7, 1, 2, host),
        ("d2h", "gpu.d2h", 100, 10, 7, 1, 2, Lane("d2h", device=2)),
    ]


def test_nothing_reaches_the_sink_or_the_device_before_the_drain() -> None:
    tracer, sink, clock = make()
    with tracer.phase("launch", 0, stream=COMPUTE):
        pass
    assert sink.calls == []
    assert clock.calls == ["begin compute", "end compute"]


def test_device_spans_wait_in_line_until_they_are_known() -> None:
    tracer, sink, clock = make(ready=1)
    for step in range(3):
        with tracer.phase("launch", step, stream=COMPUTE):
            pass
    tracer.drain()
    assert sink.calls.count("span launch") == 3
    assert sink.calls.count("span compute") == 1
    clock.ready = 2
    tracer.drain()
    assert [row[4] for row in rows(sink) if row[0] == "compute"] == [0, 1, 2]


def test_without_a_device_clock_there_are_only_host_spans() -> None:
    sink = Log()
    tracer = SpanTracer(sink, NoClock(), now=Ticks())
    with tracer.phase("launch", 0, stream=COMPUTE):
        pass
    recorded = tracer.close()
    assert [row[0] for row in rows(sink)] == ["launch"]
    assert rows(sink)[0][6] == -1
    assert (recorded.spans, recorded.dropped, recorded.clock_error_ns) == (1, 0, None)


def test_the_facts_of_a_batch_come_before_its_schedule_span() -> None:
    tracer, sink, _ = make()
    with tracer.phase("schedule", 5):
        tracer.batch(SimpleNamespace(step=5, num_tokens=12, num_requests=3, context=90, phase="mixed", rows=()))
    tracer.drain()
    assert sink.calls == ["batch 5", "span schedule", "flush"]
    steps = sink.build().steps
    assert [int(column[0]) for column in (steps.step, steps.tokens, steps.requests, steps.context)] == [5, 12, 3, 90]


def test_requests_arrive_get_tokens_and_finish() -> None:
    tracer, sink, _ = make()
    origin = tracer.origin_ns
    tracer.arrived(4, origin + 3)
    tracer.tokens({4: 99}, [])
    tracer.tokens({4: 98, 7: 1}, [4])
    tracer.tokens({7: 2}, [7])
    tracer.drain()
    assert sink.calls == [
        "ARRIVE 4", "FIRST 4", "FIRST 7", "TOKEN 4", "FINISH 4", "TOKEN 7", "FINISH 7", "flush",
    ]  # fmt: skip
    assert list(sink.build().requests.time_ns) == [3, 10, 20, 20, 20, 30, 30]
    assert tracer.token_count == 4


def test_the_tokens_of_a_step_are_one_record() -> None:
    tracer, sink, _ = make()
    tracer.tokens(dict.fromkeys(range(4), 9), [])
    tracer.tokens(dict.fromkeys(range(4), 9), [])
    tracer.drain()
    assert sink.calls == ["FIRST 0", "FIRST 1", "FIRST 2", "FIRST 3", "TOKEN 0-3", "flush"]


def test_the_loops_may_use_their_containers_again() -> None:
    tracer, sink, _ = make()
    produced, finished = {1: 5}, [1]
    tracer.tokens(produced, finished)
    produced.clear()
    finished.clear()
    tracer.drain()
    assert sink.calls == ["FIRST 1", "FINISH 1", "flush"]


def test_an_error_inside_a_phase_keeps_the_host_span_and_drops_the_device_span() -> None:
    tracer, sink, clock = make()
    with pytest.raises(KeyboardInterrupt), tracer.phase("launch", 0, stream=COMPUTE):
        raise KeyboardInterrupt
    recorded = tracer.close()
    assert [row[0] for row in rows(sink)] == ["launch"]
    assert recorded.dropped == 0
    assert "end compute" not in clock.calls


def test_a_phase_still_open_at_close_is_left_out() -> None:
    tracer, sink, _ = make()
    phase = tracer.phase("schedule", 0)
    phase.__enter__()
    tracer.close()
    assert len(sink) == 0


def test_a_capture_pauses_the_clock() -> None:
    tracer, sink, clock = make()
    with tracer.phase("capture", 2, slot=1):
        clock.calls.append("capturing")
    tracer.drain()
    assert clock.calls == ["pause", "capturing", "resume", "anchor"]
    assert [(row[0], row[1], row[4], row[5]) for row in rows(sink)] == [("capture", "cpu.work", 2, 1)]


def test_close_says_what_it_recorded() -> None:
    tracer, sink, clock = make()
    for step in range(2):
        with tracer.phase("launch", step, stream=COMPUTE):
            pass
    tracer.tokens({1: 2}, [])
    recorded = tracer.close()
    assert (recorded.tokens, recorded.spans, recorded.dropped) == (1, 4, 0)
    assert (recorded.clock_error_ns, recorded.device_error_ns, recorded.edges) == (70, 5, ())
    assert clock.calls[-2:] == ["final anchor", "close"]
    assert tracer.close() is recorded
    assert len(sink) == 4


def test_close_looks_past_a_span_that_never_ends_and_counts_it() -> None:
    tracer, sink, clock = make()
    for step in range(3):
        with tracer.phase("launch", step, stream=COMPUTE):
            pass
    stuck = deque([None, Times(0, 1), Times(2, 3)])
    clock.resolve = lambda handle: stuck.popleft()  # type: ignore[method-assign]
    recorded = tracer.close(patience_s=0)
    assert [row[4] for row in rows(sink) if row[0] == "compute"] == [1, 2]
    assert (recorded.spans, recorded.dropped) == (5, 1)


def test_close_asks_again_while_it_has_patience() -> None:
    tracer, _, clock = make()
    with tracer.phase("launch", 0, stream=COMPUTE):
        pass
    answers = deque([None, None, Times(2000, 2001)])
    clock.resolve = lambda handle: answers.popleft()  # type: ignore[method-assign]
    assert tracer.close().dropped == 0
    assert clock.calls.count("final anchor") == 3


def test_the_drain_thread_writes_and_ends() -> None:
    tracer, sink, _ = make()
    before = threading.active_count()
    tracer.start()
    for step in range(100):
        with tracer.phase("launch", step, stream=COMPUTE):
            pass
    tracer.close()
    assert threading.active_count() == before
    assert len(sink) == 200


def test_the_drain_lets_go_after_every_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    breaths: list[float] = []
    monkeypatch.setattr(drain_module, "time", SimpleNamespace(sleep=breaths.append))
    tracer, _, _ = make()
    tracer.tokens(dict.fromkeys(range(10 * drain_module.BURST), 0), [])
    tracer.drain()
    assert len(breaths) == 10
    tracer.tokens(dict.fromkeys(range(10 * drain_module.BURST), 0), [])
    tracer.drain(final=True)
    assert len(breaths) == 10


class FullDisk(TraceBuilder):
    def span(self, *args: Any, **kwargs: Any) -> None:
        if len(self) == 2:
            raise OSError(28, "No space left on device")
        super().span(*args, **kwargs)


def test_a_full_disk_stops_the_recording_but_not_the_run() -> None:
    sink = FullDisk()
    tracer = SpanTracer(sink, NoClock(), now=Ticks())
    for step in range(5):
        with tracer.phase("schedule", step):
            pass
        tracer.drain()
    assert len(sink) == 2
    for _ in range(2):
        with pytest.raises(CbprofError) as error:
            tracer.close()
        assert str(error.value) == "recording stopped after 2 spans: [Errno 28] No space left on device"


# Edges ----------------------------------------------------------------------------------------------------------------


def event(name: str) -> Any:
    return SimpleNamespace(name=name)  # unhashable, as an event may be


def test_edges_name_both_ends_and_the_steps_between() -> None:
    tracer, _, _ = make()
    ready, done = event("inputs_ready"), event("done")
    for step in range(3):
        tracer.recorded(ready, H2D, step)
        tracer.waited(ready, COMPUTE, step)
        tracer.recorded(done, D2H, step)
    tracer.waited(done, None, 3)
    tracer.waited(event("never"), COMPUTE, 4)
    assert tracer.edges() == []
    tracer.drain()
    expected = [
        Edge("inputs_ready", "h2d", "compute", 0, 3),
        Edge("done", "d2h", "host", 1, 1),
        Edge("never", None, "compute", None, 1),
    ]
    assert tracer.edges() == expected
    assert tracer.close().edges == tuple(expected)


@given(st.lists(st.tuples(st.sampled_from(["record", "wait"]), st.integers(0, 2), st.integers(0, 5))))
def test_every_wait_is_counted_once_against_the_latest_record(calls: list[tuple[str, int, int]]) -> None:
    counter, events = EdgeCounter(), [event("done") for _ in range(3)]
    expected: list[Edge] = []
    for i, (what, which, step) in enumerate(calls):
        if what == "record":
            counter.recorded(events[which], D2H, step)
            continue
        counter.waited(events[which], None, step)
        records = [at for what, other, at in calls[:i] if what == "record" and other == which]
        expected.append(
            Edge("done", "d2h", "host", step - records[-1], 1) if records else Edge("done", None, "host", None, 1)
        )
    expanded = [
        Edge(e.event, e.recorded_on, e.waiter, e.steps_before, 1) for e in counter.edges() for _ in range(e.count)
    ]
    assert sorted(expanded, key=repr) == sorted(expected, key=repr)


# The loops ------------------------------------------------------------------------------------------------------------

CONFIG = EngineConfig(max_batch=3, max_batch_tokens=8, prefill_chunk=4, max_context=10, block_size=2, num_blocks=9)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_run_on_the_simulated_device(mode: Mode) -> None:
    """Every request has its tokens in the trace, each step its phases, and each edge counts every step."""
    requests = [Request(index, [1 + index] * (3 + index), 4) for index in range(4)]
    tracer, sink, _ = make()
    serve(CONFIG, requests, mode, seed=1, vocab_size=97, hooks=tracer)
    recorded = tracer.close()
    trace = sink.build()

    assert recorded.tokens == sum(len(request.generated) for request in requests) == 16
    for request in requests:
        mine = trace.requests.event[trace.requests.request == request.id]
        assert list(mine) == [RequestEvent.ARRIVE, RequestEvent.FIRST, *(RequestEvent.TOKEN,) * 3, RequestEvent.FINISH]

    steps = len(trace.steps)
    assert list(trace.steps.step) == list(range(steps))
    for name in ("prepare", "h2d", "launch", "fetch", "wait", "update"):
        mask = (trace.name_id == trace.names.index(name)) & ~trace.on_device
        assert sorted(trace.step[mask]) == list(range(steps))
    for kind in (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H):
        mask = trace.mask(kinds=[kind])
        assert sorted(trace.step[mask]) == list(range(steps))
        assert all(first <= second for first, second in pairwise(trace.start_ns[mask]))
    links = trace.link[trace.on_device]
    assert sorted(links) == sorted(trace.link[~trace.on_device & (trace.link >= 0)]) == list(range(3 * steps))

    host = Edge("done", "d2h", "host", 0, steps)
    between_streams = [
        Edge("inputs_ready", "h2d", "compute", 0, steps),
        Edge("outputs_ready", "compute", "d2h", 0, steps),
    ]
    assert list(recorded.edges) == ([host] if mode == "sync" else [*between_streams, host])
