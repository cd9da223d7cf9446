"""``cbprof fleet``: many traces, wherever they lie, side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.writing import spare_inputs
from cbprof.errors import DataError, UsageError

if TYPE_CHECKING:
    from cbprof.analysis.ranks.report import FleetReport
    from cbprof.fleet.files import TraceFile

NEEDED = ("dask", "distributed", "fsspec", "pyarrow")


def fleet(
    paths: Annotated[
        list[str],
        typer.Argument(help="Traces, folders, patterns; or s3://, gs://, http:// of these.", metavar="PATHS"),
    ],
    scheduler: Annotated[
        str | None,
        typer.Option(
            envvar="DASK_SCHEDULER_ADDRESS",
            help="A Dask cluster that is there already, tcp://HOST:8786. [default: processes of this machine]",
            metavar="ADDRESS",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes of this machine. [default: one a core]")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Most memory of a worker, as in 4GB. [default: an equal share]", metavar="SIZE")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Keep the tables of ranks, steps and gaps here; go on from it later.", metavar="NAME.parquet"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page to send: NAME.html.", metavar="FILE")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one row a rank: NAME.csv.", metavar="FILE")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Which ranks wait, which are slow and why, and what the others wait for.

    Every file becomes one task that returns a few kilobytes; traces of every format that cbprof reads may be mixed. A
    file that cannot be read is one row with its reason. Credentials for object stores come from where their own tools
    take them, such as AWS_PROFILE.

    Examples:

        cbprof fleet traces/

        cbprof fleet 'runs/*/trace.rank*.json.gz' --out fleet.parquet -o fleet.html

        cbprof fleet s3://bucket/traces --scheduler tcp://10.0.0.1:8786 --out s3://bucket/fleet.parquet

        cbprof fleet traces/ --json
    """
    _check_installed()
    _check_outputs(output, csv, inputs=paths)
    if scheduler and (workers or memory):
        raise UsageError("--workers and --memory are for processes of this machine: leave them, or --scheduler, out")
    from cbprof.fleet.files import find_files

    files = find_files(paths)
    report = _run(files, scheduler=scheduler, workers=workers, memory=memory, out=out, quiet=quiet)
    if csv is not None:
        from cbprof.render.tables.ranks_csv import write_fleet_csv

        write_fleet_csv(report, csv)
        typer.echo(f"wrote {csv}", err=True)
    if output is not None:
        from cbprof.render.web.ranks_page import write_fleet_page

        write_fleet_page(report, output)
        typer.echo(f"wrote {output}", err=True)
    _print(report, json=json)
    if not report.rows:
        first = report.failed[0]
        raise DataError(f"none of {len(report.failed)} files could be used; {first.name}: {first.reason}")


def _run(
    files: list[TraceFile],
    *,
    scheduler: str | None,
    workers: int | None,
    memory: str | None,
    out: str | None,
    quiet: bool,
) -> FleetReport:
    from rich.console import Console

    from cbprof.cli.fleet_progress import file_progress
    from cbprof.fleet.cluster import joined_cluster, local_cluster
    from cbprof.fleet.run import run_fleet

    cluster = (
        partial(joined_cluster, scheduler) if scheduler else partial(local_cluster, workers=workers, memory=memory)
    )
    with file_progress(Console(stderr=True, quiet=quiet), len(files)) as done:
        return run_fleet(files, cluster, out=out, done=done)


def _print(report: FleetReport, *, json: bool) -> None:
    if json:
        from json import dumps

        from cbprof.analysis.ranks.plain import to_json

        typer.echo(dumps(to_json(report), indent=1))
        return
    from rich.console import Console

    from cbprof.render.terminal.ranks import fleet_terminal

    Console().print(fleet_terminal(report))


def _check_installed() -> None:
    from importlib.util import find_spec

    if missing := [package for package in NEEDED if find_spec(package) is None]:
        raise UsageError(f"cbprof fleet needs {' and '.join(missing)}: pip install 'cbprof[fleet]'")


def _check_outputs(page: Path | None, csv: Path | None, *, inputs: list[str]) -> None:
    """Before hours of work, not after them."""
    for path, endings in ((page, (".html", ".htm")), (csv, (".csv",))):
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise UsageError(f"{path}: choose a name that ends in {endings[0]}")
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}; create it, or write elsewhere")
        spare_inputs(path, map(Path, inputs))
