#!/usr/bin/env python3
"""Measures `cbprof fleet` on this machine: what a worker reads a second, and what it all costs in memory.

* throughput with one worker and with two, on the same profiler traces (scripts/gen_kineto.py), and their ratio; in
  turns, and the fastest of each, since whatever else the machine does only slows them down;
* the most memory of a worker over 10, 100 and 1,000 small files: it must not grow with their number;
* the driver with 10,000 summaries of full size, which no file stands behind: its memory, and what a task costs.

    scripts/bench_fleet.py
    scripts/bench_fleet.py throughput --events 4000000 --files 8
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from gen_kineto import Loop, generate

LEAST_RATIO = 1.7
MOST_DRIVER_MB = 300
MOST_GROWTH = 1.15  # of a worker's memory, from the fewest files to the most


def throughput(options: argparse.Namespace, folder: Path) -> bool:
    """Files and bytes a second, with one worker and with two."""
    from cbprof.fleet.files import find_files

    first = folder / "0.json"
    generate(first, options.events, Loop())
    for number in range(1, options.files):
        shutil.copy(first, folder / f"{number}.json")
    files = find_files([str(folder)])
    total_mb = sum(file.size for file in files) / 1e6
    print(f"{len(files)} files of {total_mb / len(files):,.1f} MB, {options.events:,} events each")
    print("| workers | seconds | files/s | MB/s a worker | most memory of a worker |\n|---|---|---|---|---|")
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers, all_seconds in taken.items():
            seconds, peak = _timed(files, workers)
            all_seconds.append(seconds)
            speed = total_mb / seconds / workers
            row = (f"{seconds:.2f}", f"{len(files) / seconds:.2f}", f"{speed:.1f}", f"{peak:,.0f} MB")
            print(f"| {workers} | " + " | ".join(row) + " |", flush=True)
    ratio = min(taken[1]) / min(taken[2])
    print(f"2 workers are {ratio:.2f} times as fast as 1 (at least {LEAST_RATIO} is wanted)\n")
    return ratio >= LEAST_RATIO


def _timed(files: Any, workers: int) -> tuple[float, float]:
    """Seconds for all files with so many workers, warm, and the most memory that one of them had, in MB."""
    from cbprof.fleet.cluster import local_cluster
    from cbprof.fleet.run import examine_all

    with local_cluster(len(files), workers=workers) as client:
        client.run(warm_up)
        list(examine_all(client, files[:workers], None))
        begin = perf_counter()
        assert all(examined.ranks for _, examined in examine_all(client, files, None))
        return perf_counter() - begin, max(client.run(peak_mb).values())


def memory(options: argparse.Namespace, folder: Path) -> bool:
    """The most memory of a worker by the number of small files."""
    from cbprof.fleet.cluster import local_cluster
    from cbprof.fleet.files import find_files
    from cbprof.fleet.run import examine_all

    (folder / "small").mkdir()
    first = folder / "small" / "0.json"
    generate(first, 2000, Loop())
    for number in range(1, max(options.counts)):
        shutil.copy(first, folder / "small" / f"{number}.json")
    files = find_files([str(folder / "small")])
    print(f"small files of {files[0].size / 1e6:.2f} MB")
    print("| files | files/s with 2 workers | most memory of a worker |\n|---|---|---|")
    peaks = []
    for count in options.counts:
        with local_cluster(count, workers=2) as client:
            client.run(warm_up)
            begin = perf_counter()
            assert len(list(examine_all(client, files[:count], None))) == count
            took = perf_counter() - begin
            peaks.append(max(client.run(peak_mb).values()))
        print(f"| {count:,} | {count / took:,.0f} | {peaks[-1]:,.0f} MB |", flush=True)
    print(f"the most is {max(peaks) / peaks[0]:.2f} times the first (at most {MOST_GROWTH} is wanted)\n")
    return max(peaks) <= MOST_GROWTH * peaks[0]


def driver(options: argparse.Namespace, folder: Path) -> bool:
    """A process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "drive", "--summaries", str(options.summaries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, reported, seconds = map(float, done.stdout.split())
    print("| summaries | driver before | with all of them | with the report | a task |\n|---|---|---|---|---|")
    per_task = f"{1e3 * seconds / options.summaries:.2f} ms"
    print(f"| {options.summaries:,} | {before:,.0f} MB | {after:,.0f} MB | {reported:,.0f} MB | {per_task} |")
    print(f"the driver needs {reported:,.0f} MB (at most {MOST_DRIVER_MB} is wanted)\n")
    return reported <= MOST_DRIVER_MB


def drive(options: argparse.Namespace) -> None:
    """Be the driver: one task a file that returns a generated summary, then the report of all."""
    from cbprof.analysis.ranks.report import compare_ranks
    from cbprof.fleet import run
    from cbprof.fleet.cluster import local_cluster
    from cbprof.fleet.files import TraceFile

    run.examine = generated
    files = [TraceFile(f"job/{number}.json", f"/job/{number}.json", 1, None) for number in range(options.summaries)]
    with local_cluster(len(files), workers=1) as client:
        client.run(warm_up)
        before, begin = peak_mb(), perf_counter()
        examined = [result for _, result in run.examine_all(client, files, None)]
        seconds, after = perf_counter() - begin, peak_mb()
    report = compare_ranks(examined)
    assert len(report.rows) == options.summaries
    print(before, after, peak_mb(), seconds)


def generated(file: Any, dataset: None) -> Any:
    """A rank with as many figures as a summary can have: 256 groups of steps, 128 collectives, 30 causes."""
    import numpy as np

    from cbprof.analysis.ranks.rank import BINS, MOST_KEPT, Collectives, Rank
    from cbprof.analysis.ranks.report import ExaminedFile
    from cbprof.analysis.ranks.waits import MOST_GROUPS, StepProfile

    number = int(file.name.rpartition("/")[2].partition(".")[0])
    rng = np.random.default_rng(number)
    window_ns = 120 * 10**9
    idle = rng.integers(0, window_ns // BINS, BINS)
    start = np.linspace(0, window_ns, MOST_KEPT).astype(np.int64) + rng.integers(0, 10**6, MOST_KEPT)
    collectives = Collectives(
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",),
        (MOST_KEPT,),
        np.zeros(MOST_KEPT, dtype=np.int32),
        np.arange(MOST_KEPT, dtype=np.int32),
        start,
        start + 10**6,
    )
    idle_ns = int(idle.sum())
    rank = Rank(
        rank=number,
        device=0,
        base_time_ns=1_790_000_000 * 10**9,
        start_ns=0,
        end_ns=window_ns,
        evidence="cupti",
        mode=None,
        complete=True,
        reliable=True,
        idle_ns=idle_ns,
        gpu_ns=window_ns - idle_ns,
        comm_ns=0,
        busy_ns=window_ns - idle_ns,
        kernel_busy_ns=window_ns - idle_ns,
        comm_busy_ns=0,
        exposed_comm_ns=0,
        causes={f"aten::operator_{cause}": idle_ns // 30 for cause in range(30)},
        longest_gap_ns=10**6,
        n_gaps=10**5,
        n_steps=10**4,
        idle_bins=idle,
        steps=StepProfile(0, 6, rng.integers(10**8, 2 * 10**8, MOST_GROUPS)),
        collectives=collectives,
    )
    return ExaminedFile(file.name, 10**9, (rank,), None, f"{number:040x}")


def warm_up() -> None:
    """Import what a task needs."""
    import cbprof.fleet.task  # noqa: F401


def peak_mb() -> float:
    """The most memory that this process has had."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(status["VmHWM"].split()[0]) / 1024


PARTS: dict[str, Callable[[argparse.Namespace, Path], bool]] = {
    "throughput": throughput,
    "memory": memory,
    "driver": driver,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "drive"], help="all, if none is named")
    parser.add_argument("--events", type=int, default=300_000, help="of each large file")
    parser.add_argument("--files", type=int, default=16, help="large files")
    parser.add_argument("--rounds", type=int, default=3, help="of one worker and two, of which the fastest count")
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 1000], help="of small files")
    parser.add_argument("--summaries", type=int, default=10_000)
    options = parser.parse_args()
    if options.part == "drive":
        drive(options)
        return
    sys.exit(0 if all(list(_measured(options))) else 1)


def _measured(options: argparse.Namespace) -> Iterator[bool]:
    for name, part in PARTS.items():
        if options.part in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                yield partial(part, options)(Path(folder))


if __name__ == "__main__":  # the workers import this file too
    main()
