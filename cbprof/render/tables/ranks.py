"""The tables of ranks, the same for a terminal and a page, and one row a rank as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cbprof.analysis.ranks.report import Job, RanksReport
from cbprof.files import write_table
from cbprof.numbers import count, duration, percent, ratio, signed_duration
from cbprof.render.sheet import Sheet
from cbprof.render.words.ranks import A_UNIT, in_words, job_name, reasons, whose

MOST_ROWS = 12
MOST_FAILED = 10
MOST_LATE, MOST_OFF = 8, 4
COLUMNS = (
    *("file", "rank", "device", "reason", "evidence", "mode", "complete", "reliable"),
    *("start_ns", "end_ns", "base_time_ns", "idle_ns", "idle_pct", "gpu_ns", "comm_ns"),
    *("busy_ns", "kernel_busy_ns", "comm_busy_ns", "exposed_comm_ns"),
    *("n_gaps", "longest_gap_ns", "n_steps", "own_ns", "blame_ns"),
)


def ranks_sheet(report: RanksReport, most: int = MOST_ROWS) -> Sheet:
    """The ranks, or if there are too many the most idle of them."""
    rows = [row for row in range(len(report.rows)) if report.rows[row].rank.idle_ns is not None]
    chosen = rows
    notes: tuple[str, ...] = ()
    if len(rows) > most:
        by_idle = sorted(rows, key=lambda row: -(report.rows[row].rank.idle_pct or 0))
        chosen, notes = by_idle[:most], (f"the {most} most idle of {count(len(rows))}; --csv has all",)
    return Sheet(
        ("rank", "idle", "longest gap", "own time", "collectives", "largest cause"),
        [_rank(report, row) for row in chosen],
        "",
        (*notes, f"own time: {A_UNIT[report.unit]}, without collectives that nothing covered"),
    )


def _rank(report: RanksReport, row: int) -> tuple[str, ...]:
    rank = report.rows[row].rank
    cause = max(rank.causes, key=rank.causes.__getitem__, default="-")
    own = duration(round(report.own_ns(row)))
    alone = percent(100 * rank.comm_ns / max(1, rank.window_ns))
    return whose(report, row), percent(rank.idle_pct), duration(rank.longest_gap_ns), own, alone, in_words(cause)[:28]


def slow_sheet(report: RanksReport) -> Sheet:
    """The slowest ranks and why."""
    rows = [
        (whose(report, slow.row), duration(round(slow.own_ns)), ratio(slow.times), reasons(report, slow))
        for slow in report.slow
    ]
    return Sheet(("slowest", "own time", "/ median", "why"), rows)


def waits_sheet(report: RanksReport, job: Job) -> Sheet:
    """The steps of a job that one rank holds up."""
    assert job.waits is not None
    rows = [
        (
            count(slow.first) if slow.first == slow.last else f"{count(slow.first)} to {count(slow.last)}",
            whose(report, job.rows[slow.row]),
            duration(slow.own_ns),
            duration(slow.median_ns),
            duration(slow.alone_ns),
        )
        for slow in job.waits.slow
    ]
    return Sheet(("steps", "slowest rank", "takes", "median", "alone"), rows, f"slowest steps of {job_name(job)}")


def skew_sheet(report: RanksReport, job: Job) -> Sheet:
    """Who comes late to the collectives of a job, the latest first, and then whose clock is off most."""
    assert job.skew is not None
    skew, ranks = job.skew, range(len(job.rows))
    latest = sorted(ranks, key=lambda index: -skew.late_ns[index])[:MOST_LATE]
    furthest = sorted(ranks, key=lambda index: -abs(skew.clocks[index].offset_ns))[:MOST_OFF]
    order = dict.fromkeys((*latest, *furthest))
    rows = [
        (
            whose(report, job.rows[index]),
            duration(round(skew.late_ns[index])),
            f"{count(skew.n_last[index])} of {count(skew.n_matched)}",
            signed_duration(skew.clocks[index].offset_ns, plus=True),
            "unknown"
            if (drift := skew.clocks[index].drift) is None
            else f"{signed_duration(drift * 1e9, plus=True)}/s",
        )
        for index in order
    ]
    return Sheet(("rank", "late", "last in", "clock ahead", "drift"), rows, f"collectives of {job_name(job)}")


def failed_sheet(report: RanksReport) -> Sheet:
    """The files without figures."""
    rows = [(file.name, file.reason or "") for file in report.failed[:MOST_FAILED]]
    more = len(report.failed) - len(rows)
    return Sheet(("could not be used", "why"), rows, "", (f"and {count(more)} more; --csv has all",) if more else ())


def job_sheets(report: RanksReport, most_jobs: int) -> Iterator[Sheet]:
    """Of the jobs that have something to tell, those with the largest skew first."""
    for job in sorted(report.jobs, key=lambda job: -(job.skew.start_p50_ns if job.skew else 0))[:most_jobs]:
        if job.waits is not None and job.waits.slow:
            yield waits_sheet(report, job)
        if job.skew is not None:
            yield skew_sheet(report, job)


def write_ranks_csv(report: RanksReport, path: Path, *, of: Iterable[Path] = ()) -> None:
    """Write the ranks to ``path``, whole or not at all. ``of``: their traces, see :func:`cbprof.files.whole_file`.

    What is unknown is empty; ``blame_ns`` is ``cause=ns;cause=ns``.
    """
    write_table(path, COLUMNS, map(_cells, report.to_json()["ranks"]), "the table", of=of)


def _cells(rank: Mapping[str, Any]) -> list[Any]:
    start, end = rank.get("window_ns", ("", ""))
    blame = ";".join(f"{label}={ns}" for label, ns in (rank.get("blame_ns") or {}).items())
    known = {**rank, "start_ns": start, "end_ns": end, "blame_ns": blame}
    return ["" if (value := known.get(column)) is None else value for column in COLUMNS]
