"""What commands check before they work for a file that they could not write."""

from __future__ import annotations

from collections.abc import Iterable
from errno import ENAMETOOLONG
from os.path import exists, isdir  # unlike Path's, False for any name that cannot be
from pathlib import Path

from cbprof.errors import UsageError


def check_output(output: Path, *, inputs: Iterable[Path] = ()) -> None:
    """Raise :class:`UsageError` where ``output`` cannot be a file, or would replace one of ``inputs``."""
    if isdir(output) or not output.name:
        raise UsageError(f"{output}: is a folder; give --output the name of a file")
    if not isdir(output.parent):
        raise UsageError(f"{output}: there is no folder {output.parent}; create it, or write elsewhere")
    try:
        output.stat()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise UsageError(f"{output}: cannot be written: {error.strerror}; choose a shorter name") from None
    if exists(output) and any(exists(path) and output.samefile(path) for path in inputs):
        raise UsageError(f"{output}: is a file that this command reads; give the output another name")
