"""A profiler's records in an SQLite database: opened read-only, read in pieces, never trusted.

Databases of different versions have different tables and columns, so everything is asked for by name and may be absent.
A damaged file can make SQLite walk in circles, and a hostile one can be built to: work and sizes are bounded by the
size of the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import numpy as np

from cbprof.errors import DataError
from cbprof.formats.columns import Index
from cbprof.formats.records.rows import ABSENT
from cbprof.trace import NONE, Int32, Int64

_ROWS_A_FETCH = 1 << 16
_IDS_A_QUERY = 500
_SCANNED_FROM = 10_000  # ids: a table without a key is searched from end to end for every query

# What reading may cost, in instructions of SQLite's virtual machine. A row takes about two a byte.
_STEPS_A_BYTE = 16
_STEPS_AT_LEAST = 20_000_000
_STEPS_A_CHECK = 100_000
_LONGEST_VALUE = 1 << 24  # in bytes
_TEXT_A_BYTE = 2  # of one column: a text of the file stands in one row. UTF-8 takes up to 1.5 times the room of UTF-16.


class Database:
    """The tables of a database. Close it, or use it in a ``with``.

    ``tables`` maps each table to its columns. ``again``: what to do about a damaged file. Every method raises
    :class:`DataError` in one line where the file turns out to be damaged.
    """

    def __init__(self, path: Path, *, again: str) -> None:
        self.path = path
        self._again = again
        self._text_left = 0  # bytes of text that the query at hand may still bring
        with self._telling_damage():
            self._check_size()
            # Immutable: no lock is taken and no file is made beside it, so a folder that cannot be written will do.
            uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True)
        try:
            self._bound_work()
            with self._telling_damage():
                self._bound_text()
                self.tables = self._read_tables()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def integers(self, table: str, columns: Sequence[str]) -> dict[str, Int64]:
        """These columns of a table, in the order of its rows. A column or value that is missing is ``ABSENT``."""
        present = [column for column in columns if column in self.tables.get(table, ())]
        chosen = ", ".join(_integer(column) for column in present)
        pieces = [np.empty((0, len(present)), dtype=np.int64)]
        if present:
            for rows in self._fetch([f"SELECT {chosen} FROM {_quoted(table)}"]):
                flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(rows) * len(present))
                pieces.append(flat.reshape(-1, len(present)))
        read = np.concatenate(pieces)
        missing = np.full(len(read), ABSENT, dtype=np.int64)
        return {name: read[:, present.index(name)] if name in present else missing for name in columns}

    def texts(self, table: str, column: str, names: Index[str]) -> Int32:
        """A column of text as codes of ``names``, which takes its values; -1 where there is none."""
        pieces = [np.empty(0, dtype=np.int32)]
        for rows in self._fetch([f"SELECT {_no_blob(column)} FROM {_quoted(table)}"]):
            is_text = np.fromiter((isinstance(text, str) for (text,) in rows), dtype=bool, count=len(rows))
            piece = np.full(len(rows), NONE, dtype=np.int32)
            piece[is_text] = names.codes(text for (text,) in rows if isinstance(text, str))
            pieces.append(piece)
        return np.concatenate(pieces)

    def strings(self, ids: Sequence[int], table: str = "StringIds", value: str = "value") -> dict[int, str]:
        """What these ids of a table of texts stand for. Unknown ids are left out."""
        found: dict[int, str] = {}
        if not {"id", value} <= self.tables.get(table, frozenset()):
            return found
        query = f"SELECT {_integer('id')}, {_no_blob(value)} FROM {_quoted(table)}"
        if len(ids) > _SCANNED_FROM:
            wanted = set(ids)
            for rows in self._fetch([query]):
                found.update((key, text) for key, text in rows if key in wanted and isinstance(text, str))
            return found
        pieces = (ids[first : first + _IDS_A_QUERY] for first in range(0, len(ids), _IDS_A_QUERY))
        for rows in self._fetch(f"{query} WHERE id IN ({', '.join(map(str, some))})" for some in pieces):
            found.update((key, text) for key, text in rows if isinstance(key, int) and isinstance(text, str))
        return found

    def pairs(self, table: str, key: str, value: str) -> list[tuple[object, object]]:
        """Two columns of a small table; nothing where one is missing."""
        if not {key, value} <= self.tables.get(table, frozenset()):
            return []
        query = f"SELECT {_no_blob(key)}, {_no_blob(value)} FROM {_quoted(table)}"
        return [(row[0], row[1]) for rows in self._fetch([query]) for row in rows]

    def _check_size(self) -> None:
        """SQLite would only notice the missing pages of a cut file when it needs them."""
        # Who writes to it knows it by its own name, not by that of a link.
        for path in dict.fromkeys((self.path, self.path.resolve())):
            for suffix in ("-wal", "-journal"):
                beside = path.with_name(path.name + suffix)
                if beside.exists() and beside.stat().st_size:
                    raise DataError(f"{self.path}: is still being written ({beside.name} exists); wait for that to end")
        with self.path.open("rb") as file:
            head = file.read(100)
        page_size = int.from_bytes(head[16:18], "big")
        pages = int.from_bytes(head[28:32], "big")
        if head[24:28] != head[92:96]:  # an old library wrote to the file, and left the number of pages as it was
            pages = 0
        if len(head) < 100 or (65536 if page_size == 1 else page_size) * pages > self.path.stat().st_size:
            raise sqlite3.DatabaseError("the end of the file is missing")

    def _bound_work(self) -> None:
        budget = _STEPS_AT_LEAST + _STEPS_A_BYTE * self.path.stat().st_size
        checks = iter(range(budget // _STEPS_A_CHECK))
        self._connection.set_progress_handler(lambda: next(checks, None) is None, _STEPS_A_CHECK)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        self._connection.text_factory = self._decode
        self._connection.execute("PRAGMA trusted_schema = OFF")

    def _bound_text(self) -> None:
        self._text_left = _TEXT_A_BYTE * self.path.stat().st_size

    def _read_tables(self) -> Mapping[str, frozenset[str]]:
        # A view or a virtual table has no pages of its own, and may hold any query: neither is asked.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        names = [str(name) for (name,) in self._connection.execute(query)]
        columns = "SELECT name FROM pragma_table_info(?)"
        tables = {name: frozenset(str(row[0]) for row in self._connection.execute(columns, (name,))) for name in names}
        return MappingProxyType(tables)

    def _fetch(self, queries: Iterable[str]) -> Iterator[list[tuple[object, ...]]]:
        """The rows of queries that ask for different rows of one table."""
        with self._telling_damage():
            self._bound_text()
            for query in queries:
                cursor = self._connection.execute(query)
                while rows := cursor.fetchmany(_ROWS_A_FETCH):
                    yield rows

    def _decode(self, text: bytes) -> str:
        """A text of a row. The default of a column stands once in the file, and in every row that is read."""
        self._text_left -= len(text)
        if self._text_left < 0:
            raise sqlite3.DataError("its texts are longer than the file")
        return text.decode("utf-8", errors="replace")

    @contextmanager
    def _telling_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite's own message quotes broken text
            reason = (
                ascii(" ".join(str(error).split())[:100])[1:-1] if isinstance(error, sqlite3.Error) else "broken text"
            )
            raise DataError(
                f"{self.path}: an SQLite database that is cut or damaged ({reason}); {self._again}"
            ) from error
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error


def _quoted(name: str) -> str:
    """A name in SQL; ``end`` and others are words of the language."""
    return '"' + name.replace('"', '""') + '"'


def _no_blob(column: str) -> str:
    """The value of a column. Bytes are no value: they are not counted when they are read."""
    name = _quoted(column)
    return f"CASE typeof({name}) WHEN 'blob' THEN NULL ELSE {name} END"


def _integer(column: str) -> str:
    name = _quoted(column)
    return f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE {ABSENT} END"
