"""Host and device take turns."""

from __future__ import annotations

from cbprof.analysis.summary import summarize
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, host_spans
from cbprof.lab.serving import serve, workload_of
from cbprof.numbers import counted, duration, percent
from cbprof.trace import Kind


def turns(lab: Lab) -> Finding:
    """One synchronous step after another: the host works while the device waits, then the device while the host waits.

    The host needs the tokens of batch N to prepare batch N+1, and the device needs batch N+1 to go on. So neither can
    work while the other does, and the device is idle for as long as the host takes.
    """
    served = serve(lab, workload_of(lab), "sync")

    trace = served.trace
    summary = summarize(trace)
    device = summary.devices[0]
    idle_pct = device.idle_pct or 0.0
    compute, update = device_spans(trace, Kind.GPU_COMPUTE), host_spans(trace, "update")
    in_turn = bool((compute.start[1:] >= update.end[:-1]).all())
    per_step = device.gaps.total_ns // summary.n_steps
    return Finding(
        "turns",
        f"in {counted(summary.n_steps, 'synchronous step')} the device waited {percent(idle_pct)} of the time, "
        f"{duration(per_step)} a step, and no compute began before the tokens of the one before were read",
        ok=in_turn and idle_pct > 0,
        table=Table(
            ("per step", "time"),
            [
                ("from one compute to the next", duration(summary.step_percentile_ns(50))),
                ("compute", duration(compute.median_ns)),
                ("device idle", duration(per_step)),
            ],
        ),
        figures={"idle_pct": idle_pct, "steps": summary.n_steps, "compute_ns": compute.median_ns, "idle_ns": per_step},
        traces=(NamedTrace("sync", trace),),
    )
