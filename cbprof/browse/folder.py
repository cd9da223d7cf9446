"""The traces of a folder and their figures, kept up while files come, grow and go."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import listdir, scandir
from pathlib import Path
from typing import Any, NamedTuple

from cbprof import api
from cbprof.errors import CbprofError, DataError, UsageError
from cbprof.files import split_suffix
from cbprof.formats.importers import SUFFIXES
from cbprof.names import plain
from cbprof.numbers import count, duration, percent, rate

PART = ".part"
MOST_FILES = 2_000
"""More are not listed: a folder of so many is a job for ``cbprof fleet``."""

GROWING_S = 5.0
"""A recording writes several times a second; what has not changed for so long is not being written."""

_UNIT = re.compile(r"(?<=\d) (?=%|[num]?s\b)")
"""The space between a figure and its unit, at which no line is to break."""

REST = 10
"""A file that grows is read again after so many times as long as reading it took, so that following costs little."""


class Stamp(NamedTuple):
    """Changes whenever the file does."""

    size: int
    mtime_ns: int


@dataclass(slots=True)
class Entry:
    """A file, and what was found in it: ``figures`` as texts, or ``reason`` why there are none.

    ``read``: of the content that this is about; None before it was read. ``due_s``: not to be read again before.
    """

    path: Path
    stamp: Stamp
    read: Stamp | None = None
    due_s: float = 0.0
    figures: dict[str, str] = field(default_factory=dict)
    reason: str = ""


class Folder:
    """Everything in ``root``, at any depth. ``clock``: seconds since 1970, as files are stamped.

    :meth:`look` lists, :meth:`read_next` reads one file that has changed; a thread of the server calls both.
    """

    def __init__(self, root: Path, clock: Any = time.time) -> None:
        self.root = root
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def look(self) -> None:
        """List the folder anew. Raises UsageError where that cannot be."""
        try:
            listdir(self.root)
        except OSError as error:
            raise UsageError(f"{self.root}: cannot be listed: {error.strerror}; give a folder") from None
        found = {}
        for path, stamp in _traces(self.root):
            name = str(path.relative_to(self.root))
            entry = self._entries.get(name) or Entry(path, stamp)
            entry.stamp = stamp
            found[name] = entry
        with self._lock:
            self._entries = found

    def read_next(self) -> bool:
        """Read the newest file that has changed since it was read. False where none has, or none is due."""
        now = self._clock()
        with self._lock:
            changed = [each for each in self._entries.values() if each.read != each.stamp and each.due_s <= now]
        if not changed:
            return False
        entry = max(changed, key=lambda each: each.stamp.mtime_ns)
        stamp, begun = entry.stamp, time.perf_counter()
        try:
            figures, reason = self._figures(entry.path), ""
        except CbprofError as error:
            figures, reason = {}, plain(str(error))
        with self._lock:
            entry.figures, entry.reason, entry.read = figures, reason, stamp
            entry.due_s = now + REST * (time.perf_counter() - begun)
        return True

    def _figures(self, path: Path) -> dict[str, str]:
        with self._reading:
            summary = api.load(path).summary().full
        return {
            "mode": summary.mode or "",
            "evidence": summary.evidence,
            "time": duration(summary.wall_ns or None),
            "idle": percent(summary.worst_idle_pct),
            "tokens_per_s": rate(summary.tokens_per_s),
            "steps": count(summary.n_steps),
            "sentence": _UNIT.sub("\u00a0", summary.verdict.sentence),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Plain data of each file, newest first."""
        with self._lock:
            entries = sorted(self._entries.items(), key=lambda item: (-item[1].stamp.mtime_ns, item[0]))
            return [
                {
                    "name": name,
                    "shown": plain(name),
                    "size": entry.stamp.size,
                    "growing": self._grows(entry),
                    "read": entry.read is not None,
                    "reason": entry.reason,
                    **entry.figures,
                }
                for name, entry in entries
            ]

    def _grows(self, entry: Entry) -> bool:
        return entry.path.name.endswith(PART) and self._clock() - entry.stamp.mtime_ns / 1e9 < GROWING_S

    def open(self, name: str) -> api.Recording:
        """The trace of a file that was listed. Raises DataError where it was not, or cannot be read."""
        with self._reading:
            return api.load(self.entry(name).path)

    def entry(self, name: str) -> Entry:
        """Raises DataError where no such file was listed."""
        with self._lock:
            entry = self._entries.get(name)
        if entry is None:
            raise DataError(f"{plain(name)}: no such trace in {self.root}; look at the list again")
        return entry

    def is_growing(self, name: str) -> bool:
        return self._grows(self.entry(name))

    def finished(self, name: str) -> str | None:
        """What a file that was being written is called now, if it is gone and a finished one is there."""
        whole = name.removesuffix(PART)
        with self._lock:
            return whole if name not in self._entries and whole in self._entries else None


def _traces(root: Path) -> Iterator[tuple[Path, Stamp]]:
    """The files that can be traces, by their names; hidden ones and links to folders are passed over."""
    pending, n_found = [root], 0
    while pending:
        try:
            with scandir(pending.pop()) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            continue  # the others can be shown
        for entry in entries:
            if entry.name.startswith(".") or n_found == MOST_FILES:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                elif entry.name.removesuffix(PART).endswith(SUFFIXES) and entry.is_file():
                    facts = entry.stat()
                    n_found += 1
                    yield Path(entry.path), Stamp(facts.st_size, facts.st_mtime_ns)
            except OSError:
                continue  # it has just gone


def title_of(names: list[str]) -> str:
    """``a`` and ``b`` of ``a.json`` and ``b.json.gz``."""
    return " and ".join(plain(split_suffix(Path(name).name)[0]) for name in names)
