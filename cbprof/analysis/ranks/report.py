"""All ranks side by side: who idles, who is slow and why, and what the others wait for.

The same for the ranks of one folder and for a fleet of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.ranks.clocks import Skew, skew_of
from cbprof.analysis.ranks.heat import HeatMap, heat_map
from cbprof.analysis.ranks.parts import parts_of_recordings, warnings_of_parts
from cbprof.analysis.ranks.rank import Rank
from cbprof.analysis.ranks.waits import StepWaits, step_waits
from cbprof.numbers import counted

SCHEMA = 1
"""Of the plain form."""

MOST_SLOW = 10
SLOW_FROM = 1.02
"""Times the median rank's own time from which a rank counts as slow."""

TELLING = 0.1
"""Of a difference: a part below this share explains nothing."""

GPU_WORK = "GPU work"
LONGEST_OWN_TIME = "its own time is the longest"


@dataclass(frozen=True, slots=True, eq=False)
class ExaminedFile:
    """What is known of one file. ``reason``: why it holds no figures; ``name`` is where it is, without any secret."""

    name: str
    size: int
    ranks: tuple[Rank, ...] = ()
    reason: str | None = None
    content: str | None = None

    @property
    def folder(self) -> str:
        """What stands before the last slash."""
        return self.name.rpartition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """Of a file without figures."""
        return {"file": self.name, "rank": None, "device": None, "reason": self.reason}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A rank and its file."""

    file: ExaminedFile
    rank: Rank

    @property
    def label(self) -> str:
        """``rank 3``; or the file, where no number is known."""
        return self.file_label if self.rank.rank is None else f"rank {self.rank.rank}"

    @property
    def file_label(self) -> str:
        """``trace.json, GPU 0``."""
        return f"{self.file.name.rpartition('/')[2]}, GPU {self.rank.device}"

    @property
    def whose(self) -> dict[str, Any]:
        """What names the rank in the plain form."""
        return {"file": self.file.name, "rank": self.rank.rank, "device": self.rank.device}


class IdleSpread(NamedTuple):
    """Idle shares over the ranks that have one, in per cent."""

    n: int
    min: float
    p10: float
    median: float
    p90: float
    max: float
    mean: float


class Part(NamedTuple):
    """A part of a rank's own time, and how much more of it than the median rank has; nanoseconds a unit."""

    label: str
    ns: float
    more_ns: float


class SlowRank(NamedTuple):
    """A rank (a row) whose own time exceeds the median rank's: ``own_ns`` a unit, ``times`` as long.

    ``why``: the parts that make up a tenth of the difference or more, largest first.
    """

    row: int
    own_ns: float
    times: float
    why: tuple[Part, ...]


class Slowest(NamedTuple):
    """The rank (a row) that the others wait for, and how that shows."""

    row: int
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The ranks that may run collectives and steps together: those whose files lie in one folder.

    Where every folder holds one rank only, and no two have the same number, all folders are one job. ``rows``: those
    that are compared, which ``skew`` and ``waits`` count from 0; a rank whose trace is cut short would take its last
    steps and collectives from all others, and is left out.
    """

    folder: str
    rows: tuple[int, ...]
    n_left_out: int
    skew: Skew | None
    waits: StepWaits | None

    def to_json(self, whose: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """``whose``: what names each row of the report."""
        mine = [whose[row] for row in self.rows]
        return {
            "folder": self.folder,
            "n_ranks": len(self.rows),
            "n_left_out": self.n_left_out,
            "collectives": self.skew.to_json(mine) if self.skew else None,
            "steps": self.waits.to_json(mine) if self.waits else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class RanksReport:
    """``unit``: what times are given for, ``step`` or ``run`` (where a rank has no steps). ``median_row``: the rank
    with the median own time, which the others are compared with; None where no idle time is known at all. ``slow``: the
    ranks with the longest own times. ``slowest``: the one that the others wait for; None where none stands out.
    ``parts``: the rows of each recording that lies in several files.
    """

    rows: tuple[Row, ...]
    failed: tuple[ExaminedFile, ...]
    idle: IdleSpread | None
    unit: str
    median_row: int | None
    slow: tuple[SlowRank, ...]
    slowest: Slowest | None
    jobs: tuple[Job, ...]
    heat: HeatMap
    warnings: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...] = ()

    @property
    def n_ranks(self) -> int:
        """Parts of one recording count as one."""
        return len(self.rows) - sum(len(rows) - 1 for rows in self.parts)

    def own_ns(self, row: int) -> float:
        """The own time of a rank in nanoseconds a unit."""
        return _own_ns(self.rows[row].rank, self.unit)

    @property
    def n_files(self) -> int:
        return len({id(row.file) for row in self.rows}) + len(self.failed)

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys; times are nanoseconds, and what is unknown is None.

        ``ranks`` has one entry a device, and one for each file that could not be used, with its ``reason``.
        """
        whose = [row.whose for row in self.rows]
        ranks = [
            {
                "file": row.file.name,
                **row.rank.to_json(),
                "reason": None,
                "own_ns": self.own_ns(index) if row.rank.idle_ns is not None else None,
            }
            for index, row in enumerate(self.rows)
        ]
        return {
            "schema": SCHEMA,
            "ranks": ranks + [file.to_json() for file in self.failed],
            "slowest": {**whose[self.slowest.row], "why": self.slowest.why} if self.slowest else None,
            "summary": {
                "n_files": self.n_files,
                "n_failed": len(self.failed),
                "n_ranks": self.n_ranks,
                "idle_pct": self.idle._asdict() if self.idle else None,
                "unit": self.unit,
                "median": whose[self.median_row] | {"own_ns": self.own_ns(self.median_row)}
                if self.median_row is not None
                else None,
                "slowest": [
                    {
                        **whose[slow.row],
                        "own_ns": slow.own_ns,
                        "times": slow.times,
                        "why": [part._asdict() for part in slow.why],
                    }
                    for slow in self.slow
                ],
                "jobs": [job.to_json(whose) for job in self.jobs],
                "warnings": list(self.warnings),
            },
        }


def compare_ranks(files: Sequence[ExaminedFile]) -> RanksReport:
    """Put everything side by side, in the order of folders, rank numbers, files and devices."""
    rows = [Row(file, rank) for file in files for rank in file.ranks]
    rows.sort(
        key=lambda row: (
            row.file.folder,
            row.rank.rank is None,
            row.rank.rank or 0,
            row.file.name,
            row.rank.device,
        )
    )
    failed = tuple(sorted((file for file in files if file.reason is not None), key=attrgetter("name")))
    unit = "step" if rows and all(row.rank.n_steps for row in rows) else "run"
    median = _median_row(rows, unit)
    slow = _slow(rows, median, unit) if median is not None else []
    jobs = _jobs(rows)
    parts = parts_of_recordings([(row.file.folder, row.rank) for row in rows])
    return RanksReport(
        rows=tuple(rows),
        failed=failed,
        idle=_spread([row.rank.idle_pct for row in rows if row.rank.idle_pct is not None]),
        unit=unit,
        median_row=median,
        slow=tuple(slow),
        slowest=_slowest(rows, jobs, slow),
        jobs=tuple(jobs),
        heat=heat_map([row.rank for row in rows]),
        warnings=(*_warnings(rows, parts), *_warnings_of_jobs(rows, jobs)),
        parts=tuple(map(tuple, parts)),
    )


def _own_ns(rank: Rank, unit: str) -> float:
    return rank.own_ns / rank.n_steps if unit == "step" else float(rank.own_ns)


def _median_row(rows: Sequence[Row], unit: str) -> int | None:
    """The rank in the middle by own time; of two, the faster."""
    known = [index for index, row in enumerate(rows) if row.rank.idle_ns is not None]
    known.sort(key=lambda index: _own_ns(rows[index].rank, unit))
    return known[(len(known) - 1) // 2] if known else None


def _slow(rows: Sequence[Row], median: int, unit: str) -> list[SlowRank]:
    """The slowest ranks, slowest first."""
    typical = _own_ns(rows[median].rank, unit)
    usual = _parts(rows[median].rank, unit)
    found = []
    for index, row in enumerate(rows):
        own = _own_ns(row.rank, unit)
        if row.rank.idle_ns is None or not typical or own < SLOW_FROM * typical:
            continue
        mine = _parts(row.rank, unit)
        parts = [Part(label, ns, ns - usual.get(label, 0.0)) for label, ns in mine.items()]
        telling = [part for part in parts if part.more_ns >= TELLING * (own - typical)]
        why = tuple(sorted(telling, key=lambda part: (-part.more_ns, part.label)))
        found.append(SlowRank(index, own, own / typical, why))
    return sorted(found, key=lambda slow: -slow.own_ns)[:MOST_SLOW]


def _parts(rank: Rank, unit: str) -> dict[str, float]:
    """What a rank's own time is made of, in nanoseconds a unit."""
    units = rank.n_steps if unit == "step" else 1
    parts = {label: ns / units for label, ns in rank.causes.items()}
    return parts | {GPU_WORK: parts.get(GPU_WORK, 0.0) + rank.gpu_ns / units}


def _jobs(rows: Sequence[Row]) -> list[Job]:
    groups = [
        (folder, list(group)) for folder, group in groupby(range(len(rows)), key=lambda index: rows[index].file.folder)
    ]
    numbers = {row.rank.rank for row in rows}
    if len(groups) == len(rows) == len(numbers) > 1 and None not in numbers:
        groups = [(_common_folder([folder for folder, _ in groups]), list(range(len(rows))))]
    jobs = []
    for folder, mine in groups:
        whole = tuple(index for index in mine if rows[index].rank.complete)
        ranks = [rows[index].rank for index in whole]
        skew = skew_of(ranks) if _on_one_axis([rows[index] for index in whole]) else None
        jobs.append(Job(folder, whole, len(mine) - len(whole), skew, step_waits([rank.steps for rank in ranks])))
    return jobs


def _common_folder(folders: Sequence[str]) -> str:
    parts = zip(*(folder.split("/") for folder in folders), strict=False)
    return "/".join(same[0] for same in takewhile(lambda each: len(set(each)) == 1, parts))


def _on_one_axis(rows: Sequence[Row]) -> bool:
    """Whether times compare: all files say when their time 0 was, or it is one file."""
    return all(row.rank.base_time_ns is not None for row in rows) or len({row.file.name for row in rows}) == 1


def _slowest(rows: Sequence[Row], jobs: Sequence[Job], slow: Sequence[SlowRank]) -> Slowest | None:
    """The last to arrive; of several jobs, in the one whose ranks start furthest apart.

    Where that cannot be seen, the one that waits least in collectives, or whose own time is the longest.
    """
    told = [(job, job.skew, job.skew.latest) for job in jobs if job.skew is not None]
    for job, _, latest in sorted(told, key=lambda each: -each[1].start_p50_ns):
        if latest is not None:
            return Slowest(job.rows[latest], "it starts its collectives last")
    if len(jobs) == 1 and len(jobs[0].rows) > 1:
        comm = {row: rows[row].rank.comm_busy_ns for row in jobs[0].rows}
        if max(comm.values()) > min(comm.values()):
            least = min(comm, key=comm.__getitem__)
            return Slowest(least, "it spends the least time in collectives, in which the others wait")
    return Slowest(slow[0].row, LONGEST_OWN_TIME) if slow else None


def _spread(idle: Sequence[float]) -> IdleSpread | None:
    if not idle:
        return None
    p10, median, p90 = (float(each) for each in np.percentile(idle, (10, 50, 90)))
    return IdleSpread(len(idle), min(idle), p10, median, p90, max(idle), sum(idle) / len(idle))


def _warnings(rows: Sequence[Row], parts: Sequence[list[int]]) -> list[str]:
    ranks = [row.rank for row in rows]
    names = {place: row.file.name.rpartition("/")[2] for place, row in enumerate(rows)}
    found = list(warnings_of_parts(names, ranks, parts))
    levels = sorted({row.rank.evidence for row in rows})
    if len(levels) > 1:
        found.append(f"the ranks were measured in different ways ({', '.join(levels)}), which do not compare exactly")
    if cut := [row.label for row in rows if not row.rank.complete]:
        found.append(f"{_some(cut)}: the trace is cut short; its figures cover what is there")
    if unsure := [row.label for row in rows if row.rank.complete and not row.rank.reliable]:
        found.append(f"{_some(unsure)}: the figures are not to be trusted; see `cbprof doctor` on the file")
    if unknown := [row.label for row in rows if row.rank.idle_ns is None]:
        found.append(f"{_some(unknown)}: nothing ran on the device, so that its idle time is unknown")
    of_parts = {rows[places[0]].rank.rank for places in parts}
    twice = [
        (folder, number)
        for folder, group in groupby(rows, key=lambda row: row.file.folder)
        for number, same in groupby(group, key=lambda row: row.rank.rank)
        if number is not None and len(list(same)) > 1 and number not in of_parts
    ]
    if twice:
        folder, number = twice[0]
        found.append(f"{folder or 'the folder'}: more than one device or file says that it is rank {number}")
    return found


def _warnings_of_jobs(rows: Sequence[Row], jobs: Sequence[Job]) -> list[str]:
    found = []
    if n_unmatched := sum(job.skew.n_unmatched for job in jobs if job.skew is not None):
        found.append(f"{counted(n_unmatched, 'collective is', 'collectives are')} not on every rank: not compared")
    apart = [row for job in jobs if not _on_one_axis(mine := [rows[index] for index in job.rows]) for row in mine]
    if lost := [row.label for row in apart if row.rank.base_time_ns is None]:
        found.append(
            f"{_some(lost)}: the file does not say when its time 0 was; collectives cannot be compared without that"
        )
    return found


def _some(labels: Sequence[str]) -> str:
    """The first few of them."""
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(labels[:3])}{more}"
