"""``cbprof requests``: which requests were slow, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.options import refuse_with
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import say, show


def requests(
    context: typer.Context,
    trace: Annotated[Path, typer.Argument(help="A trace.json or trace.json.gz that says which requests rode.")],
    request: Annotated[int | None, typer.Option(help="Only this one, token by token.", metavar="ID")] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Every request, not the slowest 20.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Also write one row a request.", metavar="FILE")] = None,
    no_cache: NoCache = False,
) -> None:
    """Which requests were slow, and why: the time of each from its arrival to its end, in parts that sum to it.

    Examples:

        cbprof requests trace.json

        cbprof requests trace.json --request 3

        cbprof requests trace.json --json
    """
    if json:
        refuse_with(context, "--json", "all_rows")
    if request is not None:
        refuse_with(context, "--request", "all_rows")
    view = read(trace, no_cache=no_cache).requests(request=request, all_rows=all_rows)
    if csv is not None:
        say(f"wrote {view.write_csv(csv)}", err=True)
    show(view, json=json)
