"""Where ``cbprof check`` finds its limits: ``[tool.cbprof.check]`` of a pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.analysis.gate.check import Limits

TABLE = "[tool.cbprof.check]"


def find_limits(config: Path | None, start: Path) -> Limits:
    """The limits of ``config``; without it, of the nearest pyproject.toml from ``start`` upwards that has the table.

    None are found where there is no such file. Raises UsageError where ``config`` lacks the table, or where a file is
    not TOML, or a limit not a limit.
    """
    from cbprof.analysis.gate.check import Limits

    if config is not None:
        table = _table(config)
        if table is None:
            raise UsageError(f"{config}: has no table {TABLE}: add it, or give the limits as options")
        return Limits.parse(table, f"{config} {TABLE}")
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        table = _table(path) if path.is_file() else None
        if table is not None:
            return Limits.parse(table, f"{path} {TABLE}")
    return Limits({})


def _table(path: Path) -> dict[str, Any] | None:
    try:
        document: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for key in ("tool", "cbprof", "check"):
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None
