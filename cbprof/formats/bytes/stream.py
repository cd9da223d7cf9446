"""Reads a file in pieces and inflates gzip, so that a file larger than memory can be read.

Inflating runs in a thread of its own: zlib lets go of the GIL, so that one core inflates while another parses.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from cbprof.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"

PIECE = 512 << 10
"""Bytes of a piece, inflated or not. Its decoded events take as much again, and both should fit in a core's cache:
pieces of 4 MB take twice the time while another core is busy with memory."""

# Deflate shrinks a run of one byte about 1030-fold, and real traces 10- to 60-fold. Beyond this ratio it is no trace.
_MAX_RATIO = 300
_RATIO_COUNTS_FROM = 1 << 24

Progress = Callable[[int, int], None]
"""Is told how many bytes of a file are read, and how many it has."""

_GZIP_WINDOW = 31  # zlib's code for "expect a gzip header"


class ByteStream:
    """The content of a file, piece by piece. ``whole`` turns False where a gzip stream is cut or damaged.

    Raises :class:`DataError` where there is no such file, it cannot be read, or it inflates more than 300-fold.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = True
        self.size = 0  # of the file on disk
        self.consumed = 0  # bytes of it so far
        self.n_read = 0  # bytes that `read` gave out
        self._file = self._open()
        self._head = b""
        self._inflater = ThreadPoolExecutor(1, thread_name_prefix="inflate")
        self.is_plain = not self._is_gzip()
        self._pieces = self._plain() if self.is_plain else self._inflated()
        self._next: Future[bytes] | None = None

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._inflater.shutdown(wait=True, cancel_futures=True)
        self._file.close()

    def peek(self) -> bytes:
        """The first piece, without consuming it."""
        if not self._head:
            self._head = self._advance()
        return self._head

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        piece, self._head = self._head or self._advance(), b""
        self.n_read += len(piece)
        return piece

    def fileno(self) -> int:
        """The descriptor of the file, for a child that is to read the same one whatever gets its name."""
        return self._file.fileno()

    @property
    def n_ahead(self) -> int:
        """About how many bytes are still to come."""
        return (self.size - self.consumed) * self.n_read // max(1, self.consumed)

    def _advance(self) -> bytes:
        """The next piece, which was prepared while the one before was in use."""
        future = self._next or self._inflater.submit(next, self._pieces, b"")
        try:
            piece = future.result()
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        self._next = self._inflater.submit(next, self._pieces, b"") if piece else None
        return piece

    def _open(self) -> IO[bytes]:
        try:
            file = self.path.open("rb")
            self.size = self.path.stat().st_size
        except FileNotFoundError:
            raise DataError(
                f"{self.path}: no such file; check the name, or record one with `cbprof run -o {self.path}`"
            ) from None
        except IsADirectoryError:
            raise DataError(f"{self.path}: is a folder, not a trace; name a file in it") from None
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return file

    def _is_gzip(self) -> bool:
        try:
            start = self._file.read(len(GZIP_MAGIC))
            self._file.seek(0)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return start == GZIP_MAGIC

    def _plain(self) -> Iterator[bytes]:
        while piece := self._file.read(PIECE):
            self.consumed += len(piece)
            yield piece

    def _inflated(self) -> Iterator[bytes]:
        """All members of a gzip file; what follows the last one is ignored, as gzip does."""
        inflate, packed, piece, so_far = zlib.decompressobj(_GZIP_WINDOW), b"", b"", 0
        while True:
            # A full piece may have more behind it, even where no input is left over.
            packed = packed or (b"" if len(piece) == PIECE else self._read_packed())
            if not packed and len(piece) < PIECE:
                self.whole = False  # the end of the member is missing
                return
            before = inflate.copy()
            try:
                piece = inflate.decompress(packed, PIECE)
            except zlib.error:
                self.whole = False
                yield _up_to_damage(before, packed)
                return
            packed = inflate.unconsumed_tail
            so_far += len(piece)
            if so_far > _RATIO_COUNTS_FROM and so_far > _MAX_RATIO * self.consumed:
                raise DataError(f"{self.path}: inflates more than {_MAX_RATIO}-fold, which no trace does; not read")
            if piece:
                yield piece
            if inflate.eof:
                packed, piece = inflate.unused_data or self._read_packed(), b""
                if not packed.startswith(GZIP_MAGIC[:1]):
                    return
                inflate = zlib.decompressobj(_GZIP_WINDOW)

    def _read_packed(self) -> bytes:
        packed = self._file.read(PIECE >> 3)
        self.consumed += len(packed)
        return packed


def _up_to_damage(inflate: zlib._Decompress, packed: bytes) -> bytes:
    """What can be inflated of data that is damaged somewhere: zlib keeps nothing of a call that fails."""
    sound = bytearray()
    for step in (1 << 16, 1 << 8, 1):
        while True:
            before = inflate.copy()
            try:
                piece = inflate.decompress(packed, step)
            except zlib.error:
                inflate = before
                break
            if not piece:
                return bytes(sound)
            sound += piece
            packed = inflate.unconsumed_tail
    return bytes(sound)
