"""Writes the spans of a trace as one table, for databases, spreadsheets and notebooks: Parquet or CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.errors import UsageError
from cbprof.files import plain_cell, whole_file
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


def write_parquet(trace: Trace, path: Path, *, of: Iterable[Path] = ()) -> None:
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
    with whole_file(path, "the table", of=of) as file:
        parquet.write_table(table, file)


def write_csv(trace: Trace, path: Path, *, of: Iterable[Path] = ()) -> None:
    """Write the spans as CSV in UTF-8, with a line of headers; ``.gz`` at the end of the name compresses it.

    Names are as :func:`cbprof.files.plain_cell` leaves them. ``of``: what the trace was read from. Raises
    :class:`CbprofError` where the place cannot be written.
    """
    table, packed = spans_table(trace), path.suffix == ".gz"
    texts = table.columns.intersection(["lane", "kind", "name", "args"])
    table[texts] = table[texts].map(plain_cell, na_action="ignore")
    # Python's csv quotes a carriage return only where it ends lines.
    odd = any("\r" in name for name in trace.names)
    with whole_file(path, "the table", of=of) as file:
        table.to_csv(
            file,
            index=False,
            compression="gzip" if packed else None,
            quoting=csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL,
        )
