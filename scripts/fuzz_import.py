#!/usr/bin/env python3
"""Loads damaged copies of real traces, many thousand of them, and fails on the first crash, hang or flood of memory.

A copy is damaged in one to eight places: bits flipped, bytes cut out, doubled, or exchanged for what JSON is sensitive
to. It must load, or be refused in one line; the report of what loads must be valid JSON.

    scripts/fuzz_import.py FOLDER_OR_FILES... --count 10000 --seed 1

Ends with how many copies of each format (a row of ``cbprof.formats.importers.IMPORTERS``) came out how.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import json
import random
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fuzz_damage import damaged

from cbprof.analysis.summary import summarize
from cbprof.errors import CbprofError
from cbprof.formats import load
from cbprof.formats.importers import importer_of

SLOW_S = 60
MEMORY = 4 << 30


def attempt(path: Path) -> str:
    """How it ended: in a word, for the statistics."""
    try:
        trace = load(path)
        json.dumps(summarize(trace).to_json(gaps="all"), allow_nan=False)
    except CbprofError as error:
        if "\n" in str(error):
            raise RuntimeError("a refusal of more than one line") from error
        return "refused"
    return "whole" if trace.complete else "in part"


def _importer(path: Path) -> str | None:
    """The format that a file is of; None where it is no trace."""
    try:
        return importer_of(path).name
    except CbprofError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="traces, or folders of them")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=1 << 20, help="bytes of the largest trace to use, inflated")
    options = parser.parse_args()
    found = [sorted(source.iterdir()) if source.is_dir() else [source] for source in options.sources]
    files = [file for files in found for file in files if file.is_file()]
    samples = []
    for file in files:
        data = file.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        if len(data) <= options.largest and (importer := _importer(file)):
            samples.append((importer, file.name, data))
    if not samples:
        sys.exit("no file is small enough: raise --largest")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged"
        for number in range(options.seed, options.seed + options.count):
            random_ = random.Random(number)
            importer, name, data = random_.choice(samples)
            copy = damaged(data, random_)
            path.write_bytes(gzip.compress(copy, 1) if random_.random() < 0.2 else copy)
            faulthandler.dump_traceback_later(SLOW_S, exit=True)
            try:
                ended[f"{importer}: {attempt(path)}"] += 1
            except BaseException:
                print(f"number {number}, from {name}: run again with --seed {number} --count 1", file=sys.stderr)
                raise
    faulthandler.cancel_dump_traceback_later()
    for how, number in sorted(ended.items()):
        print(f"{number:7,}  {how}")


if __name__ == "__main__":
    main()
