"""How fast a large trace is analysed: ``summarize`` on generated columns, in time and memory.

    python scripts/bench_analysis.py                    # 10 million spans
    python scripts/bench_analysis.py --spans 1000000 --load   # also written to a file and read back

The trace is an async run as the reference engine records it: ten spans a step on one host lane and three streams.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cbprof.analysis.summary import summarize
from cbprof.formats import load, save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestTable, StepTable, Trace

TARGET_S, TARGET_GB = 2.0, 1.5
US = 1000


class Phase(NamedTuple):
    """A span of every step. Times in ns from the start of the step; ``of_step``: which step it works on."""

    name: str
    kind: Kind
    lane: int
    start: int
    dur: int
    of_step: int = 0
    linked: bool = False


# The host prepares step N while the device computes N - 1; it then waits for N - 1 and updates it.
PERIOD = 4000 * US
PHASES = (
    Phase("schedule", Kind.CPU_WORK, 0, 0, 60 * US),
    Phase("prepare", Kind.CPU_WORK, 0, 61 * US, 200 * US),
    Phase("h2d", Kind.CPU_WORK, 0, 262 * US, 20 * US, linked=True),
    Phase("launch", Kind.CPU_WORK, 0, 283 * US, 30 * US, linked=True),
    Phase("fetch", Kind.CPU_WORK, 0, 314 * US, 10 * US, linked=True),
    Phase("wait", Kind.CPU_WAIT, 0, 325 * US, 3550 * US, of_step=-1),
    Phase("update", Kind.CPU_WORK, 0, 3880 * US, 110 * US, of_step=-1),
    Phase("h2d", Kind.GPU_H2D, 1, 290 * US, 8 * US, linked=True),
    Phase("compute", Kind.GPU_COMPUTE, 2, 3860 * US, 3990 * US, linked=True),
    Phase("d2h", Kind.GPU_D2H, 3, 7852 * US, 6 * US, linked=True),
)
LAUNCHED_BY = {"h2d": "h2d", "launch": "compute", "compute": "compute", "fetch": "d2h", "d2h": "d2h"}


def generated(spans: int, seed: int = 0) -> Trace:
    """A trace of about ``spans`` spans, as columns. Each compute ends up to 20 us early, so that gaps differ."""
    steps = spans // len(PHASES)
    step = np.arange(steps, dtype=np.int64)
    jitter = np.random.default_rng(seed).integers(0, 20 * US, steps)
    names = tuple(dict.fromkeys(phase.name for phase in PHASES))
    streams = ("h2d", "compute", "d2h")
    size = steps * len(PHASES)
    start, dur = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    link = np.full(size, -1, dtype=np.int64)
    name_id, of_step, lane = (np.empty(size, dtype=np.int32) for _ in range(3))
    kind, slot = np.empty(size, dtype=np.int8), np.empty(size, dtype=np.int8)
    for index, phase in enumerate(PHASES):
        rows = slice(index * steps, (index + 1) * steps)
        start[rows] = step * PERIOD + phase.start
        dur[rows] = phase.dur - (jitter if phase.kind == Kind.GPU_COMPUTE else 0)
        name_id[rows], lane[rows], kind[rows] = names.index(phase.name), phase.lane, phase.kind
        of_step[rows] = np.maximum(step + phase.of_step, 0)
        slot[rows] = of_step[rows] % 2
        if phase.linked:
            link[rows] = step * len(streams) + streams.index(LAUNCHED_BY[phase.name])
    order = np.lexsort((-dur, start))
    none = np.zeros(0, dtype=np.int64)
    return Trace(
        start_ns=start[order],
        dur_ns=dur[order],
        link=link[order],
        name_id=name_id[order],
        step=of_step[order],
        lane_id=lane[order],
        kind=kind[order],
        slot=slot[order],
        names=names,
        lanes=(Lane("engine"), *(Lane(stream, 0) for stream in streams)),
        steps=StepTable(
            step=step.astype(np.int32),
            tokens=np.full(steps, 32),
            requests=np.full(steps, 32),
            context=32 * (128 + step),
            phase=np.ones(steps, dtype=np.int8),
        ),
        requests=RequestTable(none, none, np.zeros(0, dtype=np.int8)),
        meta=Meta(evidence="emulated", mode="async", tokens=32 * steps),
    )


def timed(label: str, work: Callable[[], object]) -> float:
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    seconds = time.perf_counter() - begin
    print(f"{label:<18}{seconds:6.2f} s, {time.process_time() - cpu:.2f} s of CPU, peak so far {peak_gb():.2f} GB")
    return seconds


def peak_gb() -> float:
    """The most memory that this process has had, which never falls."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--load", action="store_true", help="also write a trace.json and read it back")
    options = parser.parse_args()
    trace = generated(options.spans)
    print(f"{len(trace):,} spans, {len(trace.steps):,} steps; generating them: peak {peak_gb():.2f} GB")
    best = min(timed("summarize", lambda: summarize(trace)) for _ in range(options.repeat))
    print(f"best of {options.repeat}: {best:.2f} s (target {TARGET_S} s); peak {peak_gb():.2f} GB (target {TARGET_GB})")
    if options.load:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            timed("save trace.json", lambda: save(trace, path))
            timed("load trace.json", lambda: load(path))


if __name__ == "__main__":
    main()
