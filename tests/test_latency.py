"""Time to the first token and between tokens, from the record of requests."""

from __future__ import annotations

from oracle import COMPUTE

from cbprof.analysis.summary import summarize
from cbprof.analysis.verdict.latency import Latency
from cbprof.meta import Meta
from cbprof.trace import Kind, RequestEvent, Trace, TraceBuilder

ARRIVE, FIRST, TOKEN, FINISH = RequestEvent
Moment = tuple[RequestEvent, int, int]

TWO_REQUESTS: tuple[Moment, ...] = (
    (ARRIVE, 0, 0),
    (ARRIVE, 1, 5),
    (FIRST, 0, 10),
    (FIRST, 1, 40),
    (FINISH, 0, 50),
    (FINISH, 1, 90),
)


def trace(*moments: Moment, **meta: object) -> Trace:
    """Ten computes of 10 ns, back to back, and these moments of requests."""
    builder = TraceBuilder()
    for step in range(10):
        builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 10 * step, 10, step=step)
    for event, request, time_ns in moments:
        builder.request(event, request, time_ns)
    return builder.build(Meta.parse({"complete": True, "evidence": "emulated", **meta}))


def test_from_first_and_last_tokens() -> None:
    """90 ns from first to last tokens, in which 9 of the 11 tokens came after a first one."""
    assert summarize(trace(*TWO_REQUESTS, tokens=11)).latency == Latency(
        n_first=2,
        n_finished=2,
        ttft_p50_ns=10,
        ttft_p99_ns=35,
        itl_mean_ns=10,
        itl_p50_ns=None,
        itl_p99_ns=None,
    )


def test_from_every_token() -> None:
    tokens: tuple[Moment, ...] = ((TOKEN, 0, 20), (TOKEN, 0, 50), (TOKEN, 1, 44), (TOKEN, 1, 90))
    found = summarize(trace(*TWO_REQUESTS, *tokens)).latency
    assert found is not None
    # between the tokens of request 0: 10, 30; of request 1: 4, 46
    assert (found.itl_mean_ns, found.itl_p50_ns, found.itl_p99_ns) == (22, 10, 46)


def test_a_stretch_of_steps_has_the_latencies_that_end_in_it() -> None:
    found = summarize(trace(*TWO_REQUESTS, tokens=11), steps=(3, 7)).latency
    assert found is not None
    assert (found.n_first, found.ttft_p50_ns, found.n_finished) == (1, 35, 1)
    assert found.itl_mean_ns is None, "how many tokens came in these steps is not known"


def test_what_is_unknown_is_none() -> None:
    assert summarize(trace()).latency is None
    arrived = summarize(trace((ARRIVE, 0, 0), tokens=0)).latency
    assert arrived == Latency(0, 0, None, None, None, None, None)
    unfinished = summarize(trace(*TWO_REQUESTS[:-1], tokens=11)).latency
    assert unfinished is not None
    assert unfinished.itl_mean_ns is None
