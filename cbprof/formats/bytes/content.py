"""Reads a whole file and inflates gzip. Of a cut file, it gives what came before the cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats.bytes.stream import ByteStream

MAX_BYTES = 1 << 30
"""Of a file, inflated, whose spans or whose text are kept in memory."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds. ``whole`` is False where a gzip stream is cut or damaged and ``data`` is what came before."""

    data: bytes
    whole: bool


def read_content(path: Path) -> Content:
    """Read a file, gzip or not, whatever its name.

    Raises :class:`DataError` as :class:`ByteStream` does, and where it holds more than ``MAX_BYTES``.
    """
    pieces = []
    with ByteStream(path) as stream:
        while piece := stream.read():
            pieces.append(piece)
            check_size(stream)
        return Content(b"".join(pieces), stream.whole)


def check_size(stream: ByteStream) -> None:
    """Raise :class:`DataError` where more than ``MAX_BYTES`` have been read."""
    if stream.n_read > MAX_BYTES:
        raise DataError(
            f"{stream.path}: holds more than {MAX_BYTES >> 20} MiB, too much for one trace; record fewer steps"
        )
