"""``cbprof doctor``: can the figures of a trace be trusted?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import show


def doctor(
    trace: Annotated[Path, typer.Argument(help="A trace of any format that can be read.", metavar="TRACE")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Examine a trace before believing its figures: is it whole, and does what it says make sense?

    Looks for files that were cut or damaged, events without times or recorded twice, durations that ran away, graph
    launches whose kernels are missing, device events before their launch, a host that was short of cores. Says how the
    steps are known, and how surely where they had to be searched for. The exit code is 1 where the figures should
    not be trusted.

    Examples:

        cbprof doctor trace.json

        cbprof doctor profile.pt.trace.json.gz --json
    """
    health = read(trace, no_cache=no_cache).health()
    show(health, json=json)
    raise typer.Exit(int(not health.reliable))
