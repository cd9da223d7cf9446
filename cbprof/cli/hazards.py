"""``cbprof hazards``: is the order that async batching rests on kept?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import show


def hazards(
    trace: Annotated[Path, typer.Argument(help="A trace.json or trace.json.gz, of a sync or an async run.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Look for races: work that ran, or could have run, before what it depends on was over.

    The exit code is 1 where a hazard was found: a pair out of order by more than the clocks can be off, or an ordering
    that the engine never asked for. What lies within the clock error is only possible, and exits with 0.

    Examples:

        cbprof hazards trace.json

        cbprof hazards trace.json --json
    """
    hazards = read(trace, no_cache=no_cache).hazards()
    show(hazards, json=json)
    raise typer.Exit(int(hazards.full.found))
