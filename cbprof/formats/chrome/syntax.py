"""The JSON of cbprof's own files, in and out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

SCHEMA = 1  # of the format that is written; a higher one is not read


def with_floats(value: Any) -> Any:
    """The same value with floats in place of ``Decimal``, for whatever is not a time."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_floats(item) for item in value]
    return value


def _number(text: str) -> float | Decimal:
    """A JSON number with a point or an exponent. Float64 keeps any 15 significant digits; more need the text."""
    return float(text) if len(text) <= 16 or "e" in text or "E" in text else Decimal(text)


DECODER = json.JSONDecoder(parse_float=_number, strict=False)
"""Of whatever a file holds; numbers that float64 cannot hold are ``Decimal``."""


def to_json(value: Any) -> str:
    """Strict JSON on one line. NaN and infinity, for which JSON has no word, become null; numpy values plain ones."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def _finite(value: Any) -> Any:
    """The same value with None in place of what is no finite number."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """What JSON has no type for: mappings and numpy values have a plain twin, other things a text."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)
