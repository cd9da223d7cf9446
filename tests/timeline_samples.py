"""Traces whose picture is known: a steady run, a long one, several devices, names that try to break a page."""

from __future__ import annotations

import numpy as np

from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

MS = 1_000_000
META = {"mode": "sync", "device": "a test", "evidence": "emulated"}

# In the order of time, 10 ms each, in a trace of one lane.
HOSTILE_NAMES = (
    "<script>window.planted = 1</script><img src=x onerror='window.planted = 1'>",
    "\"quotes\" 'and' `ticks` & ampersands </script>",
    "🚀 emoji 👩‍🚀 and \ud800 half a pair",
    "שלום עולם",
    "long " * 2000,
)


def steady_trace(steps: int, *, complete: bool = True) -> Trace:
    """Steps of 10 ms, in which the GPU works for 6.9; the window ends with the last update, 0.5 ms early.

    ::

        ms      0         1.5  1.6  1.7  1.9       8.6  8.7  8.8      9.5
        CPU     schedule  launch---------wait-----------|    update---|
        GPU               h2d--|    compute--------d2h--|
    """
    builder = TraceBuilder()
    engine = builder.lane(Lane("engine"))
    compute, h2d, d2h = (builder.lane(Lane(name, 0)) for name in ("compute", "h2d", "d2h"))
    for step in range(steps):
        at = step * 10 * MS
        slot = step % 2
        builder.batch(step, tokens=32, requests=32, context=128 + 32 * step, phase="decode")
        for lane, kind, name, start, end in (
            (engine, Kind.CPU_WORK, "schedule", 0, 15),
            (engine, Kind.CPU_WORK, "launch", 15, 19),
            (h2d, Kind.GPU_H2D, "h2d", 15, 16),
            (compute, Kind.GPU_COMPUTE, "compute", 17, 86),
            (engine, Kind.CPU_WAIT, "wait", 19, 87),
            (d2h, Kind.GPU_D2H, "d2h", 86, 87),
            (engine, Kind.CPU_WORK, "update", 88, 95),
        ):
            builder.span(lane, kind, name, at + start * MS // 10, (end - start) * MS // 10, step=step, slot=slot)
    return builder.build(Meta.parse({**META, "complete": complete}))


def long_trace(steps: int) -> Trace:
    """As many spans a step as a real async run has, with times that do not repeat."""
    random = np.random.default_rng(0)
    builder = TraceBuilder()
    engine = builder.lane(Lane("engine"))
    streams = [builder.lane(Lane(name, 0)) for name in ("h2d", "compute", "d2h")]
    names = ["prepare", "schedule", "inputs", "h2d.launch", "launch", "d2h.launch", "wait", "update", "read", "a", "b"]
    lengths = random.integers(1_000, 1_500_000, size=(steps, len(names))).tolist()
    device = random.integers(5_000_000, 8_000_000, size=(steps, 3)).tolist()
    now = 0
    for step in range(steps):
        start = now
        for name, length in zip(names, lengths[step], strict=True):
            kind = Kind.CPU_WAIT if name == "wait" else Kind.CPU_WORK
            builder.span(engine, kind, name, now, length, step=step, slot=step % 2)
            now += length
        kinds = (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H)
        for stream, kind, length in zip(streams, kinds, device[step], strict=True):
            builder.span(stream, kind, kind.category, start + length // 9, length // 2, step=step, slot=step % 2)
    return builder.build(Meta.parse(META))


def hostile_trace() -> Trace:
    """One span of 10 ms for each of ``HOSTILE_NAMES``, and a GPU that works in the first and the last of them."""
    builder = TraceBuilder()
    host = builder.lane(Lane("<b>lane</b>"))
    for step, name in enumerate(HOSTILE_NAMES):
        builder.span(host, Kind.CPU_WORK, name, step * 10 * MS, 10 * MS, step=step)
    gpu = builder.lane(Lane("</script>", 0))
    for step in (0, len(HOSTILE_NAMES) - 1):
        builder.span(gpu, Kind.GPU_COMPUTE, HOSTILE_NAMES[step], step * 10 * MS, 10 * MS, step=step)
    return builder.build(Meta.parse({**META, "engine": "<i>engine</i>"}))


def two_device_trace() -> Trace:
    """Device 0 works half of 40 ms, device 1 all of it."""
    builder = TraceBuilder()
    host = builder.lane(Lane("engine"))
    for step in range(4):
        builder.span(host, Kind.CPU_WORK, "launch", step * 10 * MS, 10 * MS, step=step)
        for device, length in ((0, 5), (1, 10)):
            lane = builder.lane(Lane("compute", device))
            builder.span(lane, Kind.GPU_COMPUTE, "compute", step * 10 * MS, length * MS, step=step)
    return builder.build(Meta.parse({**META, "device": "two tests"}))
