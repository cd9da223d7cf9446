"""What the terminal shows while a fleet is read: how many files are done, how fast, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def file_progress(console: Console, total: int) -> Iterator[Callable[[int, int], None]]:
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
        console.print(f"{n_known:,} of {total:,} files were known already", highlight=False)
