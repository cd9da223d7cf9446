"""How active a device was in the last second, kept up while a run goes on.

Device times become known a second or two after the fact, so the second is the last one that is known, not the last one
on the wall. Spans of one device come in the order of their launches; where several streams compute at once, what
overlaps an earlier span counts once, and what starts before an earlier one ended and was not covered is not counted.
"""

from __future__ import annotations

from typing import NamedTuple

CELL_NS = 50_000_000
CELLS = 20
"""One second, in cells as wide as a terminal can show."""


class Activity(NamedTuple):
    """The share of time, 0 to 1, in which a device computed: in each cell of the last second, oldest first."""

    cells: tuple[float, ...]

    @property
    def idle(self) -> float:
        return 1 - sum(self.cells) / len(self.cells)


class LiveActivity:
    """Sums of a device's compute time in a ring of cells. Times are nanoseconds from the origin of the run."""

    def __init__(self) -> None:
        self._active_ns = [0] * (CELLS + 2)  # a second, the cell that is not over yet, and one to spare
        self._newest = 0
        self._covered_until_ns = 0

    def add(self, start_ns: int, end_ns: int) -> None:
        """Count a span of compute."""
        start_ns = max(start_ns, self._covered_until_ns)
        if end_ns <= start_ns:
            return
        self._covered_until_ns = end_ns
        newest = (end_ns - 1) // CELL_NS
        self._advance(newest)
        for cell in range(max(start_ns // CELL_NS, newest - len(self._active_ns) + 1), newest + 1):
            begin_ns = cell * CELL_NS
            covered_ns = min(end_ns, begin_ns + CELL_NS) - max(start_ns, begin_ns)
            self._active_ns[cell % len(self._active_ns)] += covered_ns

    def last_second(self, until_ns: int) -> Activity | None:
        """The second before the cell in which ``until_ns`` lies: nothing that starts before it is still to come.

        None while no second is over, or nothing is known.
        """
        last = max(until_ns, self._covered_until_ns) // CELL_NS
        if last < CELLS or not self._covered_until_ns:
            return None
        known = range(self._newest - len(self._active_ns) + 1, self._newest + 1)
        cells = range(last - CELLS, last)
        return Activity(
            tuple(self._active_ns[cell % len(self._active_ns)] / CELL_NS if cell in known else 0.0 for cell in cells)
        )

    def _advance(self, newest: int) -> None:
        """Empty the cells that come into use."""
        for cell in range(max(self._newest, newest - len(self._active_ns)) + 1, newest + 1):
            self._active_ns[cell % len(self._active_ns)] = 0
        self._newest = max(self._newest, newest)
