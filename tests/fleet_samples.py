"""Traces of a fleet for tests: ranks that step together, in two formats, whose figures are known exactly.

A step of a rank, in microseconds, with its own lengths of schedule and compute::

    host     | schedule | launch |        wait for the device        |
    device              |      gap | compute | all-reduce ...........|   ends when the last rank has come
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kineto_samples as kineto

from cbprof.analysis.ranks.rank import ranks_of
from cbprof.analysis.ranks.report import ExaminedFile, RanksReport, compare_ranks
from cbprof.analysis.summary import summarize
from cbprof.fleet.files import TraceFile
from cbprof.formats import load, save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, TraceBuilder

US = 1000
BASE_NS = 1_790_000_000_000_000_000
LAUNCH, LATENCY, REDUCE, BETWEEN = 10, 5, 20, 30  # microseconds


@dataclass(frozen=True)
class Pace:
    """What a step of a rank takes, in microseconds, and how its clock differs from the true one.

    ``slow_at``: a step whose compute takes ten times as long. ``ahead_us``: of the clock; ``drift``: us per us.
    """

    schedule: int = 100
    compute: int = 1000
    slow_at: int | None = None
    ahead_us: float = 0.0
    drift: float = 0.0

    def compute_at(self, step: int) -> int:
        return self.compute * (10 if step == self.slow_at else 1)

    def stamped(self, true_us: float) -> float:
        """What the clock says, to the nanosecond."""
        return round(true_us + self.ahead_us + self.drift * true_us, 3)


@dataclass(frozen=True)
class Step:
    """The true times of a step on one rank, in microseconds."""

    schedule: int
    launch: int
    compute: int
    reduce: int
    end: int


def timeline(paces: Sequence[Pace], steps: int) -> list[list[Step]]:
    """The steps of each rank. A step begins everywhere when the collective of the one before has ended."""
    found: list[list[Step]] = [[] for _ in paces]
    begin = 0
    for number in range(steps):
        reduce = [begin + each.schedule + LAUNCH + LATENCY + each.compute_at(number) for each in paces]
        end = max(reduce) + REDUCE
        for rank, (pace, start) in enumerate(zip(paces, reduce, strict=True)):
            launch = begin + pace.schedule
            found[rank].append(Step(begin, launch, launch + LAUNCH + LATENCY, start, end))
        begin = end + BETWEEN
    return found


def kineto_rank(folder: Path, rank: int, pace: Pace, steps: Sequence[Step], world: int) -> Path:
    """The rank's trace as torch.profiler writes it."""
    at = pace.stamped
    events: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        link, finish, wait = 10 * number + 1, step.end, step.launch + LAUNCH + 2
        events += [
            kineto.annotation(at(step.schedule), at(finish) - at(step.schedule), f"ProfilerStep#{number}"),
            kineto.host(at(step.schedule), at(step.launch) - at(step.schedule), "schedule"),
            kineto.call(at(step.launch), LAUNCH, "cudaLaunchKernel", link),
            kineto.kernel(at(step.compute), at(step.reduce) - at(step.compute), "gemm", correlation=link),
            kineto.call(at(step.launch + LAUNCH), 1, "cudaLaunchKernel", link + 1),
            kineto.kernel(
                at(step.reduce),
                at(finish) - at(step.reduce),
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",
                correlation=link + 1,
            ),
            kineto.call(at(wait), at(finish) - at(wait), "cudaDeviceSynchronize", 0),
        ]
    fields = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": rank, "world_size": world}}
    return kineto.write(folder, *events, name=f"rank{rank:05d}.pt.trace.json", **fields)


def native_rank(folder: Path, rank: int, pace: Pace, steps: Sequence[Step], world: int, *, gz: bool = False) -> Path:
    """The same in cbprof's own format, as another profiler's converted trace would be."""
    builder = TraceBuilder()
    host = builder.lane(Lane("engine", rank=rank))
    compute, comm = (builder.lane(Lane(name, device=0, rank=rank)) for name in ("compute", "comm"))

    def span(lane: int, kind: Kind, name: str, start: int, end: int, step: int, link: int = -1) -> None:
        begin, finish = (round(pace.stamped(each) * US) for each in (start, end))
        builder.span(lane, kind, name, begin, finish - begin, step=step, link=link)

    for number, step in enumerate(steps):
        link = 2 * number
        span(host, Kind.CPU_WORK, "schedule", step.schedule, step.launch, number)
        span(host, Kind.CPU_WORK, "launch", step.launch, step.launch + LAUNCH, number, link)
        span(host, Kind.CPU_WAIT, "wait", step.launch + LAUNCH, step.end, number)
        span(compute, Kind.GPU_COMPUTE, "gemm", step.compute, step.reduce, number, link)
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"
        span(comm, Kind.GPU_COMM, name, step.reduce, step.end, number)
    meta = {
        "rank": rank,
        "world_size": world,
        "base_time_ns": BASE_NS,
        "evidence": "cupti",
        "complete": True,
        "reliable": True,
        "mode": "sync",
    }
    return save(builder.build(Meta.parse(meta)), folder / f"trace.rank{rank:05d}.json{'.gz' if gz else ''}")


def write_fleet(folder: Path, paces: Sequence[Pace], steps: int = 40) -> list[Path]:
    """A file a rank: even ranks as torch.profiler's, odd ones as our own, half of those gzip."""
    files = []
    for rank, (pace, mine) in enumerate(zip(paces, timeline(paces, steps), strict=True)):
        if rank % 2:
            files.append(native_rank(folder, rank, pace, mine, len(paces), gz=rank % 4 == 1))
        else:
            files.append(kineto_rank(folder, rank, pace, mine, len(paces)))
    return files


def usual(count: int, **unusual: Pace) -> list[Pace]:
    """``count`` ranks of one pace, but for ``r17=Pace(...)``."""
    paces = [Pace() for _ in range(count)]
    for name, pace in unusual.items():
        paces[int(name[1:])] = pace
    return paces


def small_report(folder: Path) -> RanksReport:
    """Four ranks, of which one schedules for long and one has a slow step and a clock that is off, and a bad file."""
    files = []
    for path in write_fleet(folder, usual(4, r1=Pace(schedule=300), r2=Pace(slow_at=7, ahead_us=50)), steps=12):
        trace = load(path)
        files.append(ExaminedFile(f"traces/<b>{path.name}", 1, ranks_of(trace, summarize(trace))))
    return compare_ranks([*files, ExaminedFile("traces/bad.json", 0, reason="the file is <empty>\x1b[31m")])


def examine_or_die(file: TraceFile, dataset: object = None) -> ExaminedFile:
    """As where the memory of a file is more than there is: its process is killed."""
    if "deadly" in file.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return ExaminedFile(file.name, file.size, ranks=())
