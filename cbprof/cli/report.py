"""``cbprof report``: the numbers of a trace."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from os.path import isdir  # unlike Path's, False for any name that cannot be
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cbprof.cli.fleet import print_ranks
from cbprof.cli.options import Format, parse_steps, refuse_with, refuse_without
from cbprof.cli.reading import NoCache, read_trace
from cbprof.cli.writing import check_output
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.analysis.summary import Summary
    from cbprof.trace import Trace


class Activity(StrEnum):
    """What counts as GPU active."""

    compute = "compute"
    busy = "busy"


class Gaps(StrEnum):
    """Which gaps the JSON lists."""

    longest = "longest"
    all = "all"


def report(
    context: typer.Context,
    traces: Annotated[
        list[Path], typer.Argument(help="A trace; or several, or a folder: one row a rank.", metavar="TRACE")
    ],
    steps: Annotated[
        str | None, typer.Option(help="Only these steps, first:last (last not included); either may be left out.")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="Leave out this many steps at the start.")] = 0,
    window: Annotated[
        str | None,
        typer.Option(
            help="The stretch of time: run, gpu_span, annotation:NAME, annotation:NAME#2, or explicit:FROM:TO in "
            "microseconds. [default: run; gpu_span for the trace of a profiler]",
            metavar="MODE",
        ),
    ] = None,
    activity: Annotated[
        Activity | None,
        typer.Option(
            help="What counts as GPU active: compute, or busy: compute and copies. "
            "[default: compute; busy for the trace of a profiler]"
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also phases, overlap, gaps, idle over time and context, latency.")
    ] = False,
    layout: Annotated[Format, typer.Option("--format", help="text for a terminal, md for a pull request.")] = (
        Format.text
    ),
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    gaps: Annotated[Gaps, typer.Option(help="With --json: the ten longest gaps, or all of them.")] = Gaps.longest,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page to send: NAME.html.", metavar="FILE")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the steps and the gaps: a folder, or NAME.csv.", metavar="DIR|FILE")
    ] = None,
    no_cache: NoCache = False,
) -> None:
    """How long the GPU waited, for what, and what bounds the run.

    Examples:

        cbprof report trace.json

        cbprof report trace.json --skip 10 --full

        cbprof report trace.json --json --gaps all

        cbprof report trace.sync.json trace.async.json -o report.html

        cbprof report rank0.json.gz rank1.json.gz
    """
    if output is not None:
        chosen = "--output, a page of whole runs"
        refuse_with(context, chosen, "steps", "skip", "window", "activity", "full", "layout", "json", "gaps", "csv")
        _write_page(traces, output, no_cache=no_cache)
        return
    if window:
        refuse_with(context, "--window", "steps", "skip")
    if skip:
        refuse_with(context, "--skip", "steps")
    if json:
        refuse_with(context, "--json", "full", "layout")
    else:
        refuse_without(context, "--json", "gaps")
    figures = partial(
        _figures, steps=parse_steps(steps), skip=skip, window=window, activity=activity.value if activity else None
    )
    trace = traces[0]
    if len(traces) > 1 or isdir(trace):
        refuse_with(context, "several traces", "full", "csv", "layout", "gaps")
        _report_ranks(traces, figures, json=json, no_cache=no_cache)
        return
    summary = figures(read_trace(trace, no_cache=no_cache))
    if csv is not None:
        from cbprof.render.tables.csv_files import write_csv

        typer.echo("wrote {} {}".format(*write_csv(summary, csv)), err=True)
    if json:
        from json import dumps

        typer.echo(dumps(summary.to_json(str(trace), gaps.value), indent=1))
    elif layout is Format.md:
        from cbprof.render.tables.summary_sheets import as_markdown

        typer.echo(as_markdown(summary, str(trace), full=full))
    else:
        from cbprof.render.tables.summary_sheets import print_report

        print_report(summary, str(trace), full=full)


def _report_ranks(traces: list[Path], summarize: Callable[[Trace], Summary], *, json: bool, no_cache: bool) -> None:
    """The ranks in these files and folders, compared as ``cbprof fleet`` does, but without Dask."""
    from cbprof.fleet.files import find_files
    from cbprof.fleet.run import run_local
    from cbprof.fleet.task import examine_local

    examine = partial(examine_local, summarize=summarize, cached=not no_cache)
    print_ranks(run_local(find_files(list(map(str, traces))), examine), json=json)


def _write_page(traces: list[Path], page: Path, *, no_cache: bool) -> None:
    from cbprof.fleet.files import find_files
    from cbprof.render.web.report_page import write_report

    if page.suffix.lower() not in {".html", ".htm"}:
        raise UsageError(f"{page}: the report is a page: choose a name that ends in .html")
    files = [Path(file.name) for file in find_files(list(map(str, traces)))]
    check_output(page, inputs=files)
    write_report({str(trace): read_trace(trace, no_cache=no_cache) for trace in files}, page)
    typer.echo(f"wrote {page}")


def _figures(
    trace: Trace,
    *,
    steps: tuple[int | None, int | None] | None,
    skip: int,
    window: str | None,
    activity: Literal["compute", "busy"] | None,
) -> Summary:
    """The figures that the options ask for; also called in other processes."""
    from cbprof.analysis.accounting.window import steps_after
    from cbprof.analysis.summary import summarize

    chosen = steps_after(trace, skip) if skip else steps
    return summarize(trace, steps=chosen, window=window, activity=activity)
