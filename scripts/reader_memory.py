#!/usr/bin/env python3
"""Measures the peak memory of each reader as a multiple of its file, and prints the table of docs/formats.md.

    scripts/reader_memory.py --mb 32

Each format gets a file of about that size whose spans are as small as its tools write them, and a process that loads
it. What a process takes that loads a file of 1,000 rows is left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import kineto_samples
import nsys_samples
import rocm_samples

from cbprof.formats import save
from cbprof.trace import Kind, Lane, TraceBuilder

LOAD = """
import sys, cbprof.formats
cbprof.formats.load(sys.argv[1], alone=True, cached=False)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def ours(path: Path, size: int) -> None:
    builder = TraceBuilder()
    host, device = builder.lane(Lane("engine")), builder.lane(Lane("compute", 0))
    for row in range(size):
        builder.span(host, Kind.CPU_WORK, "launch", 10 * row, 5, step=row // 10, link=row)
        builder.span(device, Kind.GPU_COMPUTE, "gemm", 10 * row + 5, 5, step=row // 10, link=row)
    save(builder.build(), path)


def ours_packed(path: Path, size: int) -> None:
    ours(path.with_suffix(""), size)
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes(), 6))


def kineto(path: Path, size: int) -> None:
    rows = (
        each
        for row in range(size)
        for each in (
            kineto_samples.call(10 * row, 3, "cudaLaunchKernel", row),
            kineto_samples.kernel(10 * row + 4, 5, correlation=row),
        )
    )
    kineto_samples.write(path.parent, *rows, name=path.name)


def kineto_packed(path: Path, size: int) -> None:
    kineto(path.with_suffix(""), size)
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes(), 6))


def nsys(path: Path, size: int) -> None:
    process, thread = nsys_samples.pid(7), nsys_samples.tid(7, 9)
    gemm, launch = nsys_samples.GEMM, nsys_samples.LAUNCH
    kernels = ((10 * row + 4, 10 * row + 9, 0, 13, row, process, gemm, gemm) for row in range(size))
    calls = ((10 * row, 10 * row + 3, thread, row, launch) for row in range(size))
    nsys_samples.write_export(path, {nsys_samples.KERNEL: kernels, nsys_samples.RUNTIME: calls})


def _rocm(size: int) -> rocm_samples.Process:
    kernels = [rocm_samples.Kernel("gemm", 10 * row + 4, 10 * row + 9, row) for row in range(1, size)]
    calls = [rocm_samples.Call("hipLaunchKernel", 10 * row, 10 * row + 3, row) for row in range(1, size)]
    return rocm_samples.Process(calls, kernels, copies=[])


def rocpd(path: Path, size: int) -> None:
    rocm_samples.write_rocpd(path, _rocm(size))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")  # the schema first, as its tools write it


def rocprofv3(path: Path, size: int) -> None:
    rocm_samples.write_rocprofv3(path, _rocm(size))


FILES: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "cbprof": ("t.json", ours),
    "cbprof, gzip": ("t.json.gz", ours_packed),
    "Chrome trace (Kineto, Ascend)": ("k.json", kineto),
    "the same, gzip": ("k.json.gz", kineto_packed),
    "Nsight Systems": ("n.sqlite", nsys),
    "rocpd": ("r.db", rocpd),
    "JSON of rocprofv3": ("r.json", rocprofv3),
}


def peak(path: Path) -> int:
    """Bytes that a process takes at most which loads the file."""
    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", help="how the first words of the table begin; all, if none is named")
    parser.add_argument("--mb", type=int, default=32, help="size of each file, about, before it is packed")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    print("| file | MB | spans | peak memory, MB | times the file |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, (name, write) in FILES.items():
            if options.formats and not kind.startswith(tuple(options.formats)):
                continue
            path, plain = Path(folder) / name, Path(folder) / name.removesuffix(".gz")
            write(path, 1000)
            smallest, size = peak(path), options.mb * 1000 * (1 << 20) // plain.stat().st_size
            path.unlink()
            write(path, size)
            more, on_disk = peak(path) - smallest, path.stat().st_size
            path.unlink()
            print(
                f"| {kind} | {on_disk / 2**20:.1f} | {2 * size:,} | {more / 2**20:.0f} | {more / on_disk:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
