"""Finds the events of a Chrome trace in a stream of bytes, a batch at a time, in files that are whole, cut or damaged.

A batch ends after the last event that is whole in the text so far. The text between two events (``}, {``) shows where
that is. This is a guess; it was right if the batch decodes, since brackets would not match otherwise. Only a batch that
does not decode is taken apart bracket by bracket: it holds the end of the array, or it is damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from cbprof.errors import DataError
from cbprof.formats.bytes.stream import ByteStream
from cbprof.formats.kineto.events import (
    ANY_VALUES,
    FLOAT_TIMES,
    AnyEvent,
    Batch,
    MalformedError,
    decode_batch,
    decode_one,
    repaired,
)

MAX_OUTSIDE = 1 << 26
"""How many bytes before the first event, or after the last, are searched for other fields."""

MAX_EVENT = 1 << 26
"""Bytes of one event; a longer one counts as damage."""

MAX_DEPTH = 1000
"""Of nested brackets; a deeper event cannot be decoded, and counts as damage."""

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIELD = re.compile(r'[\s,{]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_LONGEST_SEPARATOR = 256  # bytes that are looked back for something that began in the piece before
_LAST_END_WITHIN = 1 << 20

_BRACKET = re.compile(rb"[{}\[\]]")
# Everything up to a bracket that is not inside a string.
_NEXT_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+([{}\[\]])', re.DOTALL)
# Where the next event probably starts, after one that cannot be read.
_RESUME = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"\s*:)')


class BatchTaker(Protocol):
    """Whoever decodes batches elsewhere; see :class:`cbprof.formats.kineto.helper.Helper`."""

    def take(self, place: int, text: bytes, length: int, offset: int | None) -> bool:
        """Whether it takes the first ``length`` bytes of ``text``, which stand at ``offset`` in the file, if known."""


@dataclass(slots=True)
class EventStream:
    """The events of a file, and what stands around them.

    After the last batch ``fields`` holds the other keys of the outer object, ``whole`` is False where the file was cut
    or is damaged, and ``n_damaged`` counts the places where an event could not be read. ``record`` is the narrowest
    record that is tried. Batches that ``helper`` takes are not given out.
    """

    stream: ByteStream
    helper: BatchTaker | None = None
    record: int = FLOAT_TIMES
    fields: dict[str, Any] = field(default_factory=dict)
    whole: bool = True
    n_damaged: int = 0
    _in_object: bool = False
    _lost: bool = False  # in the middle of something that is no event

    def batches(self) -> Iterator[Batch]:
        """All events. Raises :class:`DataError` where the file holds no array of events."""
        text = self._find_events()
        ended, place = False, 0
        while not ended:
            piece = self.stream.read()
            text += piece
            cut = _last_end(text) if piece and not self._lost else 0
            if piece and not cut and not self._lost and len(text) < MAX_EVENT:
                continue
            place += 1
            offset = self.stream.n_read - len(text) if self.stream.is_plain else None
            if cut and self.helper and self.helper.take(place, text, cut, offset):
                text = text[cut:]
                continue
            try:
                if not cut:
                    raise MalformedError("it may end here")
                batch, text = decode_batch(place, memoryview(text)[:cut], self.record), text[cut:]
            except MalformedError:
                batch, text, ended = self._take_apart(place, text, last=not piece)
            if batch.events:
                yield batch
        self._read_tail(text)

    def _take_apart(self, place: int, text: bytes, *, last: bool) -> tuple[Batch, bytes, bool]:
        """The events that end in ``text``, what is left of it, and whether the array ends before that."""
        events: list[AnyEvent] = []
        at, ended, next_event = 0, False, _NextEvent(text)
        if self._lost:
            at = self._go_on(next_event.after(0), text)
        while not self._lost:
            bracket = _BRACKET.search(text, at)
            if bracket is None or bracket[0] == b"]":
                at, ended = (len(text), False) if bracket is None else (bracket.end(), True)
                break
            start, at = bracket.start(), bracket.end()
            if bracket[0] == b"}":  # of an event whose beginning is missing
                self._note_damage()
                continue
            end = None
            try:
                end = _closing(text, start)
                event = None if end is None else decode_one(text[start:end])
            except MalformedError:
                self._note_damage()
                again = next_event.after(start)
                at = self._go_on(end if again is None else again, text)
                continue
            if end is not None:
                at = end
                if event is not None and event.ph:  # else not an event, or what is left of a damaged one
                    events.append(event)
            elif last and next_event.after(start) is None:
                at = len(text)  # the file ends within this event
            elif last or len(text) - start > MAX_EVENT:
                self._note_damage()
                at = self._go_on(next_event.after(start), text)
            else:
                at = start
                break
        self.whole = self.whole and (ended or not last)
        return Batch(place, events, ANY_VALUES, b""), text[at:], ended or last

    def _note_damage(self) -> None:
        self.n_damaged += 1
        self.whole = False

    def _go_on(self, at: int | None, text: bytes) -> int:
        """Where to go on; lost, and near the end of the text, where that is not known."""
        self._lost = at is None
        return max(0, len(text) - _LONGEST_SEPARATOR) if at is None else at

    def _find_events(self) -> bytes:
        """The text after the bracket that opens the array of events; ``fields`` gets what stands before it."""
        path, head = self.stream.path, self.stream.read().removeprefix(_BOM).lstrip(_BLANKS)
        if head.startswith(b"["):
            return head[1:]
        if not head and self.stream.whole:
            raise DataError(f"{path}: the file is empty; record a trace with `cbprof run -o {path}`")
        if head and not head.startswith(b"{"):
            start = head[:1].decode("ascii", errors="replace")
            raise DataError(
                f"{path}: not a trace: it starts with {start!r}; give a .json or .json.gz of cbprof or a profiler"
            )
        self._in_object = True
        piece, searched, text = head, 0, bytearray(head)
        while (match := _EVENTS_KEY.search(text, searched)) is None and piece and len(text) < MAX_OUTSIDE:
            searched = max(0, len(text) - _LONGEST_SEPARATOR)
            piece = self.stream.read()
            text += piece
        head = bytes(text)
        if match is None:
            what = "cut off before its first whole event"
            if piece:  # so much was read that a trace would have begun
                what = f"not a trace: it has no list `traceEvents` in its first {len(head) >> 20} MiB"
            elif _object(head) is not None:
                what = "JSON, but not a trace: it has no list `traceEvents`"
            raise DataError(f"{path}: {what}; record one with a profiler, or with `cbprof run -o trace.json`")
        before = head[: match.start()]
        fields = _object(before + b'"":0}')
        self.whole = fields is not None
        self.fields = _salvaged(before) if fields is None else fields
        return head[match.end() :]

    def _read_tail(self, text: bytes) -> None:
        """Take the fields that stand after the events; of a long tail, those at its beginning."""
        tail, last = bytearray(text), text
        while piece := self.stream.read():
            tail += piece if len(tail) < MAX_OUTSIDE else b""
            last = piece
        self.whole = self.whole and self.stream.whole
        if not self._in_object:
            return
        fields = _object(b'{"":0' + tail) if len(tail) < MAX_OUTSIDE else None
        if fields is None:
            self.whole = self.whole and len(tail) >= MAX_OUTSIDE and last.rstrip(_BLANKS).endswith(b"}")
            fields = _salvaged(bytes(tail))
        self.fields |= fields


def _last_end(text: bytes) -> int:
    """Where the last event ends that another one follows, by the looks of it; 0 if there is none."""
    at = len(text)
    stop = max(0, at - _LAST_END_WITHIN)
    while (at := text.rfind(b"}", stop, at)) > 0:
        if _BETWEEN.match(text, at):
            return at + 1
    return 0


class _NextEvent:
    """Where the next event of a text probably starts. That there is none is found out only once."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._none_after = len(text)

    def after(self, at: int) -> int | None:
        found = _RESUME.search(self._text, at) if at < self._none_after else None
        if found is None:
            self._none_after = min(at, self._none_after)
            return None
        return found.end()


def _closing(text: bytes, at: int) -> int | None:
    """Where the bracket that opens at ``at`` is closed; None where the text ends before that.

    Raises :class:`MalformedError` where brackets are nested too deeply.
    """
    depth = 0
    while match := _NEXT_BRACKET.match(text, at):
        at = match.end()
        depth += 1 if match[1] in b"{[" else -1
        if depth <= 0:
            return at
        if depth > MAX_DEPTH:
            raise MalformedError("nested too deeply")
    return None


def _object(text: bytes) -> dict[str, Any] | None:
    """The keys of a JSON object, repaired if need be; None if it is not one."""
    for candidate in (text, repaired(text)):
        with suppress(ValueError, RecursionError):
            value = json.loads(candidate, strict=False)
            if isinstance(value, dict):
                value.pop("", None)
                return value
    return None


def _salvaged(text: bytes) -> dict[str, Any]:
    """The keys of a JSON object that was cut, or of a part of one, as far as whole values reach."""
    known: dict[str, Any] = {}
    decoder, string, at = json.JSONDecoder(strict=False), text.decode("utf-8", errors="replace"), 0
    with suppress(ValueError, RecursionError):
        while match := _FIELD.match(string, at):
            value, at = decoder.raw_decode(string, match.end())
            if at < len(string):  # a number at the end may be only half of it
                known[match[1]] = value
    return known
