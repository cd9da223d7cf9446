"""``cbprof report`` of several files: one row a rank, read in parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from cbprof.errors import CbprofError, DataError, UsageError

if TYPE_CHECKING:
    from cbprof.analysis.ranks.one_folder import Rank, RanksReport
    from cbprof.analysis.summary import Summary
    from cbprof.trace import Trace

    Summarize = Callable[[Trace], Summary]

SUFFIXES = (".json", ".json.gz", ".sqlite")
"""How a file in a folder must end to be taken for a trace."""

WORTH_A_PROCESS = 8 << 20
"""Bytes in all from which reading takes longer than starting processes for it."""


class Examined(NamedTuple):
    """What a process finds in one file."""

    ranks: tuple[Rank, ...]
    report: dict[str, Any]


def report_ranks(
    paths: Sequence[Path],
    summarize: Summarize,
    *,
    json: bool,
    gaps: Literal["longest", "all"] = "longest",
    no_cache: bool = False,
) -> None:
    """Print the ranks in these files and folders. ``summarize`` must be importable by name, for other processes.

    Of a folder, what is no trace is left out, with a word on stderr; a file that was named must be one.
    """
    from cbprof.analysis.ranks.one_folder import compare_ranks

    examine = partial(_examine, summarize=summarize, gaps=gaps, no_cache=no_cache)
    files, whole_folders = files_of(paths), [path for path in paths if path.is_dir()]
    examined = []
    for file, found in zip(files, _examine_all(files, examine), strict=True):
        if isinstance(found, Examined):
            examined.append(found)
        elif file.parent in whole_folders and file not in paths:
            typer.echo(f"cbprof: left out: {found}", err=True)
        else:
            raise found
    if not examined:
        raise DataError(f"{paths[0]}: none of its {len(files)} files is a trace; name the files")
    report = compare_ranks([rank for each in examined for rank in each.ranks])
    if not report.ranks:
        raise DataError(f"{paths[0]}: none of its {len(examined)} traces has work of a device, so no rank to compare")
    if json:
        from json import dumps

        typer.echo(dumps(ranks_json(report, [each.report for each in examined]), indent=1))
    else:
        from rich.console import Console

        from cbprof.render.tables.one_folder import ranks_table

        Console().print(ranks_table(report, title=str(whole_folders[0]) if whole_folders else None))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files, and those in the folders that look like traces, each once. Raises UsageError on an empty folder."""
    files: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        inside = sorted(each for each in path.iterdir() if each.name.endswith(SUFFIXES) and each.is_file())
        if not inside:
            raise UsageError(f"{path}: the folder has no file that ends in {', '.join(SUFFIXES)}; name the files")
        files |= dict.fromkeys(inside)
    return list(files)


def _examine_all(
    files: Sequence[Path], examine: Callable[[Path], Examined | CbprofError]
) -> list[Examined | CbprofError]:
    total = sum(file.stat().st_size for file in files if file.is_file())
    workers = min(len(files), cpu_count() or 1)
    if workers == 1 or total < WORTH_A_PROCESS:
        return [examine(file) for file in files]
    # Spawned, not forked: the parent may hold threads, and a child needs nothing of it.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(examine, files))


def _examine(
    file: Path, *, summarize: Summarize, gaps: Literal["longest", "all"], no_cache: bool
) -> Examined | CbprofError:
    from cbprof.analysis.ranks.one_folder import ranks_of
    from cbprof.analysis.report import to_json
    from cbprof.formats import load

    try:
        trace = load(file, cached=not no_cache)
        summary = summarize(trace)
    except CbprofError as error:
        return error
    return Examined(ranks_of(trace, summary, file.name), to_json(summary, file=str(file), gaps=gaps))


def ranks_json(report: RanksReport, files: list[dict[str, Any]]) -> dict[str, Any]:
    """The ranks as plain data with stable keys. ``files`` has the report of each file, as it has one of its own.

    Times are nanoseconds; those of ``aligned_window_ns`` count from ``origin_ns`` on the common axis.
    """
    idle, skew = report.idle_pcts, report.skew
    return {
        "schema": 1,
        "origin_ns": report.origin_ns,
        "ranks": [_rank(report, row) for row in range(len(report.ranks))],
        "idle_pct": {"min": min(idle), "max": max(idle), "mean": sum(idle) / len(idle), "spread": max(idle) - min(idle)}
        if idle
        else None,
        "slowest": {**_whose(report, report.slowest.row), "why": report.slowest.why} if report.slowest else None,
        "collectives": {
            "n_matched": skew.n_matched,
            "n_unmatched": skew.n_unmatched,
            "start_skew_ns": {"p50": skew.start_p50_ns, "max": skew.start_max_ns},
            "end_skew_ns": {"p50": skew.end_p50_ns, "max": skew.end_max_ns},
        }
        if skew
        else None,
        "health": {
            "aligned_comm_start_skew_us": skew.start_max_ns / 1000 if skew else None,
            "aligned_comm_end_skew_us": skew.end_max_ns / 1000 if skew else None,
        },
        "warnings": list(report.warnings),
        "files": files,
    }


def _whose(report: RanksReport, row: int) -> dict[str, Any]:
    rank = report.ranks[row]
    return {"file": rank.file, "rank": rank.rank, "device": rank.device}


def _rank(report: RanksReport, row: int) -> dict[str, Any]:
    rank, skew = report.ranks[row], report.skew
    shift = (rank.base_time_ns or 0) - report.origin_ns
    return {
        **_whose(report, row),
        "window_ns": [rank.start_ns, rank.end_ns],
        "aligned_window_ns": [rank.start_ns + shift, rank.end_ns + shift] if report.one_axis else None,
        "idle_ns": rank.idle_ns,
        "idle_pct": rank.idle_pct,
        "busy_ns": rank.busy_ns,
        "kernel_busy_ns": rank.kernel_busy_ns,
        "comm_busy_ns": rank.comm_busy_ns,
        "exposed_comm_ns": rank.exposed_comm_ns,
        "late_ns": skew.late_ns[row] if skew else None,
        "waited_ns": skew.waited_ns[row] if skew else None,
        "reliable": rank.reliable,
    }
