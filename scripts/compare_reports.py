"""Do two checkouts say the same of the same traces? For a change that must move no number.

::

    git worktree add ../before HEAD~20
    python scripts/compare_reports.py ../before . sample_traces tests/data/cases

Runs ``cbprof report --json --gaps all`` of both checkouts on every trace below the folders, and names each value that
differs. Exit 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".json", ".json.gz", ".sqlite")
SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    n_files = n_same = 0
    for trace in traces(given.folders):
        n_files += 1
        found = list(differences(report(given.before, trace), report(given.after, trace)))
        n_same += not found
        for line in found[:SHOWN]:
            print(f"{trace}: {line}")
        if len(found) > SHOWN:
            print(f"{trace}: and {len(found) - SHOWN} more")
    print(f"{n_same} of {n_files} traces have the same report")
    return int(n_same < n_files)


def traces(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.name.endswith(SUFFIXES) and path.name not in {"expected.json", "golden.json"}:
                yield path


def report(checkout: Path, trace: Path) -> Any:
    """The report as plain data; or the exit code and the last line where there is none."""
    done = subprocess.run(
        [sys.executable, "-m", "cbprof", "report", str(trace.resolve()), "--json", "--gaps", "all", "--no-cache"],
        cwd=checkout,  # `python -m` looks there first
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"exit": done.returncode, "error": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout)


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """``device 0 idle_ns: 5 -> 6``, one a value."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key not in before or key not in after:
                yield f"{where} {key}: only {'after' if key in after else 'before'}"
            else:
                yield from differences(before[key], after[key], f"{where} {key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for row, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{where} {row}")
    elif before != after:
        yield f"{where.strip()}: {str(before)[:80]} -> {str(after)[:80]}"


if __name__ == "__main__":
    sys.exit(main())
