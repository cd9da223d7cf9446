"""The one entry for files of any kind: what a file is shows in its content, never in its name."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats.bytes.content import read_content
from cbprof.formats.bytes.stream import ByteStream, Progress
from cbprof.formats.cache import through_cache
from cbprof.formats.chrome import read as chrome_read
from cbprof.formats.chrome import syntax as chrome_json
from cbprof.formats.nsys import read as nsys
from cbprof.formats.nsys.database import SQLITE_MAGIC
from cbprof.formats.steps.marks import with_steps
from cbprof.formats.steps.search import with_searched_steps
from cbprof.trace import Trace

# What only cbprof writes. A file of ours without any of it at its start is still found out, at its first event.
_OURS = re.compile(rb'"cbprof(?:_end)?"\s*:|"producer"\s*:\s*"cbprof |"cat"\s*:\s*"[cg]pu\.[a-z0-9]+"')


def load(path: str | Path, *, alone: bool = False, cached: bool = True, progress: Progress | None = None) -> Trace:
    """Read a trace file of cbprof, torch.profiler (Kineto) or Nsight Systems, or another tool's Chrome trace.

    Gzip or not, whole, cut, or still being written (``.part``). Raises :class:`DataError`, in one line, where it is
    missing, unreadable, or not a trace that can be read. ``alone``: no second process helps with a large file; for
    callers that keep all cores busy themselves. ``cached``: keep the columns of another tool's large trace in a file
    beside it, and read them from there next time. ``progress``: told how far a Chrome trace is read, now and then.
    """
    path = Path(path)
    if _is_pipe(path):
        raise DataError(f"{path}: is a pipe, and a trace is read more than once; write it to a file first")
    read = partial(_load, path, alone=alone, progress=progress)
    return through_cache(path, read) if cached else read()


def _is_pipe(path: Path) -> bool:
    try:
        return path.is_fifo()
    except OSError:  # the name is too long, say: whoever opens it will tell
        return False


def _load(path: Path, *, alone: bool, progress: Progress | None) -> Trace:
    if nsys.recognises(path):
        return with_searched_steps(with_steps(nsys.load(path)))
    with ByteStream(path) as stream:
        head = stream.peek()
        if head.startswith(SQLITE_MAGIC):
            raise DataError(f"{path}: an SQLite database inside gzip; unpack it with `gunzip` first")
    if not _OURS.search(head):
        from cbprof.formats.kineto import read as kineto  # needs msgspec, which recording a run does not

        try:
            return with_searched_steps(with_steps(kineto.load(path, alone=alone, progress=progress)))
        except kineto.NativeTraceError:
            pass
    return _load_native(path)


def _load_native(path: Path) -> Trace:
    try:
        document = chrome_json.parse(read_content(path), path)
        return chrome_read.to_trace(document, path)
    except RecursionError:
        raise DataError(f"{path}: not a trace: its JSON is nested too deeply") from None
