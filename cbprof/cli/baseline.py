"""``cbprof baseline``: keep how a run did, and hold later ones against it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.check import CheckFormat
from cbprof.cli.options import refuse_with
from cbprof.cli.reading import NoCache, read_runs
from cbprof.cli.writing import check_output, say, show
from cbprof.errors import UsageError

Traces = Annotated[
    list[Path], typer.Argument(help="The trace, or several of one workload; with those of `run --repeat` beside it.")
]

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def baseline() -> None:
    """Keep how a run did in a small file, and hold later runs against it: a gate for CI.

    The file holds a few figures a run, not the trace, so that it can be committed. Record several runs with
    `cbprof run --repeat 3`, since a shared machine moves a single one by more than most changes do.

    Examples:

        cbprof baseline save trace.json -o baseline.json

        cbprof baseline compare trace.json --baseline baseline.json --fail-if slower:25% --fail-if idle:10pp
    """


@app.command()
def save(
    traces: Traces,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The baseline, or a folder of them: FOLDER/NAME.json of NAME.json.")
    ] = Path("baseline.json"),
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an older baseline.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Write the figures of the runs, to which later ones are held.

    Examples:

        cbprof baseline save trace.json

        cbprof baseline save trace.json -o baselines --force
    """
    from cbprof.api import save_baseline
    from cbprof.render.views.baseline import baseline_at

    target = baseline_at(output, traces[0].name)
    check_output(target, inputs=traces)
    if target.is_file() and not force:
        raise UsageError(f"{target}: is there already; give --force to replace it, or --output another name")
    runs = [run for trace in traces for run in read_runs(trace, no_cache=no_cache)]
    say(f"wrote {save_baseline(runs, target)}")


@app.command()
def compare(
    context: typer.Context,
    traces: Traces,
    baseline: Annotated[
        Path, typer.Option("--baseline", "-b", help="What `cbprof baseline save` wrote, or the folder of it.")
    ] = Path("baseline.json"),
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if the median got worse by more than this, and the runs are apart: slower:25%, "
            "idle:10pp, longest-gap:50%, p99-step:50%, or workload if the workloads differ. Can be repeated.",
            metavar="WHAT:LIMIT",
        ),
    ] = None,
    layout: Annotated[
        CheckFormat, typer.Option("--format", help="text: tables; github: annotations of a workflow.")
    ] = CheckFormat.text,
    junit: Annotated[Path | None, typer.Option(help="Also write the limits as JUnit XML.", metavar="FILE")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Hold runs against a baseline: by their medians, and only where the runs are apart.

    A limit is broken where the median rose by more than it allows and the later run is the worse one in 95 of 100 pairs
    of a run then and a run now; of three runs each, in all nine.

    Examples:

        cbprof baseline compare trace.json --fail-if slower:25%

        cbprof baseline compare trace.json -b baselines --fail-if idle:10pp --format github --junit cbprof.xml
    """
    from cbprof.api import compare_baseline

    if json:
        refuse_with(context, "--json", "layout")
    if layout is CheckFormat.github and not fail_if:
        raise UsageError("--format github prints limits: give one such as --fail-if slower:25%")
    runs = [run for trace in traces for run in read_runs(trace, no_cache=no_cache)]
    view = compare_baseline(runs, baseline, fail_if=fail_if or ())
    if junit is not None:
        view.checked.write_junit(junit)
    if layout is CheckFormat.github:
        typer.echo(view.checked.to_github())
    else:
        show(view, json=json)
    raise typer.Exit(int(not view.passed))
