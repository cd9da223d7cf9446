#!/usr/bin/env python3
"""Measures how long it takes to load a profiler's trace and to say how long the GPU was idle, and in which gaps.

Generates traces of several sizes (scripts/gen_kineto.py), plain and gzip, and runs cbprof on each, and beside it
HolisticTraceAnalysis (`hta`) and TraceLens where they are installed. Every run is a process of its own, so that its
memory is; the answer is checked against the exact one, and the fastest of the runs counts.

    scripts/bench_import.py --events 100000 1000000 4000000
    scripts/bench_import.py --python ~/other-venv/bin/python     # where the other tools are installed
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import NamedTuple

from gen_kineto import Loop, generate

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
    """``memory_mb``: the most that the largest of its processes took."""

    seconds: float
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
    return Run(perf_counter() - begin, usage.ru_maxrss / 1024, float(output.split()[-1]))


def best(python: str, tool: Tool, trace: Path, runs: int, limit_s: float) -> Run | None:
    """The fastest of some runs; a run that fails is not repeated."""
    done: list[Run] = []
    while len(done) < runs and (one := run(python, tool.code, trace, limit_s)):
        done.append(one)
    return min(done, default=None)


def has(python: str, tool: Tool) -> bool:
    return subprocess.run([python, "-c", f"import {tool.module}"], capture_output=True, check=False).returncode == 0


def row(tool: str, trace: Path, n_events: int, found: Run | None, exact: float) -> str:
    size = f"{trace.stat().st_size / 1e6:,.0f} MB"
    start = f"| {tool} | {n_events:,} | {trace.suffix[1:]} | {size} |"
    if found is None:
        return f"{start} failed, or took too long | | |"
    return f"{start} {found.seconds:.2f} s | {found.memory_mb:,.0f} MB | {found.idle_pct:.4f} (exact {exact:.4f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000, 4_000_000])
    parser.add_argument("--runs", type=int, default=3, help="of cbprof; the others, which are slow, run once")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a run may take")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the other tools")
    parser.add_argument("--folder", type=Path, help="where to put the traces, and leave them")
    options = parser.parse_args()
    cbprof = Tool("cbprof", "cbprof", CBPROF.format(cached=False))
    again = Tool("cbprof, second time", "cbprof", CBPROF.format(cached=True))
    others = [Tool("HTA", "hta", HTA), Tool("TraceLens", "TraceLens", TRACELENS)]
    others = [tool for tool in others if has(options.python, tool)]

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        print("| tool | events | file | size | time | memory | idle % |\n|---|---|---|---|---|---|---|")
        for events in options.events:
            trace = folder / f"{events}.json"
            exact = generate(trace, events, Loop())
            packed = trace.with_name(trace.name + ".gz")
            with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=3) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            n_events = int(exact["n_events"])
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
