"""What the terminal shows while something long goes on. All of it goes to stderr."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cbprof.cli.live import LiveLine

if TYPE_CHECKING:
    from rich.console import Console

    from cbprof.record.recorder import Recorder

REFRESH_S = 0.5
"""Drawing takes the GIL from the engine for a moment, so it is done seldom, and with no more than a string: laying
out a bar takes longer, and in a sync run all of it is idle time of the GPU."""


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
def token_progress(label: str, total: int, *, shown: bool) -> Iterator[Callable[[Recorder], None]]:
    """Show how many of at most ``total`` tokens a recorder has counted, and how active the device was just now.

    The value of the ``with`` is given the recorder. ``shown``: whether there is a terminal to draw on.
    """
    line, stop = LiveLine(enabled=shown), threading.Event()
    threads: list[threading.Thread] = []

    def redraw(recorder: Recorder) -> None:
        while not stop.wait(REFRESH_S):
            line.run(label, recorder.token_count, total, recorder.activity(), time.monotonic())

    def watch(recorder: Recorder) -> None:
        if shown:
            threads.append(threading.Thread(target=redraw, args=(recorder,), name="cbprof progress", daemon=True))
            threads[-1].start()

    try:
        yield watch
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        line.clear()
