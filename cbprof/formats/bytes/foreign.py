"""Refuses files that are no trace but may hold or become one: says what the file is and which command helps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats.bytes.stream import GZIP_MAGIC

SQLITE_MAGIC = b"SQLite format 3\0"

_EXPORTABLE = (".nsys-rep", ".qdrep")
_NSYS_REPORTS = (*_EXPORTABLE, ".qdstrm")
_READABLE = (SQLITE_MAGIC, GZIP_MAGIC, b"{", b"[")

# How a file begins, what it is then, and how one gets to a trace.
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it with `unzip {path}`, and give the trace in it"),
    (b"PK\x05\x06", "an empty zip archive", "pack the trace again"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with `zstd -d {path}`"),
    (b"BZh", "packed with bzip2", "unpack it with `bunzip2 -k {path}`"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with `unxz -k {path}`"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "unpack it with `lz4 -d {path}`"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with `7z x {path}`"),
    (b"\xff\xfe", "text in UTF-16", "write it as UTF-8: `iconv -f UTF-16 -t UTF-8 {path}`"),
    (b"\xfe\xff", "text in UTF-16", "write it as UTF-8: `iconv -f UTF-16 -t UTF-8 {path}`"),
    (
        b"PAR1",
        "a Parquet table",
        "of an Nsight Systems report, export it with `nsys export --type sqlite REPORT.nsys-rep`",
    ),
    (b"%PDF", "a PDF", "give the trace that it shows"),
    (b"\x89PNG", "a picture", "give the trace that it shows"),
    (b"\x7fELF", "a program", "record it with `cbprof record -- COMMAND`"),
    (b"<", "HTML or XML", "give the trace itself, not the page about it"),
)
# The same inside gzip, which is opened once.
_PACKED = (
    (SQLITE_MAGIC, "an SQLite database", "unpack it with `gunzip -k {path}`"),
    (GZIP_MAGIC, "gzip", "unpack it once with `gunzip -k {path}`"),
)
# What has no magic number at its start.
_PATTERNS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"\x80[\x02-\x05]"),
        "a Python pickle, such as a memory snapshot of torch",
        "it says what held memory, not what ran: record a trace with torch.profiler",
    ),
    (
        re.compile(rb'\s*\{\s*"(segments|device_traces|allocator_settings|external_annotations)"\s*:'),
        "a memory snapshot of torch",
        "it says what held memory, not what ran: record a trace with torch.profiler",
    ),
    (
        re.compile(rb'\s*\[\s*\{\s*"(children|frame|metrics)"\s*:'),
        "a profile of Proton as a tree of sums, without times",
        'record one with `triton.profiler.start(NAME, data="trace")`',
    ),
    (
        re.compile(rb".{257}ustar", re.DOTALL),
        "a tar archive",
        "unpack it with `tar xf {path}`, and give the trace in it, or the folder",
    ),
    (
        re.compile(rb'\s*\{"(Type|CudaEvent|NvtxEvent|TraceProcessEvent|AnalysisDetails|data)"[^\n]*\}\s*\n\s*\{'),
        "an export of Nsight Systems as JSON lines",
        "export the report anew with `nsys export --type sqlite REPORT.nsys-rep`",
    ),
    (  # nothing but packets: field 1, a length below 64 KB, and a first field of a few
        re.compile(rb"\n([\x01-\x7f]|[\x80-\xff][\x01-\x7f]|[\x80-\xff]{2}[\x01-\x03])[\x08\x12\x1a\x22\x28-\x7a]"),
        "a Perfetto trace in protobuf",
        "convert it with Perfetto's own `traceconv json {path} trace.json`, or record it as JSON",
    ),
)


def can_be_exported(path: Path) -> bool:
    """Whether a file is a report that ``nsys export`` takes: by its name, and a content that is nothing else."""
    if path.suffix not in _EXPORTABLE:
        return False
    try:
        with path.open("rb") as file:
            return not file.read(len(SQLITE_MAGIC)).startswith(_READABLE)
    except OSError:  # whoever opens it will tell
        return False


def refuse_foreign(path: Path, head: bytes, *, packed: bool) -> None:
    """Refuse a file whose first bytes (``head``) are those of something known that is no trace. Raises DataError.

    ``packed``: the file is gzip, and ``head`` what is inside.
    """
    if path.suffix in _NSYS_REPORTS and not packed and not head.startswith(_READABLE):
        export = _how_to_export(path)
        raise DataError(f"{path}: a report of Nsight Systems, which only its own tools can open; run {export}")
    found = _what(head, packed=packed)
    if found is not None:
        what, advice = found
        where = f"{what} inside gzip" if packed else what
        raise DataError(f"{path}: {where}, not a trace; {advice.format(path=_typed(path))}")


def _what(head: bytes, *, packed: bool) -> tuple[str, str] | None:
    for beginning, what, advice in (*_BEGINNINGS, *(_PACKED if packed else ())):
        if head.startswith(beginning):
            return what, advice
    return next(((what, advice) for pattern, what, advice in _PATTERNS if pattern.match(head)), None)


def _how_to_export(path: Path) -> str:
    report = path.with_suffix(".nsys-rep") if path.suffix == ".qdstrm" else path
    export = f"`nsys export --type sqlite --output {_typed(path.with_suffix('.sqlite'))} {_typed(report)}`"
    return f"`QdstrmImporter -i {_typed(path)}`, then {export}" if path.suffix == ".qdstrm" else export


def _typed(path: Path) -> str:
    """A path as one types it in a shell."""
    return shlex.quote(str(path))
