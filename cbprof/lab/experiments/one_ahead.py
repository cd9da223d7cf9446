"""The whole loop, beside the one that takes turns."""

from __future__ import annotations

import numpy as np

from cbprof.analysis.summary import Summary, summarize
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, host_spans, period_ns
from cbprof.lab.serving import serve, workload_of
from cbprof.numbers import duration, percent, ratio
from cbprof.trace import Kind, Trace


def one_ahead(lab: Lab) -> Finding:
    """The asynchronous loop, one batch ahead, beside the synchronous one: what it gains, and the most it could.

    Streams, events, two slots and the carry-over together: the host prepares batch N+1 while the device computes batch
    N. The most that this can bring is a device that never waits.
    """
    workload = workload_of(lab)
    sync, ahead = serve(lab, workload, "sync"), serve(lab, workload, "async")

    before, after = summarize(sync.trace), summarize(ahead.trace)
    sync_ns, async_ns = period_ns(sync.trace), period_ns(ahead.trace)
    gain, bound = sync_ns / async_ns, sync_ns / device_spans(sync.trace, Kind.GPU_COMPUTE).median_ns
    launch, wait = host_spans(ahead.trace, "launch"), host_spans(ahead.trace, "wait")
    ahead_of_time = bool((launch.end[1:] <= wait.start[:-1]).all())  # batch N+1 was queued before the wait for N
    sync_gap_ns, async_gap_ns = _short_gap_ns(sync.trace), _short_gap_ns(ahead.trace)
    identical = sync.tokens == ahead.tokens
    return Finding(
        "async",
        f"a step one batch ahead is {ratio(gain)} as fast, of {ratio(bound)} at most; the device waits "
        f"{percent(_idle_pct(after))} of the time instead of {percent(_idle_pct(before))}, and the tokens are "
        f"{'identical' if identical else 'DIFFERENT'}",
        ok=identical
        and ahead_of_time
        and 2 * async_gap_ns < sync_gap_ns
        and (_idle_pct(after) < _idle_pct(before) or not lab.times_are_its_own),
        unchecked=lab.unchecked(
            "that the device waits for a smaller share of the time; its shortest waits are compared"
        ),
        table=Table(
            ("", "sync", "async"),
            [
                ("median step", duration(sync_ns), duration(async_ns)),
                ("device idle", percent(_idle_pct(before)), percent(_idle_pct(after))),
                ("all steps", duration(before.wall_ns), duration(after.wall_ns)),
            ],
        ),
        figures={
            "sync_step_ns": sync_ns,
            "async_step_ns": async_ns,
            "gain": gain,
            "bound": bound,
            "sync_idle_pct": _idle_pct(before),
            "async_idle_pct": _idle_pct(after),
            "sync_short_gap_ns": sync_gap_ns,
            "async_short_gap_ns": async_gap_ns,
            "sync_wall_ns": before.wall_ns,
            "async_wall_ns": after.wall_ns,
            "tokens_identical": identical,
        },
        traces=(NamedTrace("sync", sync.trace), NamedTrace("async", ahead.trace)),
    )


def _short_gap_ns(trace: Trace) -> int:
    """How long the device waits from one compute to the next, in the best tenth of the steps: where it waits for its
    own host alone, and for nothing else on the machine."""
    compute = device_spans(trace, Kind.GPU_COMPUTE)
    return int(np.quantile(np.maximum(compute.start[1:] - compute.end[:-1], 0), 0.1))


def _idle_pct(summary: Summary) -> float:
    return summary.devices[0].idle_pct or 0.0
