"""The steps, the gaps and the device work of a summary as CSV files, for spreadsheets and scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from cbprof.analysis.accounting.cause_tree import in_words
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.summary import Summary
from cbprof.files import cannot_write, write_table
from cbprof.trace import BATCH_PHASES

STEP_COLUMNS = tuple(field.name for field in fields(StepTimes))
GAP_COLUMNS = (
    *("start_ns", "end_ns", "length_ns", "step", "host_late_ns", "in_launch_ns", "queue_ns", "cause_ns", "blame_ns"),
    *("ended_by", "stream", "launch", "launch_start_ns"),
)


WORK_COLUMNS = ("name", "group", "total_ns", "per_step_ns", "count", "share_pct")


def write_csv(summary: Summary, target: Path, *, of: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Write the steps, the gaps and, of a profile, the device work of all devices; return where they are.

    ``NAME.csv`` gives NAME.steps.csv, NAME.gaps.csv and NAME.device_work.csv; a folder gives steps.csv, gaps.csv and
    device_work.csv in it. What is unknown is an empty cell. ``of``: the trace, see :func:`cbprof.files.whole_file`.
    Raises CbprofError where a file cannot be.
    """
    named = target.suffix == ".csv"
    folder, prefix = (target.parent, f"{target.stem}.") if named else (target, "")
    steps, gaps, work = (folder / f"{prefix}{name}.csv" for name in ("steps", "gaps", "device_work"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(target, "the tables", error) from error
    step_rows = (row for device in summary.devices for row in _steps(device))
    gap_rows = (row for device in summary.devices for row in _gaps(device))
    write_table(steps, ("device", *STEP_COLUMNS), step_rows, "the steps", of=of)
    write_table(gaps, ("device", *GAP_COLUMNS), gap_rows, "the gaps", of=of)
    if all(device.profile is None for device in summary.devices):
        return steps, gaps
    work_rows = (row for device in summary.devices for row in _work(device))
    write_table(work, ("device", *WORK_COLUMNS), work_rows, "the device work", of=of)
    return steps, gaps, work


def _steps(device: DeviceSummary) -> Iterator[Sequence[object]]:
    columns: dict[str, Sequence[object]] = {**device.steps.to_json()}
    columns["phase"] = [BATCH_PHASES[phase] if phase >= 0 else None for phase in device.steps.phase.tolist()]
    for row in zip(*columns.values(), strict=True):
        yield (device.device, *("" if value is None else value for value in row))


def _work(device: DeviceSummary) -> Iterator[Sequence[object]]:
    for kernel in device.work_to_json():
        yield (device.device, *("" if kernel[column] is None else kernel[column] for column in WORK_COLUMNS))


def _gaps(device: DeviceSummary) -> Iterator[Sequence[object]]:
    gaps = device.gaps
    columns = (gaps.start, gaps.end, gaps.length_ns, gaps.step, gaps.host_late_ns, gaps.in_launch_ns, gaps.queue_ns)
    causes = device.causes.in_gaps(np.arange(len(gaps)))
    for index, (start, end, length, step, *parts) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
        why = ";".join(f"{name}={ns}" for name, ns in in_words(causes[index]).items())
        blame = ";".join(f"{part.label}={part.ns}" for part in device.blame.of_gap(index))
        cells = ["" if value == -1 else value for value in (step, *parts)]
        ended = ("" if value is None else value for value in device.ends.of_gap(index))
        yield (device.device, start, end, length, *cells, why, blame, *ended)
