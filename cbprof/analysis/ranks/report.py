"""All ranks of a fleet side by side: who idles, who is slow and why, and what the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from cbprof.analysis.ranks.clocks import Skew, skew_of
from cbprof.analysis.ranks.heat import HeatMap, heat_map
from cbprof.analysis.ranks.rank import FleetRank
from cbprof.analysis.ranks.waits import StepWaits, step_waits

MOST_SLOW = 10
SLOW_FROM = 1.02
"""Times the median rank's own time from which a rank counts as slow."""

TELLING = 0.1
"""Of a difference: a part below this share explains nothing."""

GPU_WORK = "GPU work"


@dataclass(frozen=True, slots=True, eq=False)
class ExaminedFile:
    """What is known of one file. ``reason``: why it holds no figures; ``name`` is where it is, without any secret."""

    name: str
    size: int
    ranks: tuple[FleetRank, ...] = ()
    reason: str | None = None
    content: str | None = None

    @property
    def folder(self) -> str:
        """What stands before the last slash."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True, eq=False)
class FleetRow:
    """A rank and its file."""

    file: ExaminedFile
    rank: FleetRank

    @property
    def label(self) -> str:
        """``rank 3``; or the file, where no number is known."""
        return self.file_label if self.rank.rank is None else f"rank {self.rank.rank}"

    @property
    def file_label(self) -> str:
        """``trace.json, GPU 0``."""
        return f"{self.file.name.rpartition('/')[2]}, GPU {self.rank.device}"


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


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The ranks whose files lie in one folder: those that may run collectives and steps together.

    ``rows``: those that are compared, which ``skew`` and ``waits`` count from 0; a rank whose trace is cut short would
    take its last steps and collectives from all others, and is left out.
    """

    folder: str
    rows: tuple[int, ...]
    n_left_out: int
    skew: Skew | None
    waits: StepWaits | None


@dataclass(frozen=True, slots=True, eq=False)
class FleetReport:
    """``unit``: what times are given for, ``step`` or ``run`` (where a rank has no steps). ``median_row``: the rank
    with the median own time, which the others are compared with; None where no idle time is known at all.
    """

    rows: tuple[FleetRow, ...]
    failed: tuple[ExaminedFile, ...]
    idle: IdleSpread | None
    unit: str
    median_row: int | None
    slow: tuple[SlowRank, ...]
    jobs: tuple[Job, ...]
    heat: HeatMap
    warnings: tuple[str, ...]

    def own_ns(self, row: int) -> float:
        """The own time of a rank in nanoseconds a unit."""
        return _own_ns(self.rows[row].rank, self.unit)

    @property
    def n_files(self) -> int:
        return len({id(row.file) for row in self.rows}) + len(self.failed)


def report_fleet(files: Sequence[ExaminedFile]) -> FleetReport:
    """Put everything side by side, in the order of folders, rank numbers, files and devices."""
    rows = [FleetRow(file, rank) for file in files for rank in file.ranks]
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
    return FleetReport(
        rows=tuple(rows),
        failed=failed,
        idle=_spread([row.rank.idle_pct for row in rows if row.rank.idle_pct is not None]),
        unit=unit,
        median_row=median,
        slow=tuple(_slow(rows, median, unit)) if median is not None else (),
        jobs=tuple(_jobs(rows)),
        heat=heat_map([row.rank for row in rows]),
        warnings=tuple(_warnings(rows)),
    )


def _own_ns(rank: FleetRank, unit: str) -> float:
    return rank.own_ns / rank.n_steps if unit == "step" else float(rank.own_ns)


def _median_row(rows: Sequence[FleetRow], unit: str) -> int | None:
    """The rank in the middle by own time; of two, the faster."""
    known = [index for index, row in enumerate(rows) if row.rank.idle_ns is not None]
    known.sort(key=lambda index: _own_ns(rows[index].rank, unit))
    return known[(len(known) - 1) // 2] if known else None


def _slow(rows: Sequence[FleetRow], median: int, unit: str) -> list[SlowRank]:
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


def _parts(rank: FleetRank, unit: str) -> dict[str, float]:
    """What a rank's own time is made of, in nanoseconds a unit."""
    units = rank.n_steps if unit == "step" else 1
    parts = {label: ns / units for label, ns in rank.causes.items()}
    return parts | {GPU_WORK: parts.get(GPU_WORK, 0.0) + rank.gpu_ns / units}


def _jobs(rows: Sequence[FleetRow]) -> list[Job]:
    jobs = []
    for folder, group in groupby(range(len(rows)), key=lambda index: rows[index].file.folder):
        mine = tuple(group)
        whole = tuple(index for index in mine if rows[index].rank.complete)
        ranks = [rows[index].rank for index in whole]
        jobs.append(Job(folder, whole, len(mine) - len(whole), skew_of(ranks), step_waits(ranks)))
    return jobs


def _spread(idle: Sequence[float]) -> IdleSpread | None:
    if not idle:
        return None
    p10, median, p90 = (float(each) for each in np.percentile(idle, (10, 50, 90)))
    return IdleSpread(len(idle), min(idle), p10, median, p90, max(idle), sum(idle) / len(idle))


def _warnings(rows: Sequence[FleetRow]) -> list[str]:
    found = []
    levels = sorted({row.rank.evidence for row in rows})
    if len(levels) > 1:
        found.append(f"the ranks were measured in different ways ({', '.join(levels)}), which do not compare exactly")
    if cut := [row.label for row in rows if not row.rank.complete]:
        found.append(f"{_some(cut)}: the trace is cut short; its figures cover what is there")
    if unsure := [row.label for row in rows if row.rank.complete and not row.rank.reliable]:
        found.append(f"{_some(unsure)}: the figures are not to be trusted; see `cbprof doctor` on the file")
    if unknown := [row.label for row in rows if row.rank.idle_ns is None]:
        found.append(f"{_some(unknown)}: nothing ran on the device, so that its idle time is unknown")
    twice = [
        (folder, number)
        for folder, group in groupby(rows, key=lambda row: row.file.folder)
        for number, same in groupby(group, key=lambda row: row.rank.rank)
        if number is not None and len(list(same)) > 1
    ]
    if twice:
        folder, number = twice[0]
        found.append(f"{folder or 'the folder'}: more than one device or file says that it is rank {number}")
    return found


def _some(labels: Sequence[str]) -> str:
    """The first few of them."""
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(labels[:3])}{more}"
