"""The live line: how fast tokens come, how idle the GPU was in the last second that is known, and a strip of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cbprof.numbers import percent
from cbprof.render.theme import STATES

if TYPE_CHECKING:
    from cbprof.record.live import Activity
    from cbprof.record.program.status import Status

HEIGHTS = " ▁▂▃▄▅▆▇█"
"""A cell as high as the share of its time in which the GPU worked, so that colour is not all that tells."""


def strip(activity: Activity) -> str:
    """The cells of a second as one row of blocks."""
    return "".join(HEIGHTS[min(round(cell * (len(HEIGHTS) - 1)), len(HEIGHTS) - 1)] for cell in activity.cells)


def colored_strip(activity: Activity) -> str:
    """The same with ANSI colours: green where the GPU worked, on red where it did not."""
    return f"{_ansi('38', STATES['overlap'].color)}{_ansi('48', STATES['cpu_only'].color)}{strip(activity)}\x1b[0m"


def _ansi(ground: str, color: str) -> str:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"\x1b[{ground};2;{red};{green};{blue}m"


class LiveLine:
    """One line of the terminal, drawn over and over. The program writes to the same terminal: it is kept below what
    that has written, and the cursor stays at its beginning, so that the program's next line replaces it. What the
    terminal is too narrow for is left out, the strip first; with ``NO_COLOR`` the strip is plain."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._colors = not os.environ.get("NO_COLOR")
        self._tokens = 0
        self._at_s: float | None = None
        self._rate: float | None = None
        self._shown = False

    def processes(self, pid: int, processes: list[Status]) -> None:
        """Draw what the busiest process says."""
        if not self._enabled or not processes:
            return
        from cbprof.record.live import Activity

        busiest = max(processes, key=lambda process: (process.recording, process.tokens, bool(process.cells)))
        if not busiest.recording:
            self._draw("cbprof: ", [f"not recording; kill -USR2 {pid} switches on"])
            return
        rate = self._rate_at(busiest.tokens, busiest.at_s)
        activity = Activity(busiest.cells) if busiest.cells else None
        if (rate and busiest.tokens) or activity is not None:
            self._draw("cbprof: ", rate if busiest.tokens else [], activity)

    def run(self, label: str, tokens: int, most: int, activity: Activity | None, at_s: float) -> None:
        """Draw how far a run is: ``tokens`` of at most ``most``, counted at ``at_s`` seconds of some clock."""
        if self._enabled:
            self._draw("", [f"{label} {tokens / most:4.0%}", *self._rate_at(tokens, at_s)], activity)

    def clear(self) -> None:
        """Leave nothing on the terminal."""
        if self._shown:
            self._write("")

    def _rate_at(self, tokens: int, at_s: float) -> list[str]:
        """Tokens a second between the last two counts, if there are two. A process that begins again counts from 0."""
        if self._at_s is not None and at_s > self._at_s:
            self._rate = max(0, tokens - self._tokens) / (at_s - self._at_s)
        if self._at_s is None or at_s > self._at_s:
            self._tokens, self._at_s = tokens, at_s
        return [] if self._rate is None else [f"{self._rate:,.0f} tokens/s"]

    def _draw(self, head: str, parts: list[str], activity: Activity | None = None) -> None:
        """As many of the parts as fit, from the left."""
        row = "" if activity is None else strip(activity)
        if activity is not None:
            parts = [*parts, f"GPU idle {percent(100 * activity.idle)}", row]
        most = _columns() - 1  # in the last column some terminals begin a new line
        while len(parts) > 1 and len(head + "  ".join(parts)) > most:
            parts = parts[:-1]
        text = (head + "  ".join(parts))[:most]
        if activity is not None and parts[-1] is row and self._colors:
            text = text.removesuffix(row) + colored_strip(activity)
        self._write(text)

    def _write(self, text: str) -> None:
        self._shown = bool(text)
        sys.stderr.write(f"\r\x1b[K{text}\r")
        sys.stderr.flush()


def _columns() -> int:
    """Of the terminal that stderr is, since stdout may be a file."""
    with suppress(OSError, ValueError):
        if columns := os.get_terminal_size(sys.stderr.fileno()).columns:
            return columns
    return shutil.get_terminal_size().columns


def can_draw() -> bool:
    """Whether stderr is a terminal on which a line can be drawn over."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def live_line(*, quiet: bool) -> Iterator[LiveLine]:
    """A live line while the body runs, where there is a terminal to draw it on."""
    line = LiveLine(enabled=can_draw() and not quiet)
    try:
        yield line
    finally:
        line.clear()
