"""``cbprof report --json``: a summary as plain data with stable keys, for scripts and CI.

Times are integer nanoseconds on the file's own time axis. What is undefined is None, never 0 or 100.
"""

from __future__ import annotations

from typing import Any, Literal

from cbprof.analysis.blame import Cause
from cbprof.analysis.phases import PhaseTime
from cbprof.analysis.summary import DeviceSummary, Summary

SCHEMA = 1
LONGEST_GAPS = 10


def to_json(
    summary: Summary,
    *,
    file: str | None = None,
    file_format: str = "chrome",
    gaps: Literal["longest", "all"] = "longest",
) -> dict[str, Any]:
    """The report of ``file``. ``gaps``: the ten longest, longest first, or ``all`` of them in the order of time."""
    return {
        "schema": SCHEMA,
        "file": file,
        "format": file_format,
        "evidence": summary.evidence,
        "mode": summary.mode,
        "complete": summary.complete,
        "reliable": summary.reliable,
        "warnings": list(summary.warnings),
        "health": dict(summary.health),
        "window": summary.window.name if summary.window else None,
        "devices": [_device(device, gaps) for device in summary.devices],
        "phases": [_phase(phase) for phase in summary.phases],
        "steps": {
            "count": summary.n_steps,
            "p50_ns": summary.step_percentile_ns(50),
            "p99_ns": summary.step_percentile_ns(99),
        },
    }


def _device(device: DeviceSummary, gaps: Literal["longest", "all"]) -> dict[str, Any]:
    rows = range(len(device.gaps)) if gaps == "all" else device.gaps.longest(LONGEST_GAPS).tolist()
    known = device.idle_ns is not None
    return {
        "device": device.device,
        "rank": device.rank,
        "window_ns": [device.window.start_ns, device.window.end_ns],
        "active_ns": device.active_ns,
        "busy_ns": device.busy_ns,
        "kernel_busy_ns": device.kernel_busy_ns,
        "comm_busy_ns": device.comm_busy_ns,
        "exposed_comm_ns": device.exposed_comm_ns,
        "idle_ns": device.idle_ns,
        "idle_pct": device.idle_pct,
        "idle_pct_excl_overhead": None,  # known where a profiler records its own overhead
        "n_gpu_events": device.n_gpu_events,
        "n_streams": device.n_streams,
        "n_graph_launches": device.n_graph_launches,
        "n_gaps": len(device.gaps) if known else None,
        "longest_gap_ns": device.gaps.longest_ns if known else None,
        "gaps": [_gap(device, row) for row in rows] if known else [],
        "states_ns": {**device.states._asdict(), "untraced": 0} if known else None,
        "ceiling_ns": device.ceiling_ns,
        "speedup_bound": device.speedup_bound,
    }


def _gap(device: DeviceSummary, row: int) -> dict[str, Any]:
    """One gap. ``host_late_ns``, ``in_launch_ns`` and ``queue_ns`` sum to it, and say where it lies around the launch.

    ``blame_ns`` names what else than launching and queueing passed the time, as in :mod:`cbprof.analysis.blame`.
    """
    gaps = device.gaps
    blame: dict[str, int] = {}
    for part in device.blame.of_gap(row):
        if part.cause not in {Cause.LAUNCH, Cause.QUEUED}:
            blame[part.label] = blame.get(part.label, 0) + part.ns
    return {
        "start_ns": int(gaps.start[row]),
        "end_ns": int(gaps.end[row]),
        "host_late_ns": int(gaps.host_late_ns[row]),
        "in_launch_ns": int(gaps.in_launch_ns[row]),
        "queue_ns": int(gaps.queue_ns[row]),
        "blame_ns": dict(sorted(blame.items(), key=lambda item: -item[1])),
    }


def _phase(phase: PhaseTime) -> dict[str, Any]:
    return {
        "name": phase.name,
        "total_ns": phase.total_ns,
        "exposed_ns": phase.exposed_ns,
        "count": phase.count,
        "p50_ns": phase.p50_ns,
        "p99_ns": phase.p99_ns,
    }
