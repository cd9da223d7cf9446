#!/usr/bin/env python3
"""Runs damaged files of every format through the commands, and prints a table of what became of them.

    scripts/fuzz_commands.py --count 1000 --seed 1
    scripts/fuzz_commands.py --seconds 600

Small files of each row of ``cbprof.formats.importers.IMPORTERS`` are damaged as ``scripts/fuzz_import.py`` does. Each
goes through one command, in this process, that may have 1 GB more of memory. Exits with 1 after any traceback, any file
that took more than that, and any that took more than 10 s; ``--seed N --count 1`` makes the file of that number again.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from fuzz_import import damaged
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import ascend_samples
import kineto_samples
import nsys_samples
import rocm_samples
from trace_samples import small_trace

from cbprof.cli.main import app
from cbprof.errors import CbprofError
from cbprof.formats import save

SLOW_S = 10
USAGE = 2  # the exit code of a command line that makes no sense
MEMORY = 1 << 30
COMMANDS = (
    "report {}",
    "report {} --json",
    "doctor {}",
    "hazards {}",
    "predict {}",
    "requests {}",
    "compare {} {}",
    "check {} --max-idle 1%",
    "convert {} out.json",
    "convert {} out.csv",
    "plot {} --term",
    "plot {} --no-open -o page.html",
)


def _native(path: Path) -> Path:
    save(small_trace(), path)
    return path


SAMPLES: dict[str, Callable[[Path], Path]] = {
    "cbprof": lambda folder: _native(folder / "ours.json"),
    "Kineto": lambda folder: kineto_samples.write(folder, *kineto_samples.DECODE),
    "Ascend": lambda folder: ascend_samples.write(folder / "ascend.json"),
    "Nsight Systems": lambda folder: nsys_samples.write_export(folder / "nsys.sqlite", nsys_samples.one_step()),
    "rocpd": lambda folder: rocm_samples.write_rocpd(folder / "rows.db"),
    "rocpd, older": lambda folder: rocm_samples.write_rocpd(folder / "tracks.db", generation="tracks"),
    "rocprofv3": lambda folder: rocm_samples.write_rocprofv3(folder / "rocprofv3.json"),
}
OUTCOMES = ("read", "refused", "traceback", "over 1 GB", "over 10 s")


def attempt(command: str, path: Path) -> tuple[str, str]:
    """How a command on a file ended, and what else to say of it."""
    began = monotonic()
    error = CliRunner().invoke(app, command.replace("{}", str(path)).split()).exception
    if monotonic() - began > SLOW_S:
        return "over 10 s", f"{monotonic() - began:.0f} s"
    if isinstance(error, MemoryError) or "takes more memory than there is" in str(error):
        return "over 1 GB", ""
    if isinstance(error, CbprofError) and "\n" not in str(error):
        return "refused", ""
    if isinstance(error, SystemExit) and error.code == USAGE:
        raise ValueError(f"{command}: is no command")
    if error is None or isinstance(error, SystemExit):
        return "read", ""
    return "traceback", "".join(traceback.format_exception(error)[-3:])


def bound_memory() -> None:
    """Let this process have so much more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="files of each format")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["CBPROF_NO_CACHE"] = "1"
    began, ended = monotonic(), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        samples = {kind: write(Path(name)).read_bytes() for kind, write in SAMPLES.items()}
        Path("whole.json").write_bytes(samples["cbprof"])
        for command in COMMANDS:  # what is imported late is imported before the memory is bounded
            attempt(command, Path("whole.json"))
        bound_memory()
        for number in range(options.seed, options.seed + options.count):
            if monotonic() - began > options.seconds:
                break
            for kind, data in samples.items():
                random_ = random.Random(f"{kind} {number}")
                copy = damaged(data, random_)
                packed = random_.random() < 0.2 and not data.startswith(b"SQLite")
                Path("damaged").write_bytes(gzip.compress(copy, 1) if packed else copy)
                command = random_.choice(COMMANDS)
                outcome, more = attempt(command, Path("damaged"))
                ended[kind, outcome] += 1
                if outcome not in ("read", "refused"):
                    print(f"{kind}, number {number}: {command.format('FILE', 'FILE')}: {outcome} {more}", flush=True)
    print(f"{'':16}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES))
    for kind in SAMPLES:
        print(f"{kind:16}" + "".join(f"{ended[kind, outcome]:12,}" for outcome in OUTCOMES))
    sys.exit(any(ended[kind, outcome] for kind in SAMPLES for outcome in OUTCOMES[2:]))


if __name__ == "__main__":
    main()
