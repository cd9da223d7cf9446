"""The live line: how fast tokens come, how idle the GPU was in the last second that is known, and a strip of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
    that has written, and the cursor stays at its beginning, so that the program's next line replaces it."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._tokens, self._at_s, self._rate = 0, 0.0, 0.0
        self._shown = False

    def processes(self, pid: int, processes: list[Status]) -> None:
        """Draw what the busiest process says."""
        if not self._enabled or not processes:
            return
        from cbprof.record.live import Activity

        busiest = max(processes, key=lambda process: (process.recording, process.tokens, bool(process.cells)))
        if not busiest.recording:
            self._draw(f"cbprof: not recording; kill -USR2 {pid} switches on")
            return
        rate = self._tokens_per_s(busiest.tokens, busiest.at_s)
        parts = [f"{rate:,.0f} tokens/s"] if busiest.tokens else []
        parts += _device(Activity(busiest.cells) if busiest.cells else None)
        if parts:
            self._draw("cbprof: " + "  ".join(parts))

    def run(self, label: str, tokens: int, most: int, activity: Activity | None, at_s: float) -> None:
        """Draw how far a run is: ``tokens`` of at most ``most``, counted at ``at_s`` seconds of some clock."""
        if self._enabled:
            rate = f"{self._tokens_per_s(tokens, at_s):,.0f} tokens/s"
            self._draw("  ".join([f"{label} {tokens / most:4.0%}", rate, *_device(activity)]))

    def clear(self) -> None:
        """Leave nothing on the terminal."""
        if self._shown:
            self._draw("")

    def _tokens_per_s(self, tokens: int, at_s: float) -> float:
        """Between the last two statuses. A process that begins again counts from 0."""
        if at_s > self._at_s:
            self._rate = max(0, tokens - self._tokens) / (at_s - self._at_s)
            self._tokens, self._at_s = tokens, at_s
        return self._rate

    def _draw(self, text: str) -> None:
        self._shown = bool(text)
        sys.stderr.write(f"\r\x1b[K{text}\r")
        sys.stderr.flush()


def _device(activity: Activity | None) -> list[str]:
    return [] if activity is None else [f"GPU idle {100 * activity.idle:.1f} %", colored_strip(activity)]


@contextmanager
def live_line(*, quiet: bool) -> Iterator[LiveLine]:
    """A live line while the body runs, where there is a terminal to draw it on."""
    line = LiveLine(enabled=sys.stderr.isatty() and not quiet)
    try:
        yield line
    finally:
        line.clear()
