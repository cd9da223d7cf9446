"""What is said of a child process that does not answer: that it is stopped, or that it does nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LOOK_S = 1.0
"""How long nothing may come from the child before we look at it, and how often we look then."""

IDLE_LOOKS = 10
"""Looks in a row between which the child neither finished nor computed anything, until that is said."""

SETTLE_LOOKS = 5
"""Looks in a row without an answer after which a run that ends early does not wait for the child any more."""

_log = logging.getLogger(__name__)


class Activity(NamedTuple):
    """What a process does. ``stopped``: by a signal or a debugger. ``cpu``: the time computed so far, in ticks."""

    stopped: bool
    cpu: int


def activity_of(pid: int) -> Activity | None:
    """What the process does; None where the system does not say, which is everywhere but on Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return Activity(stopped=fields[0] in "tT", cpu=int(fields[11]) + int(fields[12]))
    except (OSError, IndexError, ValueError):
        return None


class Patience:
    """Looks at the child while it is waited for, and says each thing once until the child answers again."""

    def __init__(self, pid: int, activity: Callable[[int], Activity | None] = activity_of) -> None:
        self._pid = pid
        self._activity = activity
        self._before: Activity | None = None
        self._idle = 0
        self._said = ""
        self.silent = 0
        """Looks since the last answer."""

    def answered(self) -> None:
        """The child has finished something."""
        self._before, self._idle, self._said, self.silent = None, 0, "", 0

    def look(self, *, loading: bool = False) -> None:
        """Nothing came for :data:`LOOK_S` seconds. A child that is ``loading`` may wait for a disk or the network."""
        self.silent += 1
        now, before = self._activity(self._pid), self._before
        self._before = now
        if now is None:
            return
        self._idle = self._idle + 1 if before is not None and before.cpu == now.cpu else 0
        if now.stopped:
            self._say(f"is stopped: kill -CONT {self._pid} lets it go on, Ctrl-C ends the run")
        elif self._idle >= IDLE_LOOKS and not loading:
            self._say(f"has done nothing for {IDLE_LOOKS * LOOK_S:.0f} s, though there is work: Ctrl-C ends the run")

    @property
    def exhausted(self) -> bool:
        """Whether a run that ends early should go without the rest: the child is stopped, or has long been silent."""
        return self.silent >= SETTLE_LOOKS or (self._before is not None and self._before.stopped)

    def _say(self, what: str) -> None:
        """One line on stderr, unless the program has its own way with log records."""
        if what != self._said:
            self._said = what
            _log.warning("cbprof: the device process (pid %d) %s", self._pid, what)
