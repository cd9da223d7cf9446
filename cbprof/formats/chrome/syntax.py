"""The JSON of a Chrome Trace Event file, in and out.

A run that is killed leaves a file that ends in the middle of an event. Everything before that event is good, so
``parse`` gives all events of a whole file, and of a cut one those before the cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cbprof.errors import DataError
from cbprof.formats.bytes.content import Content

SCHEMA = 1  # of the format that is written; a higher one is not read

_BETWEEN_VALUES = re.compile(r"[ \t\r\n,:]*")


@dataclass(frozen=True, slots=True)
class ChromeDocument:
    """``fields`` are the keys of the outer object, but for the events; an array of events alone has none.

    Events are whatever stands in the array, unchecked; numbers in them that float64 cannot hold are ``Decimal``.
    ``whole`` is False where the file was cut or is damaged: ``events`` then holds the whole ones before that place.
    """

    fields: Mapping[str, Any]
    events: list[Any]
    whole: bool


def parse(content: Content, path: Path) -> ChromeDocument:
    """Find the events in the content of a file; time and memory are linear in its size.

    Raises :class:`DataError` where it is empty, not JSON, JSON without events, or cut before its first event, and
    RecursionError where it is nested deeper than Python goes. ``path`` is for the messages only.
    """
    # Bytes that are not UTF-8 can only spoil a name, so they do not cost the whole file.
    text = content.data.decode("utf-8-sig", errors="replace")
    start = text.lstrip()[:1]
    if not start and content.whole:
        raise DataError(f"{path}: the file is empty; record a trace with `cbprof run -o {path}`")
    if start not in ("{", "[", ""):
        raise DataError(f"{path}: not a trace: it starts with {start!r}; give a .json or .json.gz that cbprof wrote")
    try:
        value, whole = _DECODER.decode(text), content.whole
    except ValueError as error:
        value, whole = _salvage(text), False
        if not value.get("traceEvents"):
            raise DataError(
                f"{path}: cut off or damaged before its first whole event ({error}); record the trace again"
            ) from None
    if isinstance(value, list):
        return ChromeDocument({}, value, whole)
    events = value.pop("traceEvents", None)
    if not isinstance(events, list):
        raise DataError(
            f"{path}: JSON, but not a trace: it has no list `traceEvents`; record one with `cbprof run -o trace.json`"
        )
    return ChromeDocument(with_floats(value), events, whole)


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


_DECODER = json.JSONDecoder(parse_float=_number, strict=False)


def _salvage(text: str) -> dict[str, Any]:
    """The outer object as far as whole values reach, with the whole events under ``traceEvents``."""
    fields: dict[str, Any] = {}
    at = _skip(text, 0)
    with suppress(ValueError, IndexError):  # here the file was cut
        if text[at] == "[":
            _salvage_events(text, at + 1, fields.setdefault("traceEvents", []))
            return fields
        at = _skip(text, at + 1)
        while text[at] == '"':
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
            if key == "traceEvents" and text[at] == "[":
                at = _salvage_events(text, at + 1, fields.setdefault("traceEvents", []))
            else:
                value, at = _DECODER.raw_decode(text, at)
                if at < len(text) or isinstance(value, dict):  # a number at the end may be only half of it
                    fields[key] = value
            at = _skip(text, at)
    return fields


def _salvage_events(text: str, at: int, events: list[Any]) -> int:
    """Append the elements of the array whose first is at ``at``; the place after its end.

    Raises ValueError or IndexError where the array is cut; ``events`` then holds the whole ones.
    """
    at = _skip(text, at)
    while text[at] != "]":
        event, at = _DECODER.raw_decode(text, at)
        events.append(event)
        at = _skip(text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    """The place of the next value. Commas and colons are skipped unchecked: the text is known to be broken."""
    match = _BETWEEN_VALUES.match(text, at)
    return match.end() if match else at


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
