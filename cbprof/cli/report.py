"""``cbprof report``: the numbers of a trace."""

from __future__ import annotations

from enum import StrEnum
from os.path import isdir  # unlike Path's, False for any name that cannot be
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import typer

from cbprof.api import PAGES, Steps, load_ranks, save_report
from cbprof.cli.fleet import show_ranks
from cbprof.cli.options import Format, Label, labelled, parse_steps, refuse_with, refuse_without
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import check_output, say, show, show_json
from cbprof.errors import UsageError


class Activity(StrEnum):
    """What counts as GPU active."""

    compute = "compute"
    busy = "busy"


class Gaps(StrEnum):
    """Which gaps the JSON lists."""

    longest = "longest"
    all = "all"


class _Which(TypedDict):
    """What the figures are of."""

    steps: Steps | None
    skip: int
    window: str | None
    activity: Literal["compute", "busy"] | None


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
    all_rows: Annotated[
        bool, typer.Option("--all", help="With --full: every row of a long table, not the largest 20.")
    ] = False,
    layout: Annotated[Format, typer.Option("--format", help="text for a terminal, md for a pull request.")] = (
        Format.text
    ),
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    gaps: Annotated[Gaps, typer.Option(help="With --json: the ten longest gaps, or all of them.")] = Gaps.longest,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page to send: NAME.html.", metavar="FILE")
    ] = None,
    label: Label = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write steps, gaps and device work: a folder, or NAME.csv.", metavar="DIR|FILE"),
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
        refuse_with(
            context, chosen, "steps", "skip", "window", "activity", "full", "all_rows", "layout", "json", "gaps", "csv"
        )
        _write_page(traces, output, label, no_cache=no_cache)
        return
    refuse_without(context, "--output", "label")
    if window:
        refuse_with(context, "--window", "steps", "skip")
    if skip:
        refuse_with(context, "--skip", "steps")
    if json:
        refuse_with(context, "--json", "full", "all_rows", "layout")
    else:
        refuse_without(context, "--json", "gaps")
    which = _Which(steps=parse_steps(steps), skip=skip, window=window, activity=activity.value if activity else None)
    if not full:
        refuse_without(context, "--full", "all_rows")
    trace = traces[0]
    if len(traces) > 1 or _holds_ranks(trace):
        refuse_with(context, "several traces", "full", "all_rows", "csv", "layout", "gaps")
        show_ranks(load_ranks(*traces, cached=not no_cache, **which), json=json)
        return
    summary = read(trace, no_cache=no_cache).summary(detailed=full, all_rows=all_rows, **which)
    if csv is not None:
        say(f"wrote {' '.join(map(str, summary.write_csv(csv)))}", err=True)
    if json:
        show_json(summary.to_json(gaps.value))
    else:
        show(summary, layout=layout)


def _holds_ranks(path: Path) -> bool:
    """Whether it is a folder of traces, rather than one of the processes of a single recording."""
    from cbprof.formats.processes import recording_in

    return isdir(path) and recording_in(path) is None


def _write_page(traces: list[Path], page: Path, labels: list[str] | None, *, no_cache: bool) -> None:
    from cbprof.fleet.files import find_files

    if page.suffix.lower() not in PAGES:
        raise UsageError(f"{page}: the report is a page: choose a name that ends in .html")
    files = [Path(file.name) for file in find_files(list(map(str, traces)))]
    check_output(page, inputs=files)
    recordings = labelled([read(file, no_cache=no_cache) for file in files], labels)
    say(f"wrote {save_report(recordings, page)}")
