"""The ranks of a fleet as CSV: one row a device, and one a file without figures."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from cbprof.analysis.ranks.plain import to_json
from cbprof.analysis.ranks.report import FleetReport
from cbprof.render.whole_file import write_whole

COLUMNS = (
    "file",
    "rank",
    "device",
    "reason",
    "evidence",
    "mode",
    "complete",
    "reliable",
    "start_ns",
    "end_ns",
    "base_time_ns",
    "idle_ns",
    "idle_pct",
    "gpu_ns",
    "comm_ns",
    "n_gaps",
    "longest_gap_ns",
    "n_steps",
    "own_ns",
    "blame_ns",
)


def write_fleet_csv(report: FleetReport, path: Path) -> None:
    """Write the ranks to ``path``, whole or not at all.

    What is unknown is empty; ``blame_ns`` is ``cause=ns;cause=ns``.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore")
    writer.writeheader()
    for rank in to_json(report)["ranks"]:
        start, end = rank.get("window_ns", ("", ""))
        blame = ";".join(f"{label}={ns}" for label, ns in (rank.get("blame_ns") or {}).items())
        writer.writerow(rank | {"start_ns": start, "end_ns": end, "blame_ns": blame})
    write_whole(path, text.getvalue().encode("utf-8", "replace"), "the table")
