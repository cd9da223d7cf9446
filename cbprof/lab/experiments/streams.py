"""Three streams at once."""

from __future__ import annotations

import itertools

import numpy as np

from cbprof.engine.devices.base import Streams
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import Spans, device_spans, host_spans, median
from cbprof.numbers import duration, ratio, signed_duration
from cbprof.trace import NONE, Int64, Kind, Trace

ROUNDS = 8
COPIES_IN, COPIES_OUT = 64, 128
"""One copy is over too soon to be seen; these take milliseconds each way."""


def streams(lab: Lab) -> Finding:
    """Three operations that do not need each other: one after the other on one stream, side by side on three.

    A stream is a queue: what is queued on it runs in order. Streams do not wait for each other. So each of the three
    begins as soon as the host has launched it, and what holds back the next is only the cost of a launch.
    """
    one = _three_operations(lab, lab.device.streams(separate=False))
    three = _three_operations(lab, lab.streams)

    kinds = {"compute": Kind.GPU_COMPUTE, "copies in": Kind.GPU_H2D, "copies out": Kind.GPU_D2H}
    ran = {name: device_spans(three, kind) for name, kind in kinds.items()}
    launches = [host_spans(three, name).median_ns for name in ("launch", "h2d", "fetch")]
    first = ran["compute"].start
    rows = [
        (name, duration(spans.median_ns), duration(launch), signed_duration(median(spans.start - first)))
        for (name, spans), launch in zip(ran.items(), launches, strict=True)
    ]
    together = _time_together(list(ran.values()))
    one_after_the_other = not _any_began_early([device_spans(one, kind) for kind in kinds.values()])
    side_by_side = _any_began_early(list(ran.values()))
    one_ns, three_ns = _round_ns(one), _round_ns(three)
    stagger = median(ran["copies in"].start - first)
    return Finding(
        "streams",
        f"on one stream the three took {duration(one_ns)}, on three streams {duration(three_ns)} "
        f"({ratio(one_ns / three_ns)} as fast), all running at once for {signed_duration(median(together))}; "
        f"the second began {signed_duration(stagger)} after the "
        f"first, whose launch took {duration(launches[0])}",
        ok=one_after_the_other and side_by_side and (median(together) > 0 or not lab.times_are_its_own),
        unchecked=lab.unchecked("that there was a time in which all three ran"),
        table=Table(("on three streams", "runs for", "launch takes", "begins after the first"), rows),
        figures={
            "one_stream_ns": one_ns,
            "three_streams_ns": three_ns,
            "together_ns": median(together),
            "stagger_ns": stagger,
            "launch_ns": launches[0],
        },
        traces=(NamedTrace("one stream", one), NamedTrace("three streams", three)),
    )


def _three_operations(lab: Lab, streams: Streams) -> Trace:
    """Queue all three without waiting, a few times. They use different buffers, so the copies belong to no step."""
    copied, computed = lab.slots
    recording = lab.recording(mode="three streams" if streams is lab.streams else "one stream")
    with recording as hooks:
        for step in range(ROUNDS):
            with hooks.phase("launch", step, slot=computed.index, stream=streams.compute):
                computed.launch(streams.compute)
            with hooks.phase("h2d", NONE, slot=copied.index, stream=streams.h2d):
                for _ in range(COPIES_IN):
                    copied.copy_in(streams.h2d)
            with hooks.phase("fetch", NONE, slot=copied.index, stream=streams.d2h):
                for _ in range(COPIES_OUT):
                    copied.copy_out(streams.d2h)
            with hooks.wait("wait", step):
                lab.device.synchronize()
    return recording.trace


def _any_began_early(operations: list[Spans]) -> bool:
    """Whether any operation ever began before one that was queued earlier had ended."""
    pairs = itertools.combinations(operations, 2)
    return any(bool((later.start < earlier.end).any()) for earlier, later in pairs)


def _time_together(operations: list[Spans]) -> Int64:
    """For each round, how long all of its operations ran at the same time; not above 0 where they never did."""
    last_start = np.max([spans.start for spans in operations], axis=0)
    first_end = np.min([spans.end for spans in operations], axis=0)
    return np.asarray(first_end - last_start, dtype=np.int64)


def _round_ns(trace: Trace) -> int:
    return median(host_spans(trace, "wait").end - host_spans(trace, "launch").start)
