"""``cbprof convert``: any trace that can be read, as trace.json, Parquet or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.api import TABLES, TRACES
from cbprof.cli.options import refuse_with
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import check_output, say
from cbprof.errors import UsageError
from cbprof.numbers import counted


def convert(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="A trace of any format that can be read.", metavar="IN")],
    target: Annotated[Path, typer.Argument(help="NAME.json, .json.gz, .parquet, .csv or .csv.gz.", metavar="OUT")],
    flows: Annotated[
        bool, typer.Option("--flows/--no-flows", help="In a .json: arrows from each launch to what it launched.")
    ] = True,
    no_cache: NoCache = False,
) -> None:
    """Write a trace in another format, chosen by the name of OUT.

    A .json opens in Perfetto, and every command of cbprof reads it. Parquet and CSV have one row a span.

    Examples:

        cbprof convert profile.sqlite trace.json.gz

        cbprof convert trace.pt.trace.json spans.parquet
    """
    name = target.name
    if not name.endswith(TRACES + TABLES):
        known = ", ".join(TRACES + TABLES)
        raise UsageError(f"{target}: its name does not say what to write; end it in one of {known}")
    if name.endswith(TABLES):
        refuse_with(context, "a table", "flows")
    check_output(target, inputs=[source])

    recording = read(source, no_cache=no_cache)
    say(f"wrote {recording.save(target, flows=flows)}: {counted(len(recording.trace), 'span')}")
