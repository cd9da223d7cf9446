"""``cbprof fleet``: many traces, wherever they lie, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.options import refuse_with
from cbprof.cli.writing import check_output, say, show
from cbprof.errors import DataError, UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    from rich.console import Console

    from cbprof.fleet.files import TraceFile
    from cbprof.render.views.examined import RanksView

NEEDED = ("cryptography", "dask", "distributed", "fsspec", "pyarrow")


def fleet(
    context: typer.Context,
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
    if scheduler:
        refuse_with(context, "--scheduler", "workers", "memory")
    from cbprof.fleet.files import find_files

    files = find_files(paths)
    ranks = _run(files, scheduler=scheduler, workers=workers, memory=memory, out=out, quiet=quiet)
    if csv is not None:
        ranks.write_csv(csv)
        say(f"wrote {csv}", err=True)
    if output is not None:
        ranks.write_page(output)
        say(f"wrote {output}", err=True)
    show_ranks(ranks, json=json)


def _run(
    files: list[TraceFile],
    *,
    scheduler: str | None,
    workers: int | None,
    memory: str | None,
    out: str | None,
    quiet: bool,
) -> RanksView:
    from rich.console import Console

    from cbprof.fleet.cluster import joined_cluster, local_cluster
    from cbprof.fleet.run import run_fleet
    from cbprof.render.views.examined import RanksView

    cluster = (
        partial(joined_cluster, scheduler) if scheduler else partial(local_cluster, workers=workers, memory=memory)
    )
    with _file_progress(Console(stderr=True, quiet=quiet), len(files)) as done:
        return RanksView(run_fleet(files, cluster, out=out, done=done))


@contextmanager
def _file_progress(console: Console, total: int) -> Iterator[Callable[[int, int], None]]:
    """The value of the ``with`` is told how many more files are done, and how many of them were known already.

    Without a terminal, one line at the end says how many were.
    """
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class FileRate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.1f} files/s")

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} files"),
        FileRate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("reading", total=total)
    n_known = 0

    def done(n: int, n_known_of_them: int) -> None:
        nonlocal n_known
        n_known += n_known_of_them
        if n_known_of_them:  # they took no time, and say nothing of how fast the others are
            bar.update(task, total=total - n_known)
        else:
            bar.advance(task, n)

    with bar:
        yield done
    if n_known:
        console.print(f"{n_known:,} of {counted(total, 'file was', 'files were')} known already", highlight=False)


def show_ranks(ranks: RanksView, *, json: bool) -> None:
    """Print the ranks. Raises :class:`DataError` afterwards where no file could be used."""
    show(ranks, json=json)
    if not ranks.full.rows:
        first = ranks.full.failed[0]
        raise DataError(
            f"none of {counted(len(ranks.full.failed), 'file')} could be used; {first.name}: {first.reason}"
        )


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
        check_output(path, inputs=map(Path, inputs))
