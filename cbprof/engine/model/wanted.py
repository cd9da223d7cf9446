"""What can be refused of a wish for a model before torch is imported and a device is opened, which take seconds."""

from __future__ import annotations

import json
from pathlib import Path

from cbprof.engine.model.presets import PRESETS
from cbprof.engine.model.spec import DTYPES
from cbprof.errors import DataError, UsageError


def check_wanted(name: str, dtype: str, longest: int) -> None:
    """Raise :class:`CbprofError` for a model that cannot be, or that knows fewer than ``longest`` positions.

    ``dtype`` may be ``auto``. Of a model on the hub nothing is known yet.
    """
    if dtype not in ("auto", *DTYPES):
        raise UsageError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if name not in PRESETS:
        refuse_bad_path(name)
    check_positions(name, _positions(name), longest)


def check_positions(name: str, positions: int | None, longest: int) -> None:
    """Raise :class:`UsageError` where a request may be longer than the model knows; None: it is not known."""
    if positions is not None and longest > positions:
        raise UsageError(
            f"{name} knows {positions} positions, but a request may have {longest} tokens: shorten prompts and outputs"
        )


def _positions(name: str) -> int | None:
    """As a preset or a configuration says. The engine asks the model itself once it is there."""
    if name in PRESETS:
        said = PRESETS[name]
    else:
        path = Path(name, "config.json")
        if not path.is_file():
            return None
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from error
        except (ValueError, RecursionError):
            raise DataError(f"{path}: not JSON, so the folder is not a model of transformers; fetch it again") from None
    found = said.get("max_position_embeddings") if isinstance(said, dict) else None
    return found if isinstance(found, int) else None


def refuse_bad_path(name: str) -> None:
    """Raise for a folder that is no model. transformers would look for it on the hub, and say so."""
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise DataError(f"{name}: the folder has no config.json, so it is not a model of transformers")
    elif folder.exists():
        raise DataError(f"{name} is a file; give the folder that holds config.json and the safetensors files")
    elif name.startswith(("/", "./", "../", "~")) or name.count("/") > 1:
        raise UsageError(f"there is no folder {name}")
    elif "/" not in name:
        raise UsageError(f"unknown model {name!r}; give {', '.join(PRESETS)}, a local folder, or a hub id (owner/name)")
