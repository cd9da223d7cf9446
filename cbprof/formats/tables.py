"""Writes the spans of a trace as one table, for databases, spreadsheets and notebooks: Parquet or CSV."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.errors import UsageError
from cbprof.formats.chrome.syntax import to_json
from cbprof.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


def spans_table(trace: Trace) -> pd.DataFrame:
    """One row a span: the columns of :meth:`Trace.to_pandas`, ``rank``, and ``args``, what else is known, as JSON.

    Times are integer nanoseconds on the file's own axis; -1 is none. There is no ``args`` where no span has any.
    """
    import pandas as pd

    table = trace.to_pandas()
    table["rank"] = pd.array([trace.lanes[lane].rank for lane in trace.lane_id.tolist()], dtype="int32")
    if trace.extra:
        table["args"] = [to_json(trace.extra[row]) if row in trace.extra else None for row in range(len(trace))]
    return table


def write_parquet(trace: Trace, path: Path) -> None:
    """Write the spans as Parquet; the facts about the run go into its metadata, as JSON under ``cbprof``.

    Raises :class:`UsageError` where pyarrow is missing or the place cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        how = "install it with `pip install cbprof[parquet]`"
        raise UsageError(f"{path}: writing Parquet needs pyarrow; {how}") from None

    table = pa.Table.from_pandas(spans_table(trace), preserve_index=False)
    facts = to_json(trace.meta.to_json()).encode()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"cbprof": facts})
    _replacing(path, lambda part: parquet.write_table(table, part))


def write_csv(trace: Trace, path: Path) -> None:
    """Write the spans as CSV in UTF-8, with a line of headers; ``.gz`` at the end of the name compresses it.

    Raises :class:`UsageError` where the place cannot be written.
    """
    table, packed = spans_table(trace), path.suffix == ".gz"
    _replacing(path, lambda part: table.to_csv(part, index=False, compression="gzip" if packed else None))


def _replacing(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside ``path`` and put the whole file there, or nothing."""
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}; write elsewhere") from error
        raise
