"""Reads a whole file and inflates gzip. Of a cut file, it gives what came before the cut."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cbprof.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"

# A native trace holds about 120 bytes a span; what is larger than this would not fit in memory once it is parsed.
MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds. ``whole`` is False where a gzip stream is cut or damaged and ``data`` is what came before."""

    data: bytes
    whole: bool


def read_content(path: Path) -> Content:
    """Read a file, gzip or not, whatever its name.

    Raises :class:`DataError` where there is no such file, it cannot be read, or it holds more than ``MAX_BYTES``.
    """
    try:
        with path.open("rb") as file:
            if file.peek(2).startswith(GZIP_MAGIC):
                content = _inflate(file)
            else:
                content = Content(file.read(MAX_BYTES + 1), whole=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the name, or record one with `cbprof run -o {path}`") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a trace; name a file in it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content.data) > MAX_BYTES:
        raise DataError(f"{path}: holds more than {MAX_BYTES >> 20} MiB, too much for one trace; record fewer steps")
    return content


def _inflate(file: IO[bytes]) -> Content:
    """All members of a gzip stream, up to the limit (and a little more, so that passing it shows)."""
    data = bytearray()
    with gzip.GzipFile(fileobj=file) as stream:
        try:
            # read1, because read would lose what it has already inflated when the stream turns out to be cut.
            while len(data) <= MAX_BYTES and (piece := stream.read1(1 << 20)):
                data += piece
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return Content(bytes(data), whole=False)
    return Content(bytes(data), whole=True)
