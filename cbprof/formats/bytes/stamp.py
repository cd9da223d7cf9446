"""Tells whether a file is still the one that it was, without reading it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from cbprof.errors import DataError

_UNFINISHED = ".part"


class Stamp(NamedTuple):
    """What is another in a file that was replaced (device, inode) or written to (size, mtime_ns)."""

    device: int
    inode: int
    size: int
    mtime_ns: int


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None where there is none of this name."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) if S_ISREG(stat.st_mode) else None


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Reads a file, more than once and in more than one process, as what it is at the beginning of the block.

    Raises :class:`DataError` at its end where the file was replaced or written to meanwhile: what was read may be of
    two files. A recording that goes on (``.part``) may grow, or have got the name of a finished one.
    """
    before = stamp_of(path)
    try:
        yield
    except DataError as error:
        if _has_changed(path, before):
            raise _changed(path) from error
        raise
    if _has_changed(path, before):
        raise _changed(path)


def _has_changed(path: Path, before: Stamp | None) -> bool:
    after = stamp_of(path)
    if path.suffix == _UNFINISHED:
        return before is not None and after is not None and before[:2] != after[:2]
    return before is not None and after != before


def _changed(path: Path) -> DataError:
    return DataError(f"{path}: was replaced or written to while it was read; read it again when it is finished")
