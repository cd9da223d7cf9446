"""The tables of a dataset in Arrow. What is unknown is null; ``trace`` is the fingerprint of the file's content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from io import BytesIO
from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import NAMED, Blame, Cause
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.ranks.rank import Rank
from cbprof.analysis.ranks.report import ExaminedFile, RanksReport
from cbprof.analysis.summary import Summary
from cbprof.trace import BATCH_PHASES, NONE, Int8, Int32, Int64

STEP_COLUMNS = tuple(field.name for field in fields(StepTimes))


def as_parquet(table: Any) -> bytes:
    """A pyarrow table as the bytes of a file."""
    from pyarrow import parquet

    buffer = BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def steps_table(examined: ExaminedFile, summary: Summary) -> Any:
    """One row a step of each device: the columns of :class:`~cbprof.analysis.accounting.steps.StepTimes`."""
    return _of_devices(examined, summary, _steps)


def gaps_table(examined: ExaminedFile, summary: Summary) -> Any:
    """One row a gap of each device, with a map from what the device waited for to nanoseconds."""
    return _of_devices(examined, summary, _gaps)


def ranks_table(report: RanksReport) -> Any:
    """The ranks as ``cbprof fleet --json`` has them; ``blame_ns`` is a map."""
    import pyarrow as pa

    contents = [row.file.content for row in report.rows] + [file.content for file in report.failed]
    rows = [
        {
            "trace": content,
            **{key: value for key, value in rank.items() if key not in {"window_ns", "blame_ns"}},
            "start_ns": rank["window_ns"][0] if "window_ns" in rank else None,
            "end_ns": rank["window_ns"][1] if "window_ns" in rank else None,
            "blame_ns": list((rank.get("blame_ns") or {}).items()),
        }
        for content, rank in zip(contents, report.to_json()["ranks"], strict=True)
    ]
    texts = ("trace", "file", "reason", "evidence", "mode")
    times = ("base_time_ns", "start_ns", "end_ns", "idle_ns", "gpu_ns", "comm_ns", "longest_gap_ns")
    busy = ("busy_ns", "kernel_busy_ns", "comm_busy_ns", "exposed_comm_ns")
    schema = pa.schema(
        [(name, pa.string()) for name in texts]
        + [("rank", pa.int32()), ("device", pa.int32()), ("complete", pa.bool_()), ("reliable", pa.bool_())]
        + [(name, pa.int64()) for name in (*times, *busy, "n_gaps", "n_steps")]
        + [("idle_pct", pa.float64()), ("own_ns", pa.float64()), ("blame_ns", pa.map_(pa.string(), pa.int64()))]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _of_devices(examined: ExaminedFile, summary: Summary, columns_of: Callable[[DeviceSummary], dict[str, Any]]) -> Any:
    import pyarrow as pa

    tables = []
    for device, rank in zip(summary.devices, examined.ranks, strict=True):
        columns = columns_of(device)
        size = len(next(iter(columns.values())))
        tables.append(pa.table(_whose(examined, rank, size) | columns))
    return pa.concat_tables(tables) if tables else pa.table({"trace": pa.array([], pa.string())})


def _whose(examined: ExaminedFile, rank: Rank, size: int) -> dict[str, Any]:
    import pyarrow as pa

    return {
        "trace": pa.repeat(examined.content, size),
        "rank": pa.repeat(pa.scalar(rank.rank, pa.int32()), size),
        "device": pa.repeat(pa.scalar(rank.device, pa.int32()), size),
    }


def _steps(device: DeviceSummary) -> dict[str, Any]:
    import pyarrow as pa

    columns = {name: _known(getattr(device.steps, name)) for name in STEP_COLUMNS}
    phase = np.array([*BATCH_PHASES, None], dtype=object)  # -1 is the last
    return columns | {"phase": pa.array(phase[device.steps.phase], pa.string())}


def _gaps(device: DeviceSummary) -> dict[str, Any]:
    gaps, blame = device.gaps, device.blame
    return {
        "start_ns": gaps.start,
        "end_ns": gaps.end,
        "step": _known(gaps.step),
        "host_late_ns": _known(gaps.host_late_ns),
        "in_launch_ns": _known(gaps.in_launch_ns),
        "queue_ns": _known(gaps.queue_ns),
        "blame_ns": _blame(blame, len(gaps)),
    }


def _blame(blame: Blame, n_gaps: int) -> Any:
    import pyarrow as pa

    labels = np.array([*blame.names, *(cause.label for cause in Cause)], dtype=object)
    named = np.isin(blame.cause, NAMED)
    label = np.where(named, blame.name_id, len(blame.names) + blame.cause.astype(np.int64))
    offsets = np.searchsorted(blame.gap, np.arange(n_gaps + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(offsets, pa.array(labels[label], pa.string()), pa.array(blame.ns, pa.int64()))


def _known(column: Int64 | Int32 | Int8) -> Any:
    import pyarrow as pa

    return pa.array(column, mask=column == NONE)
