#!/usr/bin/env python3
"""Measures how long it takes to load a profiler's trace and to say how long the GPU was idle, and in which gaps.

Generates traces of several sizes (scripts/gen_kineto.py), plain and gzip, and runs cbprof on each, and beside it
HolisticTraceAnalysis (`hta`) and TraceLens where they are installed. Every run is a process of its own, so that its
memory is; the answer is checked against the exact one, and the least of the runs counts. CPU is that of all processes.

    scripts/bench_import.py --events 100000 1000000 4000000
    scripts/bench_import.py --python ~/other-venv/bin/python     # where the other tools are installed
    scripts/bench_import.py --ranges 220000                      # Nsight Systems, with as many names of ranges
    scripts/bench_import.py --against ~/cbprof-before            # another checkout of cbprof, in turns with this one
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import NamedTuple

from gen_kineto import Loop, generate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import nsys_samples

CBPROF = """
import sys
from cbprof.analysis.summary import summarize
from cbprof.formats import load
print(summarize(load(sys.argv[1], cached={cached})).devices[0].idle_pct)
"""

HTA = """
import logging, sys
logging.disable()
from hta.trace_analysis import TraceAnalysis
table = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/").get_temporal_breakdown(visualize=False)
print(float(table["idle_time_pctg"].iloc[0]))
"""

TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
table = TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline().set_index("type")
print(float(table.loc["idle_time", "percent"]))
"""


class Tool(NamedTuple):
    """``code`` prints the idle share of the trace that is its argument; ``module`` must be there for it."""

    name: str
    module: str
    code: str


class Run(NamedTuple):
    """``cpu_s``: of all its processes. ``memory_mb``: the most that the largest of them took."""

    seconds: float
    cpu_s: float
    memory_mb: float
    idle_pct: float


def run(python: str, code: str, trace: Path, limit_s: float) -> Run | None:
    """Run some code on a trace; None where it fails or takes longer than the limit."""
    begin = perf_counter()
    process = subprocess.Popen([python, "-c", code, str(trace)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    timer = Timer(limit_s, process.kill)
    timer.start()
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return None
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(perf_counter() - begin, cpu_s, usage.ru_maxrss / 1024, float(output.split()[-1]))


def best(python: str, tool: Tool, trace: Path, runs: int, limit_s: float) -> Run | None:
    """The least of some runs: see :func:`in_turns`."""
    return in_turns(python, [tool], trace, runs, limit_s)[0]


def in_turns(python: str, tools: Sequence[Tool], trace: Path, runs: int, limit_s: float) -> list[Run | None]:
    """The least time, the least CPU time and the least memory of each tool; none where a run fails."""
    done = [[run(python, tool.code, trace, limit_s) for tool in tools] for _ in range(runs)]
    columns = ([one for one in column if one is not None] for column in zip(*done, strict=True))
    return [Run(*map(min, zip(*column, strict=True))) if len(column) == runs else None for column in columns]


def write_ranges(path: Path, count: int) -> float:
    """An export of Nsight Systems with a range for each operator, each of another name, as ``emit_nvtx`` writes them.

    Every fourth launches a kernel. Returns the idle share of the device.
    """
    process, thread = nsys_samples.pid(7), nsys_samples.tid(7, 9)
    gemm, launch = nsys_samples.GEMM, nsys_samples.LAUNCH
    sizes = "[[8, 4096], [4096, 4096], []]"
    names = (f"aten::addmm, seq = {row}, op_id = {3 * row}, sizes = {sizes}" for row in range(count))
    starts = range(0, 20_000 * (count // 4), 20_000)
    tables = {
        nsys_samples.NVTX: (
            (5000 * at, 5000 * at + 4000, 59, name, None, thread, None) for at, name in enumerate(names)
        ),
        nsys_samples.RUNTIME: ((at + 500, at + 900, thread, link, launch) for link, at in enumerate(starts)),
        nsys_samples.KERNEL: (
            (at + 1500, at + 13_500, 0, 13, link, process, gemm, gemm) for link, at in enumerate(starts)
        ),
    }
    path.unlink(missing_ok=True)
    nsys_samples.write_export(path, tables)
    return 100 * 8_000 * (len(starts) - 1) / (20_000 * len(starts) - 8_000)


def has(python: str, tool: Tool) -> bool:
    return subprocess.run([python, "-c", f"import {tool.module}"], capture_output=True, check=False).returncode == 0


def row(tool: str, trace: Path, n_events: int, found: Run | None, exact: float) -> str:
    size = f"{trace.stat().st_size / 1e6:,.0f} MB"
    start = f"| {tool} | {n_events:,} | {trace.suffix[1:]} | {size} |"
    if found is None:
        return f"{start} failed, or took too long | | | |"
    cost = f"{found.seconds:.2f} s | {found.cpu_s:.2f} s | {found.memory_mb:,.0f} MB"
    return f"{start} {cost} | {found.idle_pct:.4f} (exact {exact:.4f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000, 4_000_000])
    parser.add_argument("--runs", type=int, default=3, help="of cbprof; the others, which are slow, run once")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a run may take")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the other tools")
    parser.add_argument("--folder", type=Path, help="where to put the traces, and leave them")
    parser.add_argument("--ranges", type=int, help="an export of Nsight Systems with so many ranges, instead")
    parser.add_argument("--against", type=Path, help="a checkout of another version of cbprof: plain files alone")
    options = parser.parse_args()
    cbprof = Tool("cbprof", "cbprof", CBPROF.format(cached=False))
    again = Tool("cbprof, second time", "cbprof", CBPROF.format(cached=True))
    others = [Tool("HTA", "hta", HTA), Tool("TraceLens", "TraceLens", TRACELENS)]
    others = [tool for tool in others if has(options.python, tool)]

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        print("| tool | events | file | size | time | CPU | memory | idle % |\n|---|---|---|---|---|---|---|---|")
        if options.ranges:
            trace = folder / "ranges.sqlite"
            idle_pct = write_ranges(trace, options.ranges)
            found = best(sys.executable, cbprof, trace, options.runs, options.limit)
            print(row(cbprof.name, trace, options.ranges, found, idle_pct))
            return
        for events in options.events:
            trace = folder / f"{events}.json"
            exact = generate(trace, events, Loop())
            n_events = int(exact["n_events"])
            if options.against:
                before = f"import sys; sys.path.insert(0, {str(options.against)!r})\n{cbprof.code}"
                tools = [Tool("cbprof before", "cbprof", before), cbprof]
                each = in_turns(sys.executable, tools, trace, options.runs, options.limit)
                for tool, found in zip(tools, each, strict=True):
                    print(row(tool.name, trace, n_events, found, exact["idle_pct"]), flush=True)
                continue
            packed = trace.with_name(trace.name + ".gz")
            with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=3) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            for file in (trace, packed):
                found = best(sys.executable, cbprof, file, options.runs, options.limit)
                print(row(cbprof.name, file, n_events, found, exact["idle_pct"]), flush=True)
            best(sys.executable, again, trace, 1, options.limit)  # leaves the cache of a large file beside it
            found = best(sys.executable, again, trace, options.runs, options.limit)
            print(row(again.name, trace, n_events, found, exact["idle_pct"]), flush=True)
            for tool in others:
                found = best(options.python, tool, trace, 1, options.limit)
                print(row(tool.name, trace, n_events, found, exact["idle_pct"]), flush=True)


if __name__ == "__main__":
    main()
