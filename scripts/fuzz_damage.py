"""Damaged copies of files: bytes that are spoilt, and values of JSON and SQLite that are others than they should be."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing, suppress
from typing import Any

SPICES = (*b'{ } [ ] " , : \\ \\u - e999 NaN null 1e308 "ph":'.split(), b"\0", b"\xff")
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 10**30, 0.5, -0.001, 1e17, 1e308),
    *("", "x", "0", "-1", "9" * 30, "1e999", "NaN", "\x1b]52;c;eA==\x07", "\n::error::", "é\ud83d", "x" * 3000),
    *([], {}, [[]], [{}], {"a": []}, [1, 2, 3]),
)


def damaged(data: bytes, random_: random.Random) -> bytes:
    """A copy with one to eight places spoilt."""
    copy = bytearray(data)
    for _ in range(random_.randint(1, 8)):
        at, length = random_.randrange(len(copy)), random_.randint(1, 400)
        what = random_.randrange(6)
        if what == 0:
            copy[at] ^= 1 << random_.randrange(8)
        elif what == 1:
            del copy[at : at + length]
        elif what == 2:
            copy[at:at] = copy[at : at + length]
        elif what == 3:
            copy[at : at + random_.randrange(2)] = random_.choice(SPICES)
        elif what == 4:
            del copy[at:]
        else:
            digits = [place for place in range(at, min(at + length, len(copy))) if chr(copy[place]).isdigit()]
            for place in digits:
                copy[place] = ord(random_.choice("0123456789.-e"))
        copy = copy or bytearray(b"{")
    return bytes(copy)


def altered(data: bytes, random_: random.Random) -> bytes:
    """A copy of the same form with one to six other values. What is neither JSON nor SQLite is damaged instead."""
    if data.startswith(b"SQLite format 3\0"):
        return _altered_rows(data, random_)
    try:
        document = json.loads(data)
    except ValueError:
        return damaged(data, random_)
    for _ in range(random_.randint(1, 6)):
        places = list(_places(document))
        if places:
            _alter(*random_.choice(places), random_)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    """Each container and key in a document, at any depth."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _alter(inside: Any, key: Any, random_: random.Random) -> None:
    value, what = inside[key], random_.randrange(5)
    if what == 0:
        del inside[key]
    elif what == 1 and isinstance(inside, list):
        inside.insert(key, value)
    elif what == 2 and isinstance(value, int | float) and not isinstance(value, bool):
        inside[key] = value * random_.choice((-1, 2, 0.5, 1000, 10**9)) + random_.choice((-1, 0, 1))
    elif what == 3:
        other, there = random_.choice(list(_places(inside)))
        inside[key] = json.loads(json.dumps(other[there]))
    else:
        inside[key] = json.loads(json.dumps(random_.choice(ODD)))


def _altered_rows(data: bytes, random_: random.Random) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(random_.randint(1, 6)):
            with suppress(sqlite3.Error, UnicodeError, IndexError):
                _alter_table(connection, random_.choice(tables), random_)
        connection.commit()
        return connection.serialize()


def _alter_table(connection: sqlite3.Connection, table: str, random_: random.Random) -> None:
    column = random_.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
    rows = [row for (row,) in connection.execute(f'SELECT rowid FROM "{table}"')]
    row, what = random_.choice(rows or [0]), random_.randrange(40)
    if what == 0:
        connection.execute(f'DROP TABLE "{table}"')
    elif what == 1:
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif what == 2:
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"')
    elif what < 6:
        connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
    elif what < 10:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ?', (row,))
    elif what < 20:
        factor, more = random_.choice((-1, 2, 1000, 10**9)), random_.choice((-1, 0, 1))
        connection.execute(f'UPDATE "{table}" SET "{column}" = "{column}" * ? + ? WHERE rowid = ?', (factor, more, row))
    else:
        odd = random_.choice((*ODD[:25], b"", b"\0\xff", b"7"))
        odd = float(odd) if isinstance(odd, int) and abs(odd) >= 1 << 63 else odd
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (odd, row))
