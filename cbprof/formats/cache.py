"""The columns of another tool's large trace, kept in the user's cache folder, so that it is parsed only once.

::

    magic | crc32 of all that follows | length of the header | header (JSON) | the columns, one after the other

A cache holds for one content of its trace and one state of the code that reads traces. Its trace is known by the size
and the crc32 of every block, of the whole file, so that neither a time stamp nor a sample of bytes has to be trusted:
crc32 takes a fraction of a second a gigabyte. What is wrong with a cache is never an error: the trace is parsed again.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof import __version__
from cbprof.errors import CbprofError
from cbprof.files import whole_file
from cbprof.formats.bytes.stamp import stamp_of
from cbprof.meta import Meta
from cbprof.riders import RiderTable
from cbprof.trace import Lane, RequestTable, StepTable, Trace

WORTH_FROM = 20 << 20
"""Files of at least this many bytes are cached. Smaller ones are parsed in well under a second."""

OPT_OUT = "CBPROF_NO_CACHE"
"""With this environment variable set, to anything, caches are neither read nor written."""

SUFFIX = ".cbprof-cache"

MOST_BYTES = 8 << 30
"""What all caches together may take up; those that were written first go first."""

_MAGIC = b"cbprof cache 1\n"
_HEAD = struct.Struct("<IQ")  # crc32 of all that follows it, length of the header
_BLOCK = 32 << 20  # bytes that share a crc32
_PIECE = 1 << 20
_THREADS = 4

Columns = dict[str, npt.NDArray[Any]]


def through_cache(path: Path, read: Callable[[], Trace]) -> Trace:
    """The trace of the file ``path``: from the user's cache, or else as ``read`` reads it, which is then cached."""
    stamp = stamp_of(path)
    folder = cache_folder() if stamp is not None and stamp.size >= WORTH_FROM and OPT_OUT not in os.environ else None
    if folder is None:
        return read()
    cache_file = cache_of(path, folder)
    trace = _load(cache_file, path)
    if trace is not None:
        return trace
    trace = read()
    if _can_be_kept(trace):
        with suppress(OSError, CbprofError):  # a full disk
            content = _content(path)
            if stamp == stamp_of(path):  # else someone wrote to it in the meantime
                _save(cache_file, trace, content)
                _make_room(folder)
    return trace


def cache_folder() -> Path | None:
    """The folder of caches, made if need be; None where there can be none, or where others may write to it.

    ``$XDG_CACHE_HOME/cbprof`` or ``~/.cache/cbprof``: whoever could write a cache could give it any figures, so a cache
    is believed only from a folder that is the user's alone.
    """
    try:
        above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(above) / "cbprof"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
    except (OSError, RuntimeError):  # no home
        return None
    private = S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


def cache_of(path: Path, folder: Path) -> Path:
    """The cache of the file ``path``: by its full name, so that files of one name in other folders have their own."""
    return folder / f"{sha256(os.fsencode(path.resolve())).hexdigest()[:32]}{SUFFIX}"


def _make_room(folder: Path) -> None:
    """Remove the caches that were written first, until the others fit."""
    caches = sorted(((each.stat(), each) for each in folder.glob(f"*{SUFFIX}")), key=lambda pair: -pair[0].st_mtime_ns)
    kept = 0
    for state, each in caches:
        kept += state.st_size
        if kept > MOST_BYTES and kept > state.st_size:  # the last one stays, however large
            each.unlink()


def _content(path: Path) -> dict[str, Any]:
    """A fingerprint of a file's content: its size, and the crc32 of each block."""
    with path.open("rb") as file, ThreadPoolExecutor(_THREADS) as pool:  # zlib lets go of the GIL
        size = os.fstat(file.fileno()).st_size

        def crc_of_block(begin: int) -> int:
            crc = 0
            for offset in range(begin, min(begin + _BLOCK, size), _PIECE):
                crc = zlib.crc32(os.pread(file.fileno(), min(_PIECE, size - offset), offset), crc)
            return crc

        return {"size": size, "crc32": list(pool.map(crc_of_block, range(0, size, _BLOCK)))}


@cache
def _readers() -> str:
    """A fingerprint of the code that reads traces: a cache that other code wrote is not used."""
    package = Path(__file__).parents[1]
    crc = 0
    for source in (
        package / "meta.py",
        package / "riders.py",
        package / "trace.py",
        *sorted(package.glob("formats/**/*.py")),
    ):
        crc = zlib.crc32(source.read_bytes(), crc)
    return f"{__version__} {crc:08x}"


def _load(cache_file: Path, path: Path) -> Trace | None:
    """The trace in a cache; None where there is no cache, it is damaged, or holds for something else."""
    try:
        with cache_file.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
            crc, length = _HEAD.unpack(file.read(_HEAD.size))
            rest = np.fromfile(file, dtype=np.uint8)
        if zlib.crc32(rest.data) != crc:
            return None
        header = json.loads(rest[:length].tobytes())
        if header["readers"] != _readers() or header["content"] != _content(path):
            return None
        return _unpack(header, rest[length:])
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def _can_be_kept(trace: Trace) -> bool:
    """Whether columns and JSON hold all that is known of a trace, exactly."""
    try:
        return not trace.extra and Meta.parse(json.loads(json.dumps(trace.meta.to_json()))) == trace.meta
    except (TypeError, ValueError, RecursionError):
        return False


def _save(cache_file: Path, trace: Trace, content: Mapping[str, Any]) -> None:
    """Write a cache whole, or not at all."""
    columns = dict(sorted(_columns(trace), key=lambda item: -item[1].itemsize))  # so that each is aligned
    header = json.dumps(
        {
            "readers": _readers(),
            "content": content,
            "names": trace.names,
            "lanes": [(lane.name, lane.device, lane.rank) for lane in trace.lanes],
            "columns": [(name, column.dtype.str, len(column)) for name, column in columns.items()],
            "meta": trace.meta.to_json(),
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    crc = zlib.crc32(header)
    for column in columns.values():
        crc = zlib.crc32(np.ascontiguousarray(column).data, crc)
    with whole_file(cache_file, "the cache") as file:
        file.write(_MAGIC + _HEAD.pack(crc, len(header)) + header)
        for column in columns.values():
            file.write(np.ascontiguousarray(column).data)


def _columns(trace: Trace) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for prefix, table in (
        ("", trace),
        ("steps.", trace.steps),
        ("requests.", trace.requests),
        ("riders.", trace.riders),
    ):
        for field in fields(table):
            if isinstance(column := getattr(table, field.name), np.ndarray):
                yield prefix + field.name, column


def _unpack(header: Mapping[str, Any], body: npt.NDArray[np.uint8]) -> Trace:
    columns, begin = {}, 0
    for name, dtype, length in header["columns"]:
        end = begin + np.dtype(dtype).itemsize * length
        columns[name] = body[begin:end].view(dtype)
        begin = end

    def table(prefix: str) -> Columns:
        return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}

    return Trace(
        **{name: column for name, column in columns.items() if "." not in name},
        names=tuple(header["names"]),
        lanes=tuple(Lane(*lane) for lane in header["lanes"]),
        steps=StepTable(**table("steps.")),
        requests=RequestTable(**table("requests.")),
        meta=Meta.parse(header["meta"]),
        riders=RiderTable(**table("riders.")),
    )
