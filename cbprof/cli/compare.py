"""``cbprof compare``: did the change work?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.options import Format, parse_steps, refuse_with
from cbprof.cli.reading import NoCache, read_runs
from cbprof.cli.writing import show


def compare(
    context: typer.Context,
    before: Annotated[Path, typer.Argument(help="The trace before the change.", metavar="BEFORE")],
    after: Annotated[Path, typer.Argument(help="The trace after it.", metavar="AFTER")],
    steps: Annotated[str | None, typer.Option(help="Only these steps of both, first:last (last not included).")] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if it got worse by more than this: slower:2%, idle:1pp, longest-gap:10%, p99-step:5%, or "
            "workload if the workloads differ. Can be repeated.",
            metavar="WHAT:LIMIT",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap behind the intervals.")] = 0,
    all_rows: Annotated[bool, typer.Option("--all", help="Every host phase, not the largest 20.")] = False,
    layout: Annotated[Format, typer.Option("--format", help="text for a terminal, md for a pull request.")] = (
        Format.text
    ),
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Compare two traces of one workload: time, idle time, phase by phase, and how sure the difference is.

    Where `cbprof run --repeat` made several runs of either, their medians are compared, and a --fail-if condition holds
    only where the runs are apart. Runs of different lengths are compared per token. The exit code is 1 where a
    --fail-if condition holds, and 2 where the traces were measured in different ways (CUDA events, CUPTI, emulated),
    since their figures do not compare.

    Examples:

        cbprof compare before.json after.json

        cbprof compare before.json after.json --fail-if slower:2% --fail-if idle:1pp --format md
    """
    from cbprof.api import compare_runs

    if json:
        refuse_with(context, "--json", "all_rows", "layout")
    chosen = parse_steps(steps)
    first, second = (read_runs(path, no_cache=no_cache) for path in (before, after))
    comparison = compare_runs(first, second, steps=chosen, seed=seed, fail_if=fail_if or (), all_rows=all_rows)
    show(comparison, json=json, layout=layout)
    raise typer.Exit(int(not comparison.passed))
