"""Traces for tests: one small, any at all, and what they say in a form that compares."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cbprof.meta import Meta
from cbprof.riders import PrefillRow, Riders, by_step
from cbprof.trace import BATCH_PHASES, Kind, Lane, RequestEvent, Trace, TraceBuilder

RESERVED_ARGS = ("step", "slot", "link", "tokens", "requests", "context", "phase", "decodes", "prefills")
ABOUT_THE_READING = ("complete", "health", "otherData")

names = st.sampled_from(["schedule", "prepare", "launch", "compute"]) | st.text(max_size=8)
times = st.integers(-(1 << 61), 1 << 61) | st.integers(-5000, 5000)
rider_sets = st.builds(
    Riders,
    st.lists(st.integers(0, 9) | st.integers(0, 10**12), max_size=4).map(tuple),
    st.lists(
        st.builds(PrefillRow, st.integers(0, 9), st.integers(-1, 1 << 40), st.integers(0, 1 << 20), st.booleans()),
        max_size=2,
    ).map(tuple),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace that a builder can build: several devices, ties, negative starts, facts with and without a span."""
    builder = TraceBuilder()
    lanes = draw(
        st.lists(st.builds(Lane, st.text(max_size=8), st.integers(-1, 3)), min_size=1, unique=True, max_size=4)
    )
    for lane in lanes:
        builder.lane(lane)
    for _ in range(draw(st.integers(0, 6))):
        builder.span(
            draw(st.integers(0, len(lanes) - 1)),
            draw(st.sampled_from(Kind)),
            draw(names),
            draw(times),
            draw(st.integers(0, 1 << 61) | st.just(0)),
            step=draw(st.integers(-1, 3) | st.integers(-(1 << 31), (1 << 31) - 1)),
            slot=draw(st.integers(-1, 1)),
            link=draw(st.just(-1) | st.integers(-(1 << 63), (1 << 63) - 1)),
            extra=draw(extras),
        )
    for step in draw(st.sets(st.integers(0, 4))):
        tokens, requests, context = (draw(st.integers(0, 1 << 40)) for _ in range(3))
        phase = draw(st.sampled_from(BATCH_PHASES))
        riders = draw(st.none() | rider_sets)
        requests = requests if riders is None else riders.size
        builder.batch(step, tokens=tokens, requests=requests, context=context, phase=phase, riders=riders)
    for _ in range(draw(st.integers(0, 4))):
        builder.request(draw(st.sampled_from(RequestEvent)), draw(st.integers(0, 1 << 62)), draw(times))
    return builder.build(Meta.parse(draw(metas)))


extras = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in RESERVED_ARGS), json_values, max_size=2)
metas = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key not in ("schema", "rank", *ABOUT_THE_READING)), json_values, max_size=3
)


def contents(trace: Trace) -> dict[str, Any]:
    """Everything that a trace says, in a form that compares with ==, names spelled out."""
    columns = ("start_ns", "dur_ns", "link", "step", "lane_id", "kind", "slot")
    facts: dict[str, Any] = {column: getattr(trace, column).tolist() for column in columns}
    facts["names"] = [trace.name_of(index) for index in range(len(trace))]
    steps, requests = trace.steps, trace.requests
    facts["steps"] = [
        column.tolist() for column in (steps.step, steps.tokens, steps.requests, steps.context, steps.phase)
    ]
    facts["requests"] = [column.tolist() for column in (requests.time_ns, requests.request, requests.event)]
    facts["meta"] = {key: value for key, value in trace.meta.to_json().items() if key not in ABOUT_THE_READING}
    facts["riders"] = by_step(trace.riders)
    return facts | {"lanes": trace.lanes, "extra": dict(trace.extra)}


def small_trace() -> Trace:
    """The example of the format's description, with a few moments of a request."""
    builder = TraceBuilder()
    engine, compute = builder.lane(Lane("engine")), builder.lane(Lane("compute", device=0))
    builder.span(engine, Kind.CPU_WORK, "schedule", 0, 68_812, step=0)
    builder.batch(0, tokens=4096, requests=32, context=4096, phase="prefill")
    builder.span(compute, Kind.GPU_COMPUTE, "compute", 91_040, 7_312_001, step=0, slot=0, link=7)
    builder.request(RequestEvent.ARRIVE, 3, -5)
    builder.request(RequestEvent.FINISH, 3, 9_000_000)
    return builder.build(Meta.parse({"mode": "async", "evidence": "cuda_events", "workload": {"batch": 32}}))
