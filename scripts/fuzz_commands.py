#!/usr/bin/env python3
"""Damages files of every kind that cbprof reads, many thousand of them, and prints a table of what became of them.

    scripts/fuzz_commands.py --count 20000 --commands 0.02
    scripts/fuzz_commands.py --seconds 600

Each trace is read and reported, goes through one more analysis, as a notebook calls it, and a share of them through a
command of the command line too, in this process, which may have 1 GB more of memory. What is read must have the busy
and the idle time that a naive union of its spans has, and be the same when it was saved. Exits with 1 after any
traceback, any disagreement, any file that took more memory than that, and any that took more than 10 s;
``--seed N --count 1`` makes the files of that number again.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import json
import os
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from unittest.mock import patch

import numpy as np
from fuzz_damage import altered, damaged
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import ascend_samples
import kineto_samples
import nsys_samples
import rocm_samples
from test_api import sync_trace
from test_request_lives import play
from trace_samples import small_trace
from xpu_samples import XPU

import cbprof
from cbprof.analysis.accounting.states import ACTIVITY_KINDS
from cbprof.analysis.ranks.report import compare_ranks
from cbprof.analysis.summary import Summary
from cbprof.api import Recording
from cbprof.cli.main import app
from cbprof.errors import CbprofError
from cbprof.fleet.dataset import Dataset
from cbprof.fleet.files import find_files
from cbprof.fleet.task import examine
from cbprof.formats import cache, load, save
from cbprof.render.views.view import View
from cbprof.trace import Trace

SLOW_S, HANGS_S = 10, 120
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
    "compare whole.json {}",
    "check {} --max-idle 1%",
    "convert {} out.json",
    "convert {} out.csv",
    "plot {} --term",
    "plot {} --no-open -o page.html",
)
READ, REFUSED, TRACEBACK, WRONG, LARGE, SLOW = "read", "refused", "traceback", "disagrees", "over 1 GB", "over 10 s"
OUTCOMES = (READ, REFUSED, TRACEBACK, WRONG, LARGE, SLOW)


class DisagreementError(AssertionError):
    """Two ways to one figure do not lead to the same."""


ANALYSES: tuple[Callable[[Recording], View], ...] = (
    Recording.predict,
    Recording.requests,
    Recording.hazards,
    Recording.health,
    lambda recording: recording.compare(recording),
    lambda recording: Recording(WHOLE).compare(recording),
    lambda recording: recording.check({"max-idle": "1%", "no-hazards": True}),
)


def analyse(path: Path, random_: random.Random) -> None:
    """Read and report a trace, and call one analysis more, which may have nothing to say of it."""
    recording = cbprof.load(path, cached=False)
    summary = recording.summary()
    json.dumps(summary.to_json(), allow_nan=False)
    agree(recording.trace, summary.full)
    try:
        json.dumps(random_.choice(ANALYSES)(recording).to_json(), allow_nan=False)
    except CbprofError as error:
        check_one_line(error)
    again(recording.trace)


def agree(trace: Trace, summary: Summary) -> None:
    """Raises :class:`DisagreementError` where a device was not busy, or idle, as a union of its spans says."""
    for device in summary.devices:
        window = device.window
        for kinds, told in (
            (ACTIVITY_KINDS["busy"], device.busy_ns),
            (ACTIVITY_KINDS[summary.activity], None if device.idle_ns is None else window.length_ns - device.idle_ns),
        ):
            busy = naive_union(
                (start, start + length)
                for start, length, kind, lane in zip(
                    *(each.tolist() for each in (trace.start_ns, trace.dur_ns, trace.kind, trace.lane_id)), strict=True
                )
                if kind in kinds and trace.lanes[lane].device == device.device
            )
            covered = sum(max(0, min(end, window.end_ns) - max(start, window.start_ns)) for start, end in busy)
            if told is not None and told != covered:
                raise DisagreementError(f"device {device.device} was busy for {told} ns, its spans say {covered}")


def naive_union(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(pairs):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def again(trace: Trace) -> None:
    """Raises :class:`DisagreementError` where what is saved is not what is read."""
    other = load(save(trace, Path("again.json")))
    for name in ("start_ns", "dur_ns", "kind", "step"):
        if not np.array_equal(getattr(trace, name), getattr(other, name)):
            raise DisagreementError(f"{name} is another after it was saved")
    if [trace.names[each] for each in trace.name_id] != [other.names[each] for each in other.name_id]:
        raise DisagreementError("the names are others after they were saved")


def command(line: str, path: Path) -> None:
    """One command of the command line on a file."""
    error = CliRunner().invoke(app, line.replace("{}", str(path)).split()).exception
    if isinstance(error, SystemExit) and error.code == USAGE:
        raise ValueError(f"{line}: is no command")
    if error is not None and not isinstance(error, SystemExit):
        raise error


def through_cache(path: Path, _: random.Random) -> None:
    """A damaged cache changes nothing."""
    _cache_file().write_bytes(path.read_bytes())
    with patch.object(cache, "WORTH_FROM", 0):
        trace = load("profile.json")
    plain = load("profile.json", cached=False)
    if not np.array_equal(trace.dur_ns, plain.dur_ns) or trace.names != plain.names or trace.lanes != plain.lanes:
        raise DisagreementError("a damaged cache was believed")


def _cache_file() -> Path:
    folder = cache.cache_folder()
    assert folder is not None
    return cache.cache_of(Path("profile.json"), folder)


def as_summary(path: Path, _: random.Random) -> None:
    """A damaged summary of a fleet's dataset is none, or makes a report."""
    (file,) = find_files(["profile.json"])
    dataset = Dataset(str(Path("fleet.parquet").absolute()), "")
    (summary,) = Path("fleet.parquet/_summaries").iterdir()
    summary.write_bytes(gzip.compress(path.read_bytes(), 1))
    known = dataset.read(file, summary.name.partition(".")[0])
    if known is not None:
        json.dumps(compare_ranks([known, known]).to_json(), allow_nan=False)


def as_limits(path: Path, _: random.Random) -> None:
    command("check whole.json --config {}", path)


def _text(name: str, text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


def _page(folder: Path) -> Path:
    command("report {} -o report.html", save(small_trace(), folder / "told.json"))
    return folder / "report.html"


def _json_report(folder: Path) -> Path:
    (folder / "report.json").write_text(json.dumps(Recording(small_trace()).summary().to_json()))
    return folder / "report.json"


def _zstd(folder: Path) -> Path:
    import pyarrow

    packed = pyarrow.Codec("zstd").compress(save(small_trace(), folder / "packed.json").read_bytes(), asbytes=True)
    (folder / "packed.json.zst").write_bytes(packed)
    return folder / "packed.json.zst"


def _cache(folder: Path) -> Path:
    kineto_samples.write(folder, *kineto_samples.DECODE, name="profile.json")
    with patch.object(cache, "WORTH_FROM", 0):
        load("profile.json")
    return _cache_file()


def _summary(folder: Path) -> Path:
    dataset = Dataset.begin("fleet.parquet")
    (file,) = find_files([str(kineto_samples.write(folder, *kineto_samples.DECODE, name="profile.json"))])
    examine(file, dataset)
    (found,) = Path("fleet.parquet/_summaries").iterdir()
    found.with_name("plain").write_bytes(gzip.decompress(found.read_bytes()))
    return found.with_name("plain").rename(folder / "summary.json")


JSON_LINES = '{"Type":48,"CudaEvent":{"startNs":"1","endNs":"2"}}\n{"Type":48,"CudaEvent":{"startNs":"3"}}\n'
LIMITS = '[tool.cbprof.check]\nmax-idle = "1%"\nmax-step-p99 = "50ms"\nno-hazards = true\n'

Action = Callable[[Path, random.Random], None]

SAMPLES: dict[str, tuple[Callable[[Path], Path], Action]] = {
    "cbprof": (lambda folder: save(small_trace(), folder / "ours.json"), analyse),
    "cbprof, run": (lambda folder: save(sync_trace(6), folder / "run.json"), analyse),
    "cbprof, requests": (lambda folder: save(play(2, "async").trace, folder / "requests.json"), analyse),
    "Kineto": (lambda folder: kineto_samples.write(folder, *kineto_samples.DECODE), analyse),
    "XPU": (lambda folder: kineto_samples.write(folder, *XPU, name="xpu.json"), analyse),
    "Ascend": (lambda folder: ascend_samples.write(folder / "ascend.json"), analyse),
    "Nsight Systems": (lambda folder: nsys_samples.write_export(folder / "n.sqlite", nsys_samples.one_step()), analyse),
    "rocpd": (lambda folder: rocm_samples.write_rocpd(folder / "rows.db"), analyse),
    "rocpd, older": (lambda folder: rocm_samples.write_rocpd(folder / "tracks.db", generation="tracks"), analyse),
    "rocprofv3": (lambda folder: rocm_samples.write_rocprofv3(folder / "rocprofv3.json"), analyse),
    "zstd": (_zstd, analyse),
    "JSON lines": (_text("lines.json", JSON_LINES), analyse),
    "report, page": (_page, analyse),
    "report, JSON": (_json_report, analyse),
    "limits": (_text("limits.toml", LIMITS), as_limits),
    "cache": (_cache, through_cache),
    "fleet summary": (_summary, as_summary),
}
WHOLE = sync_trace(6)


def attempt(action: Callable[[], None]) -> tuple[str, str]:
    """How it ended, and what else to say of it."""
    began, outcome = monotonic(), (READ, "")
    try:
        action()
    except CbprofError as error:
        too_large = "takes more memory than there is" in str(error)
        outcome = (LARGE, "") if too_large else (REFUSED, "")
        if "\n" in str(error):
            outcome = TRACEBACK, f"a refusal of more than one line: {error}"
    except DisagreementError as error:
        outcome = WRONG, str(error)
    except MemoryError:
        outcome = LARGE, ""
    except Exception as error:
        outcome = TRACEBACK, "".join(traceback.format_exception(error)[-3:])
    took_s = monotonic() - began
    return (SLOW, f"{took_s:.0f} s") if took_s > SLOW_S else outcome


def check_one_line(error: CbprofError) -> None:
    if "\n" in str(error) or "takes more memory than there is" in str(error):
        raise error


def once(kind: str, number: int, data: bytes, action: Action, commands: float, ended: Counter[tuple[str, str]]) -> None:
    """Make the file of that number, and count how it ended."""
    random_ = random.Random(f"{kind} {number}")
    copy = (altered if random_.random() < 0.6 else damaged)(data, random_)
    packed = random_.random() < 0.2 and action is analyse and not data.startswith(b"SQLite")
    path = Path("damaged")
    path.write_bytes(gzip.compress(copy, 1) if packed else copy)
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    outcome, more = attempt(partial(action, path, random_))
    if action is analyse and outcome in (READ, REFUSED) and random_.random() < commands:
        line = random_.choice(COMMANDS)
        ended[kind, "commands"] += 1
        told, more = attempt(partial(command, line, path))
        outcome, more = (outcome, "") if told in (READ, REFUSED) else (told, f"{line}: {more}")
    ended[kind, outcome] += 1
    if outcome not in (READ, REFUSED):
        print(f"{kind}, number {number}: {outcome} {more}", flush=True)


def bound_memory() -> None:
    """Let this process have so much more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(SAMPLES)}; all, if none is named")
    parser.add_argument("--count", type=int, default=1000, help="files of each kind")
    parser.add_argument(
        "--commands", type=float, default=0.1, help="the share of traces that goes through a command too"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    began, ended = monotonic(), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        os.environ["XDG_CACHE_HOME"] = name
        samples = {
            kind: (write(Path(name)).read_bytes(), action)
            for kind, (write, action) in SAMPLES.items()
            if kind in (options.kinds or SAMPLES)
        }
        save(WHOLE, Path("whole.json"))
        for line in COMMANDS:  # what is imported late is imported before the memory is bounded
            attempt(partial(command, line, Path("whole.json")))
        bound_memory()
        with suppress(KeyboardInterrupt):  # the table of what was done is printed all the same
            for number in range(options.seed, options.seed + options.count):
                if monotonic() - began > options.seconds:
                    break
                for kind, (data, action) in samples.items():
                    once(kind, number, data, action, options.commands, ended)
    faulthandler.cancel_dump_traceback_later()
    columns = (*OUTCOMES, "commands")
    print(f"{'':16}" + "".join(f"{column:>12}" for column in columns))
    for kind in samples:
        print(f"{kind:16}" + "".join(f"{ended[kind, column]:12,}" for column in columns))
    sys.exit(any(ended[kind, outcome] for kind in samples for outcome in OUTCOMES[2:]))


if __name__ == "__main__":
    main()
