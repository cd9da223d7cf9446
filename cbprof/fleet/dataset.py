"""The tables that ``--out`` keeps, and what makes a second run do no work.

::

    fleet.parquet/
        ranks/ranks.parquet          one row a device, and one a file that could not be read
        steps/CONTENT.parquet        one row a step; written by the worker that read the file
        gaps/CONTENT.parquet         one row a gap
        _summaries/CONTENT.json.gz   what the report is made of; written last, so that the tables are there if it is
        _seen/RUN.json.gz            which version of which file has which content
        _cbprof.json                 marks the folder as ours

CONTENT is the fingerprint of a file's bytes: a file that was copied, renamed or uploaded again is not analysed again,
and one that was rewritten is. Readers of Parquet leave out what begins with an underscore. What is damaged is made
anew: a summary tells the crc32 of its tables, which is looked at where they lie on a disk; stores look after their own.
Only files of these names are removed, and no link is followed. Whoever may write here could give a file any figures:
what lies in a folder of somebody else, or one that every user of the machine may write to, is not believed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, get_args
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt

from cbprof import __version__
from cbprof.analysis.ranks.report import ExaminedFile
from cbprof.analysis.summary import Summary
from cbprof.errors import CbprofError, UsageError
from cbprof.files import cannot_write, write_whole
from cbprof.fleet.files import TraceFile, filesystem
from cbprof.fleet.secrets import one_line, shown
from cbprof.fleet.tables import as_parquet, gaps_table, steps_table

SCHEMA = 5
"""Of the summaries; those of another schema or another version of cbprof are made anew."""

MARK = "_cbprof.json"
TABLES = ("steps", "gaps")
AT_ONCE = 256
MOST_BYTES = 256 << 20
"""Of a summary, or of the versions seen, inflated."""

# What we write, and so may remove. Whatever else lies in the folder is somebody else's.
_OURS = {
    "_summaries": re.compile(r"[0-9a-f]{40}\.json\.gz"),
    "_seen": re.compile(r"[0-9a-f]{32}-(all|[0-9]+)\.json\.gz"),
    **dict.fromkeys(TABLES, re.compile(r"[0-9a-f]{40}\.parquet")),
}
_DAMAGE = (OSError, EOFError, ValueError, TypeError, OverflowError, RecursionError, zlib.error, msgspec.DecodeError)
"""What comes of reading a file that is damaged, or not there. It is done anew."""


@dataclass(frozen=True)
class Dataset:
    """A dataset at ``url``, a folder or a place that fsspec knows; ``run`` tells one use of it from another.

    It is sent to the workers, which open it themselves.
    """

    url: str
    run: str

    @classmethod
    def begin(cls, out: str) -> Dataset:
        """Take the place, or go on with what is there. Raises :class:`UsageError` where something else is there."""
        url = out if "://" in out else os.path.abspath(out)
        dataset = cls(url.rstrip("/"), uuid4().hex)
        fs, root = dataset._place
        try:
            ours = fs.exists(f"{root}/{MARK}") or not fs.exists(root) or (fs.isdir(root) and not fs.ls(root))
            if not ours:
                raise UsageError(f"{shown(out)}: is there, and is no dataset of cbprof; choose another --out")
            dataset._check_no_links()
            dataset._put(MARK, json.dumps({"schema": SCHEMA, "run": dataset.run}).encode())
        except CbprofError:
            raise
        except Exception as error:  # every store has errors of its own
            raise UsageError(f"{shown(out)}: cannot be written: {one_line(error, url)}") from None
        return dataset

    @property
    def _place(self) -> tuple[Any, str]:
        return _opened(self.url)

    def check_visible(self) -> None:
        """Raise :class:`UsageError` where this process sees another place than the one that began the run."""
        if not _is_visible(self):
            raise UsageError(
                f"{shown(self.url)}: a worker does not see this place; give --out a folder that all machines share, "
                "or an s3:// or gs:// URL"
            )

    # What a worker writes and reads -----------------------------------------------------------------------------------

    def read(self, file: TraceFile, content: str) -> ExaminedFile | None:
        """What is known of this content, as of ``file``."""
        if not self._is_believed():
            return None
        try:
            stored = _decode(self._get(_summary(content)), content)
            fs, root = self._place
            names = TABLES[: len(stored.tables)]
            sizes = {_table(name, content): fs.info(f"{root}/{_table(name, content)}")["size"] for name in names}
            whole = self._are_whole(stored, sizes)
        except _DAMAGE:
            return None
        return replace(stored.file, name=file.name, size=file.size) if whole else None

    def write(self, examined: ExaminedFile, summary: Summary | None) -> None:
        """Keep what was found in a file, with its steps and gaps."""
        assert examined.content is not None
        tables = []
        if summary is not None:
            for name, table in zip(TABLES, (steps_table, gaps_table), strict=True):
                content = as_parquet(table(examined, summary))
                self._put(_table(name, examined.content), content)
                tables.append((len(content), zlib.crc32(content)))
        self._put(_summary(examined.content), _encode(examined, tables))

    # What the run does with it ----------------------------------------------------------------------------------------

    def known(self, files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, ExaminedFile]]:
        """The files whose version was seen before, with what is known of their content."""
        if not self._is_believed():
            return
        content_of: dict[tuple[str, str], str] = {}
        for path in self._list("_seen"):
            with suppress(*_DAMAGE):
                content_of |= {
                    (name, version): content
                    for name, version, content in msgspec.json.decode(_inflated(self._get(path)), type=_SEEN)
                }
        summaries = self._list("_summaries")
        sizes = {path: size for folder in TABLES for path, size in self._list(folder).items()}
        wanted = [
            (file, content)
            for file in files
            if file.version is not None
            and (content := content_of.get((file.name, file.version))) is not None
            and _summary(content) in summaries
        ]
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            texts = self._get_all([_summary(content) for _, content in some])
            for file, content in some:
                with suppress(*_DAMAGE):
                    stored = _decode(texts.get(_summary(content), b""), content)
                    if self._are_whole(stored, sizes):
                        yield file, replace(stored.file, name=file.name, size=file.size)

    def remember(self, seen: Iterable[tuple[TraceFile, ExaminedFile]], part: str) -> None:
        """Note the content of these versions, so that they need not even be read again."""
        rows = [
            (file.name, file.version, examined.content)
            for file, examined in seen
            if file.version is not None and examined.content is not None
        ]
        self._put(f"_seen/{self.run}-{part}.json.gz", gzip.compress(json.dumps(rows).encode(), mtime=0))

    def finish(self, seen: Sequence[tuple[TraceFile, ExaminedFile]], ranks: bytes) -> None:
        """Write the ranks, and remove what belongs to no file of this run."""
        self._put("ranks/ranks.parquet", ranks)
        self.remember(seen, "all")
        mine = {examined.content for _, examined in seen}
        old = [
            path
            for folder in ("_summaries", *TABLES)
            for path in self._list(folder)
            if path.rpartition("/")[2].partition(".")[0] not in mine
        ]
        old += [path for path in self._list("_seen") if not path.endswith(f"/{self.run}-all.json.gz")]
        if old:
            fs, root = self._place
            fs.rm([f"{root}/{path}" for path in old])

    def _are_whole(self, stored: _Stored, sizes: Mapping[str, int]) -> bool:
        """Whether the tables of a summary are as they were written. Raises OSError where one cannot be read."""
        paths = [_table(name, str(stored.file.content)) for name in TABLES[: len(stored.tables)]]
        if [sizes.get(path) for path in paths] != [size for size, _ in stored.tables]:
            return False
        return "://" in self.url or [zlib.crc32(self._get(path)) for path in paths] == [crc for _, crc in stored.tables]

    # Places -----------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> bytes:
        fs, root = self._place
        content: bytes = fs.cat_file(f"{root}/{path}")
        return content

    def _get_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        fs, root = self._place
        found = fs.cat([f"{root}/{path}" for path in paths], on_error="omit")
        return {path: found[f"{root}/{path}"] for path in paths if f"{root}/{path}" in found}

    def _put(self, path: str, content: bytes) -> None:
        """Whole or not at all."""
        fs, root = self._place
        if "://" in self.url:
            fs.pipe_file(f"{root}/{path}", content)
            return
        target = Path(f"{root}/{path}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target, "the dataset", error) from error
        write_whole(target, content, "the dataset")

    def _list(self, folder: str) -> dict[str, int]:
        """The size of each file in ``folder`` whose name is one of ours."""
        fs, root = self._place
        fs.invalidate_cache()
        try:
            inside = fs.ls(f"{root}/{folder}", detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {each["name"].rpartition("/")[2]: each for each in inside if each["type"] == "file"}
        return {
            f"{folder}/{name}": each["size"]
            for name, each in found.items()
            if _OURS[folder].fullmatch(name) and not each.get("islink")
        }

    def _check_no_links(self) -> None:
        """Raise :class:`UsageError` where one of our folders is a link, or no folder."""
        _, root = self._place
        for folder in ("ranks", *_OURS) if "://" not in self.url else ():
            place = os.path.join(root, folder)
            if os.path.islink(place) or (os.path.exists(place) and not os.path.isdir(place)):
                raise UsageError(f"{place}: is not a folder of the dataset; remove it, or choose another --out")

    def _is_believed(self) -> bool:
        """Whether only this user, and those to whom it gave its place, can have written what is there."""
        return "://" in self.url or _is_ours(self.url)


@lru_cache(maxsize=8)
def _opened(url: str) -> tuple[Any, str]:
    return filesystem(url)


@lru_cache(maxsize=8)
def _is_visible(dataset: Dataset) -> bool:
    try:
        return bool(json.loads(dataset._get(MARK))["run"] == dataset.run)
    except (OSError, ValueError, KeyError):
        return False


def _is_ours(folder: str) -> bool:
    places = [folder, *(os.path.join(folder, each) for each in ("_seen", "_summaries"))]
    with suppress(FileNotFoundError):  # the folders of a run that has only begun
        for place in places:
            state = os.lstat(place)
            if state.st_uid not in {0, os.geteuid()} or state.st_mode & stat.S_IWOTH:
                return False
    return True


def _summary(content: str) -> str:
    return f"_summaries/{content}.json.gz"


def _table(name: str, content: str) -> str:
    return f"{name}/{content}.parquet"


class _Stored(msgspec.Struct):
    """``tables``: the size in bytes and the crc32 of each; empty where there are none."""

    schema: int
    cbprof: str
    tables: list[tuple[int, int]]
    file: ExaminedFile


_SEEN = list[tuple[str, str, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]]]


def _encode(examined: ExaminedFile, tables: list[tuple[int, int]]) -> bytes:
    stored = _Stored(SCHEMA, __version__, tables, examined)
    return gzip.compress(msgspec.json.encode(stored, enc_hook=np.ndarray.tolist), compresslevel=3, mtime=0)


def _decode(content: bytes, fingerprint: str) -> _Stored:
    """Raises one of :data:`_DAMAGE` where it is not what this version wrote of the file with that fingerprint."""
    stored = msgspec.json.decode(_inflated(content), type=_Stored, dec_hook=_array)
    if (stored.schema, stored.cbprof, stored.file.content) != (SCHEMA, __version__, fingerprint):
        raise ValueError("of another version, or of another file")
    for rank in stored.file.ranks:
        rank.check()
    return stored


def _inflated(content: bytes) -> bytes:
    """Raises :class:`ValueError` where it is cut, or more than :data:`MOST_BYTES`."""
    inflate = zlib.decompressobj(wbits=31)  # gzip, with its checksum
    text = inflate.decompress(content, MOST_BYTES)
    if not inflate.eof:
        raise ValueError("cut, or too large")
    return text


def _array(kind: Any, value: list[int]) -> npt.NDArray[np.integer[Any]]:
    """``kind`` is ``ndarray[shape, dtype[...]]``, as the columns of the dataclasses are declared."""
    (dtype,) = get_args(get_args(kind)[1])
    return np.array(value, dtype=dtype)
