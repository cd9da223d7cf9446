"""Which files are meant: by their names, folders, patterns, on disk or behind a URL that fsspec knows."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from cbprof.errors import CbprofError, DataError, UsageError
from cbprof.fleet.secrets import one_line, shown
from cbprof.formats.importers import SUFFIXES

DATASET = ".parquet"
"""A folder of this ending holds tables, not traces."""

_MERGED = re.compile(r"(?P<folder>(?:.*[/\\])?)merged-(?P<profile>[^/\\]+)\.trace\.json(?:\.gz)?", re.DOTALL)
"""SGLang's name for all ranks of a profile in one file; those of the ranks are ``PROFILE-TP-0.trace.json.gz``."""

# What stores call the version of an object; the first that there is counts. Without any, its content is read again.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "LastModified", "last_modified")


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Where a file is. ``url`` opens it, and may hold a signature; ``name`` is what is shown and stored.

    ``version`` changes when the file does; None where its place does not say. ``reason``: why it cannot be read, where
    that shows without opening it.
    """

    name: str
    url: str = field(repr=False)
    size: int
    version: str | None
    reason: str | None = None
    identity: Hashable = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        return "://" not in self.url


def find_files(paths: Sequence[str]) -> list[TraceFile]:
    """The files that are named, that match, or that lie in the folders (at any depth), each once, by whatever names.

    What is there and can be no trace, such as a FIFO, a device, a link to nothing, or a subfolder that cannot be
    read, has a ``reason``.

    Raises :class:`DataError` where there is nothing, :class:`UsageError` where a kind of URL needs another package.
    """
    found: dict[Hashable, TraceFile] = {}
    for path in paths:
        new = list(_local(path) if "://" not in path else _remote(path))
        if not new:
            raise DataError(f"{shown(path)}: {_why_nothing(path)}")
        for file in new:
            found.setdefault(file.url if file.identity is None else file.identity, file)
    return list(found.values())


def _why_nothing(path: str) -> str:
    """Why a folder holds no traces, and what to do."""
    tables = list(Path(path).glob("*.parquet")) if "://" not in path and os.path.isdir(path) else []
    if any(table.stem.startswith(("CUPTI_", "NVTX_", "StringIds")) for table in tables):
        export = "`nsys export --type sqlite REPORT.nsys-rep`"
        return f"an export of Nsight Systems as Parquet tables; export the report anew with {export}"
    ends = ", ".join(SUFFIXES)
    return f"holds no file that ends in {ends}; name the files, or use a pattern"


def _local(path: str) -> Iterator[TraceFile]:
    if os.path.isdir(path):
        return iter(_inside(path))
    if has_magic(path) and not os.path.exists(path):
        found = map(_looked_at, sorted(name for name in glob(path, recursive=True) if not os.path.isdir(name)))
        return iter([*found, *_passed_over(path)])
    try:
        os.lstat(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the name") from None
    return iter([_looked_at(path)])


def _passed_over(pattern: str) -> list[TraceFile]:
    """The folders that a pattern leads into and that cannot be read, of which ``glob`` says nothing."""
    parts, unread = pattern.split(os.sep), dict[str, OSError]()
    for number, part in enumerate(parts):
        above = os.sep.join(parts[:number])
        if not has_magic(os.path.join(above, part)):
            continue
        for folder in glob(os.path.join(above, ""), recursive=True) if number else ["."]:
            try:
                os.listdir(folder) if has_magic(part) else os.lstat(os.path.join(folder, part))
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                unread.setdefault(os.path.normpath(folder), error)
    return [_unread(folder, error) for folder, error in unread.items() if not _of_dataset(folder)]


def _unread(folder: str, error: OSError) -> TraceFile:
    reason = f"a folder that cannot be read: {error.strerror}"
    return TraceFile(folder, str(Path(folder).absolute()), 0, None, reason)


def _inside(path: str) -> list[TraceFile]:
    """The traces in a folder, at any depth, by name; a folder in it that cannot be read is there with its reason."""
    unread: list[OSError] = []
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path, onerror=unread.append) for name in names]
    found = [
        _looked_at(name) for name in _once(sorted(name for name in inside if _is_trace(os.path.relpath(name, path))))
    ]
    for error in unread:
        if error.filename == path:
            raise DataError(f"{path}: cannot be read: {error.strerror}; name the files, or use a pattern")
        if not _of_dataset(os.path.relpath(error.filename, path)):
            found.append(_unread(error.filename, error))
    return sorted(found, key=lambda file: file.name)


def _looked_at(name: str) -> TraceFile:
    """The file of a name that is there."""
    url = str(Path(name).absolute())
    try:
        status = os.stat(name)
    except OSError as error:
        to_nothing = isinstance(error, FileNotFoundError)
        why = (
            f"a link to {os.readlink(name)}, which is not there" if to_nothing else f"cannot be read: {error.strerror}"
        )
        return TraceFile(name, url, 0, None, why)
    identity = status.st_dev, status.st_ino
    if not stat.S_ISREG(status.st_mode):
        return TraceFile(name, url, 0, None, f"{_kind(status.st_mode)}, not a file", identity)
    return TraceFile(name, url, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}", None, identity)


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device"


def _is_trace(path: str) -> bool:
    """By its name; ``path`` is relative to the folder that was named."""
    folder, name = os.path.split(path)
    return name.endswith(SUFFIXES) and not _of_dataset(folder)


def _of_dataset(folder: str) -> bool:
    """Whether a folder, relative to the one that was named, is one of tables, or lies in one."""
    return any(each.endswith(DATASET) for each in folder.split(os.sep))


def _once(paths: Sequence[str]) -> list[str]:
    """Without the file in which SGLang merged the ranks that lie beside it: they would count twice."""
    merged = {path: match for path in paths if (match := _MERGED.fullmatch(path))}
    ranks = {path: f"{match['folder']}{match['profile']}-" for path, match in merged.items()}
    return [path for path in paths if path not in ranks or not any(each.startswith(ranks[path]) for each in paths)]


def _remote(url: str) -> Iterator[TraceFile]:
    fs, path = filesystem(url)
    try:
        for key, info in _listed(fs, path).items():
            if info["type"] == "file":
                there = fs.unstrip_protocol(key)
                yield TraceFile(shown(there), there, info.get("size") or 0, _version(info))
    except CbprofError:
        raise
    except FileNotFoundError:
        raise DataError(f"{shown(url)}: no such file or folder; check the name") from None
    except Exception as error:  # every store has errors of its own
        raise DataError(f"{shown(url)}: cannot be listed: {one_line(error, url)}") from None


def _listed(fs: Any, path: str) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]]
    of_the_web = "http" in fs.protocol  # where a question mark begins a query, and only a listing is a folder
    if has_magic(path.partition("?")[0] if of_the_web else path):
        found = fs.glob(path, detail=True)
    elif path.endswith("/") or (not of_the_web and fs.isdir(path)):
        inside = fs.find(path, detail=True)
        kept = _once([key for key in sorted(inside) if _is_trace(key[len(path) :].lstrip("/"))])
        found = {key: inside[key] for key in kept}
    else:
        found = {path: fs.info(path)}
    return found


def _version(info: Mapping[str, Any]) -> str | None:
    told = next((info[key] for key in _VERSIONS if info.get(key)), None)
    return None if told is None else f"{told}-{info.get('size')}"


def filesystem(url: str) -> tuple[Any, str]:
    """What opens a URL, and the path in it. Raises :class:`UsageError` where a package for it is missing."""
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        kind = url.partition("://")[0]
        raise UsageError(f"{shown(url)}: {kind}:// needs another package: {one_line(error, url)}") from None
    except ValueError as error:
        raise UsageError(f"{shown(url)}: {one_line(error, url)}") from None
    return fs, path
