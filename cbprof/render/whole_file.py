"""Writing a picture or a page: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cbprof.errors import CbprofError, UsageError


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Write ``content`` under another name beside ``path``, then rename it, so that no half file is ever seen.

    Raises :class:`UsageError` where no file can be, and :class:`CbprofError` on a disk error; ``what`` names the
    content in the message.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        misplaced = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError)
        kind = UsageError if misplaced else CbprofError
        raise kind(f"{path}: cannot write {what}: {error.strerror or error}; write elsewhere") from error
