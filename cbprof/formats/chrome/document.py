"""The events of a file of our own, one after the other: of its text, only a piece is in memory at any time.

A run that is killed leaves a file that ends in the middle of an event. Everything before that event is good, so all
events of a whole file are given, and of a cut one those before the cut.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cbprof.errors import DataError
from cbprof.formats.bytes.content import check_size
from cbprof.formats.bytes.stream import ByteStream
from cbprof.formats.chrome.syntax import DECODER, with_floats

MAX_VALUE = 1 << 24
"""Characters of one event, or of one fact about the run. A longer one counts as damage."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_BETWEEN_VALUES = re.compile(r"[ \t\r\n,:]*")


class Document:
    """What stands in a file, an outer object with a list ``traceEvents``, or that list alone.

    After the last event, ``fields`` are the other keys of the outer object, as far as whole values reach, and ``whole``
    is False where the file was cut or is damaged.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.path = stream.path
        self.whole = True
        self.fields: dict[str, Any] = {}
        self._stream = stream
        self._text = _Text(stream)
        self._has_list = False
        self._has_events = False

    def events(self) -> Iterator[Any]:
        """Whatever stands in the list, unchecked; to be asked for once.

        Raises :class:`DataError` where the file is empty, not JSON, JSON without events, or cut before its first event,
        and RecursionError where it is nested deeper than Python goes.
        """
        path, broken = self.path, ""
        try:
            yield from self._outer()
        except ValueError as error:
            broken, self.whole = f" ({getattr(error, 'msg', error)})", False
        self.whole = self.whole and self._stream.whole
        if not self.whole and not self._has_events:
            raise DataError(f"{path}: cut off or damaged before its first whole event{broken}; record the trace again")
        if not self._has_list:
            raise DataError(
                f"{path}: JSON, but not a trace: it has no list `traceEvents`; "
                "record one with `cbprof run -o trace.json`"
            )
        self.fields = with_floats(self.fields)

    def _outer(self) -> Iterator[Any]:
        start = self._text.next()
        if not start and self._stream.whole:
            raise DataError(f"{self.path}: the file is empty; record a trace with `cbprof run -o {self.path}`")
        if start not in ("{", "[", ""):
            raise DataError(
                f"{self.path}: not a trace: it starts with {start!r}; give a .json or .json.gz that cbprof wrote"
            )
        if start == "[":
            yield from self._list()
        else:
            yield from self._object()
        self.whole = self.whole and not self._text.next()

    def _list(self) -> Iterator[Any]:
        """The elements of a list. Raises ValueError where it is cut."""
        text, self._has_list = self._text, True
        text.skip("[")
        self._check(not text.separator())
        while text.next() != "]":
            some = text.values()
            self._has_events = True
            yield from some
            separator = text.separator()
            self._check(separator == ("" if text.next() == "]" else ","))
        text.skip("]")

    def _object(self) -> Iterator[Any]:
        """The elements of its list ``traceEvents``; all else goes to ``fields``. Raises ValueError where it is cut."""
        text = self._text
        text.skip("{")
        self._check(not text.separator())
        while text.next() == '"':
            key = text.value()
            self._check(text.separator() == ":")
            if key == "traceEvents" and text.next() == "[":
                yield from self._list()
            else:
                value = text.value()
                if text.next() or isinstance(value, dict):  # a number at the end may be only half of it
                    self.fields[key] = value
            separator = text.separator()
            self._check(separator == ("" if text.next() == "}" else ","))
        text.skip("}")

    def _check(self, sound: bool) -> None:
        """Note damage, after which reading goes on."""
        self.whole = self.whole and sound


class _Text:
    """The text of a stream, of which only what is not taken yet is kept."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        # Bytes that are not UTF-8 can only spoil a name, so they do not cost the whole file.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._is_odd = False  # its values are to be taken one by one
        self._ended = False
        self._more()
        self._text = self._text.removeprefix("\ufeff")

    def next(self) -> str:
        """The next character that is no blank; nothing at the end. It is not taken."""
        self._pass(_BLANKS)
        return self._text[self._at : self._at + 1]

    def separator(self) -> str:
        """Take commas, colons and blanks; the first two that are no blanks."""
        return self._pass(_BETWEEN_VALUES)

    def skip(self, character: str) -> None:
        """Take the next character, which is to be this one. Raises ValueError where it is not."""
        if self.next() != character:
            raise ValueError(f"{character} is missing")
        self._at += 1

    def value(self) -> Any:
        """Take the next value. Raises ValueError where there is none, or not all of it."""
        self.next()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except ValueError:
                if self._ended or len(self._text) - self._at > MAX_VALUE:
                    raise
            else:
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            self._more()

    def values(self) -> list[Any]:
        """Take the next values: as many as there are, or one. Raises ValueError as :meth:`value` does."""
        self.next()
        for separator in () if self._is_odd else ("},", "],"):
            end = self._text.rfind(separator, self._at) + 1  # probably between two events
            with suppress(ValueError):
                if end:
                    some: list[Any] = DECODER.decode(f"[{self._text[self._at : end]}]")
                    self._at = end
                    return some
        self._is_odd = True
        return [self.value()]

    def _pass(self, characters: re.Pattern[str]) -> str:
        """Take what matches, however long it is; the first two of it that are no blanks."""
        passed = ""
        while match := characters.match(self._text, self._at):
            begin, self._at = self._at, match.end()
            passed = (passed + "".join(self._text[begin : self._at].split()))[:2]
            if self._at < len(self._text) or self._ended:
                break
            self._more()
        return passed

    def _more(self) -> None:
        """Twice as much text as is not taken yet, so that a long value is not tried too often."""
        pieces = [self._text[self._at :]]
        wanted = 2 * len(pieces[0])
        while not self._ended and sum(map(len, pieces)) <= wanted:
            piece = self._stream.read()
            check_size(self._stream)
            self._ended = not piece
            pieces.append(self._decoder.decode(piece, final=self._ended))
        self._text, self._at, self._is_odd = "".join(pieces), 0, False
