"""``cbprof report --json``: a summary as plain data with stable keys, for scripts and CI.

Times are integer nanoseconds on the file's own time axis. What is undefined is None, never 0 or 100.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.idle import idle_pct
from cbprof.analysis.accounting.phases import PhaseTime, nearest_rank
from cbprof.analysis.accounting.segments import Segments
from cbprof.analysis.accounting.states import StateTotals
from cbprof.analysis.accounting.steps import StepSource
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.profiles.device_work import CLIP_TO_NEXT_START, Profile
from cbprof.analysis.summary import Summary
from cbprof.analysis.verdict.overlap import Overlap
from cbprof.analysis.verdict.verdict import Verdict

SCHEMA = 1
LONGEST_GAPS = 10


def to_json(
    summary: Summary,
    *,
    file: str | None = None,
    gaps: Literal["longest", "all"] = "longest",
) -> dict[str, Any]:
    """The report of ``file``. ``gaps``: the ten longest, longest first, or ``all`` of them in the order of time."""
    return {
        "schema": SCHEMA,
        "file": file,
        "format": summary.format,
        "evidence": summary.evidence,
        "mode": summary.mode,
        "complete": summary.complete,
        "reliable": summary.reliable,
        "warnings": list(summary.warnings),
        "health": dict(summary.health) | (_details(summary) if gaps == "all" else {}),
        "window": summary.window.name if summary.window else None,
        "devices": [_device(device, gaps) for device in summary.devices],
        "phases": [_phase(phase) for phase in summary.phases],
        "steps": {
            "count": summary.n_steps,
            "p50_ns": summary.step_percentile_ns(50),
            "p99_ns": summary.step_percentile_ns(99),
            **how_steps_are_known(summary.step_source),
        },
        "verdict": _verdict(summary.verdict),
        "tokens": summary.tokens,
        "tokens_per_s": summary.tokens_per_s,
        "latency": asdict(summary.latency) if summary.latency else None,
        "one_off": {once.name: {"count": once.n_spans, "total_ns": once.total_ns} for once in summary.one_offs},
    }


def how_steps_are_known(source: StepSource | None) -> dict[str, Any]:
    """The same in ``cbprof doctor --json``."""
    return {"source": source.name if source else None, "confidence": source.confidence if source else None}


def _details(summary: Summary) -> dict[str, Any]:
    """What a profile tells of each event and each gap; times in microseconds."""
    if summary.examination is None:
        return {}
    causes = []
    for device in summary.devices:
        for gap in (_gap(device, row) for row in range(len(device.gaps))):
            causes.append(
                {
                    "gap": [gap["start_ns"] / 1000, gap["end_ns"] / 1000],
                    **{f"{part}_us": gap[f"{part}_ns"] / 1000 for part in ("host_late", "in_launch", "queue")},
                    "host_exclusive_us": {name: ns / 1000 for name, ns in gap["blame_ns"].items()},
                }
            )
    return summary.examination.details() | {"gap_causes": causes}


def _device(device: DeviceSummary, gaps: Literal["longest", "all"]) -> dict[str, Any]:
    rows = range(len(device.gaps)) if gaps == "all" else device.gaps.longest(LONGEST_GAPS).tolist()
    known = device.idle_ns is not None
    return {
        "device": device.device if device.device_name is None else device.device_name,
        "rank": device.rank,
        "window_ns": [device.window.start_ns, device.window.end_ns] if device.window.recorded else None,
        "active_ns": device.active_ns,
        "busy_ns": device.busy_ns,
        "kernel_busy_ns": device.kernel_busy_ns,
        "comm_busy_ns": device.comm_busy_ns,
        "exposed_comm_ns": device.exposed_comm_ns,
        "idle_ns": device.idle_ns,
        "idle_pct": device.idle_pct,
        "idle_pct_excl_overhead": device.idle_pct_excl_overhead,
        "n_gpu_events": device.n_gpu_events,
        "n_streams": device.n_streams,
        "n_graph_launches": device.n_graph_launches,
        "n_gaps": len(device.gaps) if known or not device.window.recorded else None,
        "longest_gap_ns": device.gaps.longest_ns if known else None,
        "gaps": [_gap(device, row) for row in rows] if known else [],
        "states_ns": _states(device) if known else None,
        "ceiling_ns": device.ceiling_ns,
        "speedup_bound": device.speedup_bound,
        "gap_percentiles_ns": _gap_percentiles(device.gaps) if known else None,
        "one_off_idle_ns": device.one_off_idle_ns if known else None,
        "idle_pct_excl_one_off": device.idle_pct_excl_one_off,
        "overlap": _overlap(device.overlap) if known else None,
        "over_time": _segments(device.over_time) if known else [],
        "over_context": _segments(device.over_context) if known else [],
        "verdict": _verdict(device.verdict),
        **(_profile(device.profile, device.not_computing_pct, gaps) if device.profile else {}),
    }


def _states(device: DeviceSummary) -> dict[str, int | None]:
    """Where the host's time is untraced, it is in none of the states; where that is much, they are not known at all."""
    known, untraced = device.traced
    states: dict[str, int | None] = dict.fromkeys(StateTotals._fields) if known is None else dict(known._asdict())
    return states | {"untraced": untraced}


def _profile(profile: Profile, not_computing_pct: float | None, gaps: Literal["longest", "all"]) -> dict[str, Any]:
    """What only a profiler's records tell; see :class:`Profile`."""
    clipped, rocclr = profile.clipped, profile.rocclr
    found: dict[str, Any] = {
        "sum_gpu_ns": profile.sum_gpu_ns,
        "compute_excl_comm_busy_ns": profile.compute_busy_ns,
        "not_computing_pct": not_computing_pct,
        "overhead_ns": profile.overhead_ns,
        "host_overlap_ns": dict(profile.hidden_ns),
    }
    if rocclr is not None:
        found |= {
            "kernel_busy_excl_rocclr_ns": rocclr.kernel_busy_excl_ns,
            "rocclr_copy_ns": rocclr.copy_ns,
            "rocclr_fill_ns": rocclr.fill_ns,
        }
    if clipped is not None:
        idle_ns, holes = clipped.gaps.total_ns, clipped.gaps
        found[CLIP_TO_NEXT_START] = {
            "window_ns": [int(clipped.window.start[0]), int(clipped.window.end[0])],
            "busy_ns": clipped.busy.total_ns,
            "kernel_busy_ns": clipped.kernel_busy_ns,
            "sum_gpu_ns": clipped.sum_gpu_ns,
            "idle_ns": idle_ns,
            "idle_pct": idle_pct(idle_ns, clipped.window.total_ns),
            "n_gaps": len(holes),
            "longest_gap_ns": int(holes.length_ns.max(initial=0)),
            "gaps": [
                {"start_ns": start, "end_ns": end}
                for start, end in zip(holes.start.tolist(), holes.end.tolist(), strict=True)
            ]
            if gaps == "all"
            else [],
        }
    return found


def _gap_percentiles(gaps: Gaps) -> dict[str, int | None]:
    lengths = np.sort(gaps.length_ns)
    return {f"p{percent}": nearest_rank(lengths, percent) if len(lengths) else None for percent in (50, 90, 99)}


def _overlap(overlap: Overlap) -> dict[str, Any]:
    lead = overlap.launch_lead
    return {
        "hidden_ns": overlap.hidden_ns,
        "hideable_ns": overlap.hideable_ns,
        "efficiency_pct": overlap.efficiency_pct,
        "graph_coverage_pct": overlap.graph_coverage_pct,
        "launch_lead_ns": {"p1": lead.p1_ns, "p50": lead.p50_ns} if lead else None,
        "launch_late_pct": lead.late_pct if lead else None,
    }


def _segments(segments: Segments) -> list[dict[str, Any]]:
    return [segment._asdict() | {"idle_pct": segment.idle_pct} for segment in segments]


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """``shortened_ns``: what a tenth less work of the device, or of the host, could take off the window."""
    shortened = verdict.shortened
    return {
        "bound": verdict.bound.value,
        "sentence": verdict.sentence,
        "evidence": list(verdict.evidence),
        "shortened_ns": {"device": shortened.device_ns, "host": shortened.host_ns} if shortened else None,
    }


def _gap(device: DeviceSummary, row: int) -> dict[str, Any]:
    """One gap. ``host_late_ns``, ``in_launch_ns`` and ``queue_ns`` sum to it, and say where it lies around the launch.

    ``blame_ns`` names what else than launching and queueing passed the time (:mod:`cbprof.analysis.accounting.blame`).
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
