"""The events of a Chrome trace as typed records, from JSON that may be odd or broken.

Three records hold the same fields, in the order in which Kineto writes them: the decoder looks for the next one first.
The narrow record is what nearly every file fits and is decoded fastest; the next keeps the text of its times, for those
that float64 cannot hold; the last takes a value of any type in any place, for exporters that write numbers as strings.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

from cbprof.trace import NONE

NO_TEXT = Raw(b"")


class Args(Struct, gc=False):
    """What an importer needs of ``args``.

    ``correlation_id`` is what XLA calls ``correlation``, -1 where there is none. In an event of metadata, ``name`` is
    that of a process or a thread, and ``labels`` are those of a process.
    """

    device: int | str | None = None
    stream: int | str | None = None
    correlation: int | str | None = None
    correlation_id: int | str = NONE
    name: Any = None
    labels: Any = None


class Event(Struct, gc=False):
    """An event with times in float64 microseconds: exact in nanoseconds below 2^43 us (see ``columns.from_floats``)."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    id: Any = None
    args: Args | None = None


class TextEvent(Struct, gc=False):
    """An event whose times are the text of the file."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = NO_TEXT
    dur: Raw = NO_TEXT
    id: Any = None
    args: Args | None = None


class LooseEvent(Struct, gc=False):
    """An event of any values. ``args`` is whatever the file has."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Raw = NO_TEXT
    dur: Raw = NO_TEXT
    id: Any = None
    args: Any = None


AnyEvent = Event | TextEvent | LooseEvent

_DECODERS: tuple[msgspec.json.Decoder[Any], ...] = (
    msgspec.json.Decoder(list[Event]),
    msgspec.json.Decoder(list[TextEvent]),
    msgspec.json.Decoder(list[LooseEvent]),
)
FLOAT_TIMES, TEXT_TIMES, ANY_VALUES = range(3)
"""How narrow a record is; the index of its decoder."""

_DECODE_ONE = msgspec.json.Decoder(LooseEvent)

# From the first event of a text to its last.
_EVENTS = re.compile(rb"[ \t\r\n,]*+(.*[^ \t\r\n,])?", re.DOTALL)

# An escape that JSON has, or a backslash that begins none: a Windows path that nobody escaped.
_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})|)')
_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_NOT_FINITE = re.compile(rb"([:\[,]\s*)[-+]?(?:nan|infinity|inf)\b", re.IGNORECASE)


def narrowed(event: LooseEvent) -> TextEvent:
    """The same event with every value in its proper type; a value that makes no sense becomes None."""
    args = event.args if isinstance(event.args, dict) else {}
    return TextEvent(
        ph=_text(event.ph),
        cat=_text(event.cat),
        name=_text(event.name),
        ts=event.ts,
        dur=event.dur,
        pid=_scalar(event.pid),
        tid=_scalar(event.tid),
        id=_scalar(event.id),
        args=Args(
            device=_scalar(args.get("device")),
            stream=_scalar(args.get("stream")),
            correlation=_scalar(args.get("correlation")),
            correlation_id=NONE if (told := _scalar(args.get("correlation_id"))) is None else told,
            name=args.get("name"),
            labels=args.get("labels"),
        ),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _scalar(value: Any) -> int | str | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else str(value)
    return value if isinstance(value, int | str) else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in the order of the file. ``record`` says what they are, ``text`` is the array they were decoded from.

    ``place``: of the batch among all batches.
    """

    place: int
    events: list[AnyEvent]
    record: int
    text: bytes


class MalformedError(Exception):
    """A piece of text is not what it should be: invalid JSON, or nested beyond all measure."""


def decode_array(text: bytes, record: int) -> tuple[list[AnyEvent], int]:
    """The events of a JSON array, and how narrow a record they fit: ``record``, or the first wider one that does.

    Raises :class:`MalformedError` where the text is not valid JSON, or an element is not an object.
    """
    while True:
        try:
            return _DECODERS[record].decode(text), record
        except msgspec.ValidationError as error:
            if record == ANY_VALUES:
                raise MalformedError(str(error)) from None
            record += 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(str(error)) from None


def decode_batch(place: int, text: bytes | memoryview, record: int) -> Batch:
    """The events of a text that begins and ends between two events, repaired if need be; else as ``decode_array``."""
    found = _EVENTS.match(text)
    first, last = found.span(1) if found else (0, 0)
    array = b"".join((b"[", memoryview(text)[first:last], b"]"))  # the only copy: texts are long
    try:
        return Batch(place, *decode_array(array, record), array)
    except MalformedError:
        array = repaired(array)
        return Batch(place, *decode_array(array, record), array)


def decode_one(text: bytes) -> LooseEvent | None:
    """One event, repaired if need be; None if it is not an object. Raises :class:`MalformedError` if nothing helps."""
    try:
        return _DECODE_ONE.decode(text)
    except msgspec.ValidationError:
        pass  # not an object, or a number out of range
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(repaired(text), strict=False, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise MalformedError(str(error)) from None
    if not isinstance(value, dict):
        return None
    fields = {name: value[name] for name in ("ph", "cat", "name", "pid", "tid", "id", "args") if name in value}
    times = {name: Raw(str(value[name]).encode()) for name in ("ts", "dur") if name in value}
    return LooseEvent(**fields, **times)


def repaired(text: bytes) -> bytes:
    """The text without what exporters are known to get wrong.

    Unescaped backslashes (Windows paths), control characters, half surrogate pairs, bytes that are not UTF-8, and NaN
    or infinity as numbers, which become null.
    """
    text = text.decode("utf-8", errors="replace").encode()
    text = _SURROGATE.sub(lambda match: match[0] if len(match[0]) > 6 else b"\\ufffd", text)
    text = _ESCAPE.sub(_escaped, text)
    text = _CONTROL.sub(lambda match: b"\\u%04x" % match[0][0], text)
    return _NOT_FINITE.sub(rb"\1null", text)


def _escaped(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] else b"\\\\"
