"""The one entry for files of any kind: what a file is shows in its content, never in its name.

:data:`IMPORTERS` is the table of formats. A new one is a folder beside this file and a row there; folders of traces,
the commands, the fuzzer and the contract test (``tests/test_importers.py``) all go by the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats.bytes.foreign import SQLITE_MAGIC, refuse_foreign
from cbprof.formats.bytes.stamp import unchanged
from cbprof.formats.bytes.stream import ByteStream, Progress
from cbprof.formats.cache import through_cache
from cbprof.formats.chrome import read as chrome_read
from cbprof.formats.nsys import read as nsys
from cbprof.formats.nsys.report import export_of
from cbprof.formats.processes import merged, recording_in
from cbprof.formats.rocm import rocpd
from cbprof.formats.sampled import doubted, says_sampled
from cbprof.formats.steps.marks import with_steps
from cbprof.formats.steps.search import with_searched_steps
from cbprof.trace import Trace

# What only cbprof writes. A file of ours without any of it at its start is still found out, at its first event.
_OURS = re.compile(rb'"cbprof(?:_end)?"\s*:|"producer"\s*:\s*"cbprof |"cat"\s*:\s*"[cg]pu\.[a-z0-9]+"')

_ROCPROFV3 = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``alone``: no second process helps with a large file. ``progress``: is told how far the file is read."""

    alone: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Importer:
    """A format of files.

    ``suffixes``: how the names of such files end; in a folder of traces only these are looked at. ``recognises``: by
    the first bytes of the content, inflated where it is gzip. ``load`` raises DataError, in one line, where the file
    cannot be read.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    load: Callable[[Path, ReadOptions], Trace]


def _load_kineto(path: Path, options: ReadOptions) -> Trace:
    from cbprof.formats.kineto import read as kineto  # needs msgspec, which recording a run does not

    try:
        return _with_any_steps(kineto.load(path, alone=options.alone, progress=options.progress))
    except kineto.NativeTraceError:
        return _load_native(path, options)


def _load_native(path: Path, _: ReadOptions) -> Trace:
    return chrome_read.load(path)


def _load_nsys(path: Path, _: ReadOptions) -> Trace:
    return _with_any_steps(nsys.load(path))


def _load_rocpd(path: Path, _: ReadOptions) -> Trace:
    return _with_any_steps(rocpd.load(path))


def _load_rocprofv3(path: Path, _: ReadOptions) -> Trace:
    from cbprof.formats.rocm import rocprofv3  # needs msgspec, too

    return _with_any_steps(rocprofv3.load(path))


def _is_export(head: bytes) -> bool:
    return head.startswith(SQLITE_MAGIC) and not rocpd.is_rocpd(head)


def _with_any_steps(trace: Trace) -> Trace:
    """A profiler's trace with its steps, by annotations or searched for."""
    return with_searched_steps(with_steps(trace))


IMPORTERS = (
    Importer("rocpd", (".db", ".rocpd"), rocpd.is_rocpd, _load_rocpd),
    Importer("Nsight Systems", (".sqlite",), _is_export, _load_nsys),
    Importer("rocprofv3", (".json", ".json.gz"), lambda head: _ROCPROFV3.match(head) is not None, _load_rocprofv3),
    Importer("cbprof", (".json", ".json.gz"), lambda head: _OURS.search(head) is not None, _load_native),
    Importer("Chrome trace, such as torch.profiler's", (".json", ".json.gz"), lambda _: True, _load_kineto),
)
"""The formats, in the order in which they are asked. The last takes whatever the others do not."""

SUFFIXES = tuple(sorted({suffix for importer in IMPORTERS for suffix in importer.suffixes}))
"""How the name of a file in a folder must end to be taken for a trace."""


def load(path: str | Path, *, alone: bool = False, cached: bool = True, progress: Progress | None = None) -> Trace:
    """Read a trace file of any format in :data:`IMPORTERS`, or a folder that holds the files of the processes of one
    recording, and nothing else, as one trace.

    Gzip or not, whole, cut, or still being written (``.part``). Raises :class:`DataError`, in one line, where it is
    missing, unreadable, not a trace that can be read, larger than memory, or changed while it is read.

    ``alone``: no second process helps with a large file; for callers that keep all cores busy themselves. ``cached``:
    keep the columns of another tool's large trace in a file of the user's cache folder, and read them from there next
    time. ``progress``: told how far a Chrome trace is read, now and then.
    """
    path = Path(path)
    if _is_pipe(path):
        raise DataError(f"{path}: is a pipe, and a trace is read more than once; write it to a file first")
    options = ReadOptions(alone, progress)
    try:
        if (recording := recording_in(path)) is not None:
            return merged([_load(part, options) for part in recording.parts])
        read = partial(_load, path, options)
        return through_cache(path, read) if cached else read()
    except MemoryError:
        raise DataError(
            f"{path}: reading it takes more memory than there is; read it where there is more, or record fewer steps"
        ) from None


def importer_of(path: Path) -> Importer:
    """The format of a file. Raises DataError where it cannot be opened, or is something known that is no trace."""
    with ByteStream(path) as stream:
        head = stream.peek()
    refuse_foreign(path, head, packed=not stream.is_plain)
    return next(each for each in IMPORTERS if each.recognises(head))


def _load(path: Path, options: ReadOptions) -> Trace:
    content = export_of(path) or path
    with unchanged(content):
        trace = importer_of(content).load(content, options)
    return doubted(trace) if trace.is_profile and says_sampled(path.name, trace.meta.extra) else trace


def _is_pipe(path: Path) -> bool:
    try:
        return path.is_fifo()
    except OSError:  # the name is too long, say: whoever opens it will tell
        return False
