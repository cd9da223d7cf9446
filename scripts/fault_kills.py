"""Commands that are killed at random moments: what was recorded can be read, nothing half-written has a final name."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import kineto_samples
import psutil
from fault_kinds import PATIENCE_S, Done, Lost, Process, changed, started, unlike
from test_api import sync_trace

from cbprof.errors import DataError
from cbprof.formats import load, save

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AGAIN_EVERY = 10
"""So many kills are followed by one run to the end in the same folder: nothing that was left stands in its way."""

MOST_UNWRITTEN = 8192 + 1024
"""Records that a kill may cost: the backlog, and those being written."""

PROGRAM = """
import cbprof, os, time
told = os.open("told", os.O_RDWR | os.O_CREAT)
with cbprof.Tracer("own.json", device="none") as tracer:
    for number in range(1500):
        with tracer.step(number), tracer.cpu("schedule"): time.sleep(0.0005)
        os.pwrite(told, b"%d" % number, 0)
"""


class Verb(NamedTuple):
    """A command that is killed. ``outputs``: what it writes. ``check``: what else must hold then."""

    line: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda place: None
    check: Callable[[Path], Lost] = lambda place: iter(())

    def start(self, place: Path, *more: str) -> Process:
        line = (self.line[0], *more, *self.line[1:])
        return started(*line, cwd=place, stdout=subprocess.DEVNULL, stderr=(place / "said").open("w"))

    def to_its_end(self, place: Path, *more: str) -> Lost:
        process = self.start(place, *more)
        process.wait(PATIENCE_S)
        yield from unlike(Done(process.returncode, "", (place / "said").read_text()), 0)


def _script(place: Path) -> None:
    (place / "script.py").write_text(PROGRAM)


def _profiles(place: Path) -> None:
    for number in range(4):
        kineto_samples.write(place, *kineto_samples.DECODE, name=f"{number}.json")


def _steps_are_there(place: Path) -> Lost:
    """All that the program had told of, but for what was not on disk yet."""
    told = int((place / "told").read_text() or -1) + 1 if (place / "told").exists() else 0
    there = 0
    for path in (place / "own.json", place / "own.json.part"):
        with suppress(DataError):
            there = max(there, len(set(load(path).step.tolist()) - {-1}))
    if 2 * (told - there) > MOST_UNWRITTEN:  # a step is two records
        yield f"{told - there} of {told} steps"


VERBS = {
    "run": Verb(("run", "-q", "--mode", "async", "--new-tokens", "60", "-o", "t.json"), ("t.json",)),
    "record": Verb(
        ("record", "-q", "-o", "own.json", "--", sys.executable, "script.py"), ("own.json",), _script, _steps_are_there
    ),
    "convert": Verb(
        ("convert", "in.json", "out.json.gz"),
        ("out.json.gz",),
        lambda place: save(sync_trace(1200), place / "in.json") and None,
    ),
    "fleet": Verb(
        ("fleet", "0.json", "1.json", "2.json", "3.json", "--workers", "1", "-q", "--out", "o.parquet", "-o", "o.html"),
        ("o.html",),
        _profiles,
    ),
}


def killed(name: str, place: Path, moments: int, random_: random.Random) -> Lost:
    """Kill a verb so often, each time in a folder of its own, at a moment of its run."""
    verb = VERBS[name]
    whole = place / "whole"
    whole.mkdir()
    verb.prepare(whole)
    began = time.monotonic()
    yield from verb.to_its_end(whole)
    longest_s = time.monotonic() - began
    for moment in range(moments):
        folder = place / str(moment)
        folder.mkdir()
        verb.prepare(folder)
        before = {path: path.read_bytes() for path in folder.iterdir()}
        what, after_s = random_.choice(SIGNALS), random_.uniform(0, longest_s)
        process = verb.start(folder)
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        with suppress(ProcessLookupError):
            os.kill(process.pid, what)
        process.wait(PATIENCE_S)
        found = [*_orphans(process), *changed(before), *_outputs(folder, verb), *verb.check(folder)]
        if moment % AGAIN_EVERY == 0:
            force = ("--force",) if name in ("run", "record") else ()
            found += [f"in the run after it: {lost}" for lost in verb.to_its_end(folder, *force)]
        yield from (f"{name}, {what.name} after {after_s:.2f} s: {lost}" for lost in found)


def _outputs(folder: Path, verb: Verb) -> Lost:
    """Outputs that are there and not whole, and recordings that cannot be read although they hold a span."""
    for path in (folder / name for name in verb.outputs):
        if path.exists():
            content = path.read_bytes()
            try:
                text = gzip.decompress(content) if path.suffix == ".gz" else content
                if path.suffix == ".html":
                    assert text.rstrip().endswith(b"</html>")
                else:
                    json.loads(text)
            except (AssertionError, ValueError, EOFError):
                yield f"{path.name} is half there"
        part = path.with_name(f"{path.name}.part")
        if part.exists() and b'"ph":"X"' in part.read_bytes():
            try:
                load(part)
            except DataError as error:
                yield str(error)


def _orphans(process: Process) -> Lost:
    """Processes of the command's session that do not end by themselves. A program that is recorded may go on to its
    end."""
    end = time.monotonic() + PATIENCE_S / 4
    while members := _session(process.pid):
        if time.monotonic() > end:
            yield f"orphans: {[each.name() for each in members]}"
            for each in members:
                each.kill()
            return
        time.sleep(0.05)


def _session(pid: int) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(each.pid) == pid and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found
