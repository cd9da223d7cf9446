"""``cbprof report``: the numbers of a trace."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.ranges import parse_steps


class Activity(StrEnum):
    """What counts as GPU active."""

    compute = "compute"
    busy = "busy"


class Gaps(StrEnum):
    """Which gaps the JSON lists."""

    longest = "longest"
    all = "all"


def report(
    trace: Annotated[Path, typer.Argument(help="A trace.json or trace.json.gz.", metavar="TRACE")],
    steps: Annotated[
        str | None, typer.Option(help="Only these steps, first:last (last not included); either may be left out.")
    ] = None,
    activity: Annotated[
        Activity, typer.Option(help="What counts as GPU active: compute, or busy: compute and copies.")
    ] = Activity.compute,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    gaps: Annotated[Gaps, typer.Option(help="With --json: the ten longest gaps, or all of them.")] = Gaps.longest,
) -> None:
    """How long the GPU waited, and for what.

    Examples:

        cbprof report trace.json

        cbprof report trace.json --steps 1000:2000

        cbprof report trace.json --json --gaps all
    """
    from cbprof.analysis.summary import summarize
    from cbprof.formats import load

    summary = summarize(load(trace), steps=parse_steps(steps), activity=activity.value)
    if json:
        from json import dumps

        from cbprof.analysis.report import to_json

        typer.echo(dumps(to_json(summary, file=str(trace), gaps=gaps.value), indent=1))
    else:
        from rich.console import Console

        from cbprof.render.table import summary_table

        Console().print(summary_table(summary, title=str(trace)))
