"""How commands read a trace: with a bar on the terminal while a large file is read, and past its cache if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from cbprof.api import Recording

APPEARS_AFTER_S = 1.0

NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache", help="Read a large file of another tool anew, and keep nothing in ~/.cache/cbprof for next time."
    ),
]


def read(path: Path, *, no_cache: bool = False) -> Recording:
    """The trace of a file; see :func:`cbprof.api.load`."""
    from rich.console import Console

    from cbprof.api import load

    with reading_bar(path.name, Console(stderr=True)) as progress:
        return load(path, cached=not no_cache, progress=progress)


def read_runs(path: Path, *, no_cache: bool = False) -> tuple[Recording, ...]:
    """The run of a file, and its repetitions; see :func:`cbprof.api.load_runs`."""
    from cbprof.api import load_runs

    return load_runs(path, partial(read, no_cache=no_cache))


@contextmanager
def reading_bar(
    name: str, console: Console, clock: Callable[[], float] = perf_counter
) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far a file is read, once that has taken a second.

    Gives a function to call with the bytes that were read and their number in all; None where there is no terminal.
    """
    if not console.is_interactive:
        yield None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(escape(name))
    begun = clock()

    def tell(done: int, total: int) -> None:
        if clock() - begun >= APPEARS_AFTER_S:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()
