"""What commands check before they write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cbprof.errors import UsageError


def spare_inputs(output: Path, inputs: Iterable[Path]) -> None:
    """Raise :class:`UsageError` where writing ``output`` would replace one of ``inputs``."""
    if output.exists() and any(path.exists() and output.samefile(path) for path in inputs):
        raise UsageError(f"{output}: is what is read; write elsewhere")
