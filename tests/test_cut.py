"""Cutting time out of a trace leaves what lay outside, to the nanosecond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.accounting.cut_out import cut_out, only, without_profiled_steps
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestEvent, Trace, TraceBuilder

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8)


def build(spans: list[tuple[int, int]], **meta: object) -> Trace:
    builder = TraceBuilder()
    lane = builder.lane(Lane("compute", device=0))
    for index, (start, dur) in enumerate(spans):
        builder.span(lane, Kind.GPU_COMPUTE, f"span {index}", start, dur, extra={"index": index})
    builder.request(RequestEvent.FIRST, 7, 30)
    return builder.build(Meta.parse(meta))


@given(spans=SPANS, start=st.integers(0, 50), length=st.integers(0, 30))
def test_every_span_keeps_the_time_outside(spans: list[tuple[int, int]], start: int, length: int) -> None:
    cut = cut_out(build(spans), start, start + length)
    gone = range(start, start + length)
    kept = {}
    for index in range(len(cut)):
        kept[cut.extra[index]["index"]] = (int(cut.start_ns[index]), int(cut.dur_ns[index]))
    for index, (begin, dur) in enumerate(spans):
        moments = [moment for moment in range(begin, begin + dur) if moment not in gone]
        if index not in kept:
            assert start <= begin
            assert begin + dur <= start + length
            continue
        assert kept[index][1] == len(moments)
        assert kept[index][0] == begin - sum(moment < begin for moment in gone)
    assert list(cut.start_ns) == sorted(cut.start_ns)


def test_a_trace_without_a_profiled_window_is_left_alone() -> None:
    trace = build([(0, 5)])
    assert without_profiled_steps(trace) is trace


def test_the_profiled_window_of_the_metadata_is_cut() -> None:
    trace = build([(0, 5), (10, 10), (40, 5)], tokens=9, cupti={"start_ns": 8, "end_ns": 38, "tokens": 2})
    cut = without_profiled_steps(trace)
    assert list(zip(cut.start_ns.tolist(), cut.dur_ns.tolist(), strict=True)) == [(0, 5), (10, 5)]
    assert cut.requests.time_ns.tolist() == [8]
    assert cut.meta.tokens == 7
    assert without_profiled_steps(cut) is cut


def test_a_stretch_alone_has_its_own_spans_steps_and_tokens() -> None:
    builder = TraceBuilder()
    lane = builder.lane(Lane("compute", device=0))
    for step in range(5):
        builder.span(lane, Kind.GPU_COMPUTE, "compute", 100 * step, 80, step=step)
        builder.batch(step, tokens=1, requests=1, context=step, phase="decode")
        builder.request(RequestEvent.FIRST if step in {0, 2} else RequestEvent.TOKEN, step // 2, 100 * step + 90)
    found = only(builder.build(Meta.parse({"tokens": 5})), 200, 395)
    assert (found.start_ns - found.start_ns[0]).tolist() == [0, 100]
    assert found.steps.step.tolist() == [2, 3]
    assert found.requests.request.tolist() == [1, 1]
    assert (found.requests.time_ns - found.start_ns[0]).tolist() == [90, 190]
    assert found.meta.tokens == 2
