"""``cbprof fleet --json``: a report as plain data with stable keys. Times are nanoseconds; unknown is None."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cbprof.analysis.ranks.clocks import Skew
from cbprof.analysis.ranks.report import ExaminedFile, FleetReport, Job, SlowRank
from cbprof.analysis.ranks.waits import StepWaits

SCHEMA = 1


def to_json(report: FleetReport) -> dict[str, Any]:
    """``ranks`` has one entry a device, and one for each file that could not be read, with its ``reason``."""
    ranks = [_rank(report, row) for row in range(len(report.rows))]
    return {"schema": SCHEMA, "ranks": ranks + [_failed(file) for file in report.failed], "summary": _summary(report)}


def _rank(report: FleetReport, row: int) -> dict[str, Any]:
    file, rank = report.rows[row].file, report.rows[row].rank
    known = rank.idle_ns is not None
    base = rank.base_time_ns
    return {
        "file": file.name,
        "rank": rank.rank,
        "device": rank.device,
        "reason": None,
        "evidence": rank.evidence,
        "mode": rank.mode,
        "complete": rank.complete,
        "reliable": rank.reliable,
        "window_ns": [rank.start_ns, rank.end_ns],
        "base_time_ns": base,
        "idle_ns": rank.idle_ns,
        "idle_pct": rank.idle_pct,
        "gpu_ns": rank.gpu_ns if known else None,
        "comm_ns": rank.comm_ns if known else None,
        "blame_ns": dict(rank.causes) if known else None,
        "n_gaps": rank.n_gaps if known else None,
        "longest_gap_ns": rank.longest_gap_ns if known else None,
        "n_steps": rank.n_steps,
        "own_ns": report.own_ns(row) if known else None,
    }


def _failed(file: ExaminedFile) -> dict[str, Any]:
    return {"file": file.name, "rank": None, "device": None, "reason": file.reason}


def _summary(report: FleetReport) -> dict[str, Any]:
    return {
        "n_files": report.n_files,
        "n_failed": len(report.failed),
        "n_ranks": len(report.rows),
        "idle_pct": report.idle._asdict() if report.idle else None,
        "unit": report.unit,
        "median": _whose(report, report.median_row) | {"own_ns": report.own_ns(report.median_row)}
        if report.median_row is not None
        else None,
        "slowest": [_slow(report, slow) for slow in report.slow],
        "jobs": [_job(report, job) for job in report.jobs],
        "warnings": list(report.warnings),
    }


def _whose(report: FleetReport, row: int) -> dict[str, Any]:
    file, rank = report.rows[row].file, report.rows[row].rank
    return {"file": file.name, "rank": rank.rank, "device": rank.device}


def _slow(report: FleetReport, slow: SlowRank) -> dict[str, Any]:
    why = [part._asdict() for part in slow.why]
    return {**_whose(report, slow.row), "own_ns": slow.own_ns, "times": slow.times, "why": why}


def _job(report: FleetReport, job: Job) -> dict[str, Any]:
    return {
        "folder": job.folder,
        "n_ranks": len(job.rows),
        "n_left_out": job.n_left_out,
        "collectives": _skew(report, job, job.skew) if job.skew else None,
        "steps": _waits(report, job, job.waits) if job.waits else None,
    }


def _skew(report: FleetReport, job: Job, skew: Skew) -> dict[str, Any]:
    return {
        "n_matched": skew.n_matched,
        "n_common": skew.n_common,
        "n_unmatched": skew.n_unmatched,
        "start_skew_ns": {"p50": skew.start_p50_ns, "max": skew.start_max_ns},
        "start_skew_by_base_time_ns": {"p50": skew.raw_start_p50_ns, "max": skew.raw_start_max_ns},
        "end_skew_ns": {"p50": skew.end_p50_ns, "max": skew.end_max_ns},
        "most_offset_ns": skew.most_offset_ns,
        "most_drift": skew.most_drift,
        "ranks": [
            {**_whose(report, row), "late_ns": late, "n_last": n_last, **asdict(clock)}
            for row, late, n_last, clock in zip(job.rows, skew.late_ns, skew.n_last, skew.clocks, strict=True)
        ],
    }


def _waits(report: FleetReport, job: Job, waits: StepWaits) -> dict[str, Any]:
    return {
        "n_groups": waits.n_groups,
        "steps_each": waits.steps_each,
        "paced_ns": waits.paced_ns,
        "median_ns": waits.median_ns,
        "waited_for": [
            {**_whose(report, job.rows[last.row]), "n_slowest": last.n_slowest, "alone_ns": last.alone_ns}
            for last in waits.last
        ],
        "slowest_steps": [
            {
                "steps": [slow.first, slow.last],
                **_whose(report, job.rows[slow.row]),
                "own_ns": slow.own_ns,
                "median_ns": slow.median_ns,
                "alone_ns": slow.alone_ns,
            }
            for slow in waits.slow
        ],
    }
