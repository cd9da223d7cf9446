"""The files that cbprof writes: whole or not at all, never over a file that they tell of, and no more open than it.

::

    with whole_file(Path("report.html"), "the report", of=[trace]) as file:
        file.write(...)                         # .e5c1...part beside it, which takes the name at the end of the block
"""

from __future__ import annotations

import csv
import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from cbprof.errors import CbprofError, UsageError

_MISPLACED = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
_ANYONE = 0o666  # less what the umask takes

_FIRST_FREE = 3  # the descriptors below are the standard streams, closed or not

_ROOM = 1 << 16
"""Bytes that a disk must take before work begins whose result goes there."""


class FileInUseError(UsageError):
    """Another process is writing the file."""


@contextmanager
def whole_file(path: Path, what: str, *, of: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """A new file beside ``path``, under a name that nobody can know, which replaces ``path`` at the end of the block.

    Where the block fails, ``path`` is as it was. ``what`` names the content in messages. ``of``: the files that it
    tells of; none of them is ever replaced, and who may not read one of them may not read the new file either.

    Raises :class:`UsageError` where no file can be, and :class:`CbprofError` where the disk fails or is full.
    """
    sources = list(of)
    check_not_among(path, sources)
    part = path.with_name(private_name())
    try:
        with open_new(part, like=sources) as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise cannot_write(path, what, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_whole(path: Path, content: bytes, what: str, *, of: Iterable[Path] = ()) -> None:
    """Write ``content`` as :func:`whole_file` does."""
    with whole_file(path, what, of=of) as file:
        file.write(content)


def cannot_write(path: Path, what: str, error: OSError) -> CbprofError:
    """The error to raise: of the request where no file can be, of the disk otherwise."""
    kind = UsageError if isinstance(error, _MISPLACED) or error.errno == errno.ENAMETOOLONG else CbprofError
    return kind(f"{path}: cannot write {what}: {error.strerror or error}; write elsewhere")


def check_not_among(path: Path, inputs: Iterable[Path]) -> None:
    """Raise :class:`UsageError` where ``path`` is one of the files that are read, by whatever name."""
    if any(_same_file(path, each) for each in inputs):
        raise UsageError(f"{path}: is a file that this command reads; give the output another name")


def check_takes_files(folder: Path, path: Path, what: str) -> None:
    """Raise :class:`CbprofError` where ``folder`` takes no new file of 64 KiB: before the work whose result, ``path``,
    is to lie there."""
    probe = folder / private_name()
    try:
        with open_new(probe) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        raise cannot_write(path, what, error) from error
    finally:
        with suppress(OSError):
            probe.unlink()


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # there is none by that name
        return False


def private_name() -> str:
    """A file name that nobody can guess, and so nobody can have put something there."""
    return f".{secrets.token_hex(16)}.part"


def open_new(path: Path, *, like: Iterable[Path] = ()) -> BinaryIO:
    """A file that was not there. Its mode is the narrowest of the umask's and those of the files ``like``."""
    mode = _ANYONE
    for source in like:
        with suppress(OSError, ValueError):
            mode &= source.stat().st_mode
    mode |= 0o600  # it is ours, whoever owns the others
    return os.fdopen(_not_standard(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)), "wb")


def _not_standard(descriptor: int) -> int:
    """The same open file under a number that no standard stream has: where the program was started with one of them
    closed (``2>&-``), what it writes there would end up in the file."""
    if descriptor >= _FIRST_FREE:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    finally:
        os.close(descriptor)


def open_locked(path: Path) -> BinaryIO:
    """A new file at ``path`` that no other process opens so while this one has it open.

    What a process that is gone has left there is kept under another name. Raises :class:`UsageError` where another
    process is writing it, :class:`OSError` where it cannot be.
    """
    while True:
        try:
            file = open_new(path)
        except FileExistsError:
            _move_away(path)
            continue
        if _lock(file.fileno()) and _is_at(file, path):
            return file
        file.close()  # another process took it for an empty one that had been left


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _move_away(path: Path) -> None:
    """Give what lies at ``path`` another name. Raises :class:`UsageError` where a process that lives writes it."""
    left = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if not _lock(left):
            raise FileInUseError(f"{path}: another process is writing it; choose another name for this run")
        if not os.fstat(left).st_size:
            path.unlink()
            return
        kept = next(name for number in range(1, 10**9) if not (name := _numbered(path, number)).exists())
        os.rename(path, kept)
        logging.getLogger("cbprof").warning("kept what a run that broke off had written: %s", kept)
    finally:
        os.close(left)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name.removesuffix('.part')}.{number}.part")


def _lock(descriptor: int) -> bool:
    """Whether the file is this process' now. A file system without locks lets everybody have it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], what: str, *, of: Iterable[Path] = ()
) -> None:
    """Write rows as CSV in UTF-8, as :func:`whole_file` does, with texts as :func:`plain_cell` leaves them."""
    with whole_file(path, what, of=of) as file, TextIOWrapper(file, "utf-8", "replace", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(header)
        writer.writerows([plain_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)


def plain_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: what begins like one gets an apostrophe, which they do not show.

    After OWASP, "CSV Injection". Names in a trace come from whoever wrote the program.
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def with_infix(path: Path, infix: str) -> Path:
    """``trace.json.gz`` with ``sync`` is ``trace.sync.json.gz``."""
    stem, suffix = split_suffix(path.name)
    return path.with_name(f"{stem}.{infix}{suffix}")


def split_suffix(name: str) -> tuple[str, str]:
    """``trace.json.gz`` is ``trace`` and ``.json.gz``."""
    path = Path(name)
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return name.removesuffix(suffix), suffix
