"""What commands check before they write."""

from __future__ import annotations

from collections.abc import Iterable
from os.path import exists  # unlike Path's, False for any name that cannot be
from pathlib import Path

from cbprof.errors import UsageError


def spare_inputs(output: Path, inputs: Iterable[Path]) -> None:
    """Raise :class:`UsageError` where writing ``output`` would replace one of ``inputs``."""
    if exists(output) and any(exists(path) and output.samefile(path) for path in inputs):
        raise UsageError(f"{output}: is what is read; write elsewhere")
