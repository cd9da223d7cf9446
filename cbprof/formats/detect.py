"""The one entry for files of any kind: what a file is shows in its content, never in its name."""

from __future__ import annotations

from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats import chrome_json, chrome_read
from cbprof.formats.chrome_json import ChromeDocument
from cbprof.formats.content import read_content
from cbprof.trace import Trace

_SQLITE_MAGIC = b"SQLite format 3\0"
_KINETO_KEYS = ("schemaVersion", "deviceProperties", "baseTimeNanoseconds")
_READABLE = "this version reads only cbprof's own traces; record one with `cbprof run -o trace.json`"


def load(path: str | Path) -> Trace:
    """Read a trace file, gzip or not, whole, cut, or still being written (``.part``).

    Raises :class:`DataError`, in one line, where it is missing, unreadable, or not a trace that can be read.
    """
    path = Path(path)
    content = read_content(path)
    if content.data.startswith(_SQLITE_MAGIC):
        raise DataError(f"{path}: an SQLite database, perhaps of Nsight Systems; {_READABLE}")
    try:
        document = chrome_json.parse(content, path)
        if chrome_read.is_native(document):
            return chrome_read.to_trace(document, path)
    except RecursionError:
        raise DataError(f"{path}: not a trace: its JSON is nested too deeply") from None
    raise DataError(f"{path}: {_describe(document)}; {_READABLE}")


def _describe(document: ChromeDocument) -> str:
    if any(key in document.fields for key in _KINETO_KEYS):
        return "a trace of the PyTorch profiler"
    if any(isinstance(event, dict) and "ph" in event for event in document.events):
        return "a Chrome trace of another tool"
    return "JSON, but not a trace: none of its events has a phase (`ph`)"
