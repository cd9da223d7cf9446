"""What the terminal shows while something long goes on. All of it goes to stderr."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cbprof.cli.live import strip
from cbprof.render.theme import STATES

if TYPE_CHECKING:
    from rich.console import Console

    from cbprof.record.recorder import Recorder

REFRESH_S = 0.5
"""Drawing takes the GIL from the engine for a moment, so it is done seldom."""


@contextmanager
def spinner(console: Console, text: str) -> Iterator[None]:
    """Show ``text`` while the body runs, and nothing afterwards."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(text)
        yield


@contextmanager
def token_progress(console: Console, label: str, total: int) -> Iterator[Callable[[Recorder], None]]:
    """Show how many of at most ``total`` tokens a recorder has counted, and how active the device was just now.

    The value of the ``with`` is given the recorder.
    """
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class TokenRate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f} tokens/s")

    class DeviceActivity(ProgressColumn):
        def render(self, task: Task) -> Text:
            activity = task.fields.get("activity")
            if activity is None:
                return Text()
            colors = f"{STATES['overlap'].color} on {STATES['cpu_only'].color}"
            return Text.assemble((strip(activity), colors), f" GPU idle {100 * activity.idle:.1f} %")

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of at most {task.total:,.0f} tokens"),
        TokenRate(),
        DeviceActivity(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(label, total=total)
    stop = threading.Event()

    def redraw(recorder: Recorder) -> None:
        while not stop.wait(REFRESH_S):
            bar.update(task, completed=recorder.token_count, activity=recorder.activity(), refresh=True)

    def watch(recorder: Recorder) -> None:
        if console.is_terminal:
            threading.Thread(target=redraw, args=(recorder,), name="cbprof progress", daemon=True).start()

    with bar:
        try:
            yield watch
        finally:
            stop.set()
