"""A core for the host device's computations alone, as a GPU has its own.

Without this, a scheduler may pack the engine and the device process onto one core while others are free, and what is
measured then is the scheduler. A machine with one core, or without thread affinity, goes without.
"""

from __future__ import annotations

import os


class Cores:
    """The cores that the calling thread may use when this is made, and what it may use from then on.

    Threads and processes inherit the cores of the thread that starts them.
    """

    def __init__(self) -> None:
        self._all = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def leave_last(self) -> None:
        """Keep the calling thread off the last core."""
        self._use(self._all[:-1])

    def take_last(self) -> None:
        """Keep the calling thread on the last core."""
        self._use(self._all[-1:])

    def use_all(self) -> None:
        """Undo what was done to the calling thread."""
        self._use(self._all)

    def _use(self, cores: list[int]) -> None:
        if len(self._all) > 1:
            os.sched_setaffinity(0, cores)
