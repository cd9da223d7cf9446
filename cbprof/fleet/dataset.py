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
and one that was rewritten is. Readers of Parquet leave out what begins with an underscore.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, get_args
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt

from cbprof import __version__
from cbprof.analysis.ranks.report import ExaminedFile
from cbprof.analysis.summary import Summary
from cbprof.errors import UsageError
from cbprof.fleet.files import TraceFile, filesystem
from cbprof.fleet.secrets import one_line, shown
from cbprof.fleet.tables import as_parquet, gaps_table, steps_table

SCHEMA = 2
"""Of the summaries; those of another schema or another version of cbprof are made anew."""

MARK = "_cbprof.json"
TABLES = ("steps", "gaps")
AT_ONCE = 256


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
            dataset._put(MARK, json.dumps({"schema": SCHEMA, "run": dataset.run}).encode())
        except UsageError:
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
        try:
            stored = _decode(self._get(_summary(content)))
        except (OSError, ValueError, msgspec.DecodeError):  # not there, or of another version
            return None
        return replace(stored, name=file.name, size=file.size) if stored else None

    def write(self, examined: ExaminedFile, summary: Summary | None) -> None:
        """Keep what was found in a file, with its steps and gaps."""
        assert examined.content is not None
        if summary is not None:
            for name, table in zip(TABLES, (steps_table, gaps_table), strict=True):
                self._put(_table(name, examined.content), as_parquet(table(examined, summary)))
        self._put(_summary(examined.content), _encode(examined))

    # What the run does with it ----------------------------------------------------------------------------------------

    def known(self, files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, ExaminedFile]]:
        """The files whose version was seen before, with what is known of their content."""
        content_of: dict[tuple[str, str], str] = {}
        for path in self._list("_seen"):
            with suppress(OSError, ValueError):
                content_of |= {
                    (name, version): content for name, version, content in json.loads(gzip.decompress(self._get(path)))
                }
        there = {path.rpartition("/")[2] for path in self._list("_summaries")}
        wanted = [
            (file, content)
            for file in files
            if file.version is not None and (content := content_of.get((file.name, file.version))) is not None
        ]
        wanted = [(file, content) for file, content in wanted if _summary(content).rpartition("/")[2] in there]
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            texts = self._get_all([_summary(content) for _, content in some])
            for file, content in some:
                stored = _decode(texts[_summary(content)]) if _summary(content) in texts else None
                if stored is not None:
                    yield file, replace(stored, name=file.name, size=file.size)

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
        target = f"{root}/{path}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        partial = f"{target}.{uuid4().hex}.part"
        try:
            with open(partial, "wb") as file:
                file.write(content)
            os.replace(partial, target)
        finally:
            with suppress(OSError):
                os.unlink(partial)

    def _list(self, folder: str) -> list[str]:
        fs, root = self._place
        fs.invalidate_cache()
        try:
            return [f"{folder}/{path.rpartition('/')[2]}" for path in fs.ls(f"{root}/{folder}", detail=False)]
        except FileNotFoundError:
            return []


@lru_cache(maxsize=8)
def _opened(url: str) -> tuple[Any, str]:
    return filesystem(url)


@lru_cache(maxsize=8)
def _is_visible(dataset: Dataset) -> bool:
    try:
        return bool(json.loads(dataset._get(MARK))["run"] == dataset.run)
    except (OSError, ValueError, KeyError):
        return False


def _summary(content: str) -> str:
    return f"_summaries/{content}.json.gz"


def _table(name: str, content: str) -> str:
    return f"{name}/{content}.parquet"


class _Stored(msgspec.Struct):
    schema: int
    cbprof: str
    file: ExaminedFile


def _encode(examined: ExaminedFile) -> bytes:
    stored = _Stored(SCHEMA, __version__, examined)
    return gzip.compress(msgspec.json.encode(stored, enc_hook=np.ndarray.tolist), compresslevel=3, mtime=0)


def _decode(content: bytes) -> ExaminedFile | None:
    """None where another version wrote it."""
    try:
        stored = msgspec.json.decode(gzip.decompress(content), type=_Stored, dec_hook=_array)
    except (OSError, EOFError, msgspec.DecodeError):
        return None
    return stored.file if (stored.schema, stored.cbprof) == (SCHEMA, __version__) else None


def _array(kind: Any, value: list[int]) -> npt.NDArray[np.integer[Any]]:
    """``kind`` is ``ndarray[shape, dtype[...]]``, as the columns of the dataclasses are declared."""
    (dtype,) = get_args(get_args(kind)[1])
    return np.array(value, dtype=dtype)
