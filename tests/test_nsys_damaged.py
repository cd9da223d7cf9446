"""Files that are no exports of Nsight Systems, are not finished, or are damaged: a trace, or one clear line."""

from __future__ import annotations

import gzip
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_samples import GEMM, KERNEL, LAUNCH, RUNTIME, STRINGS, one_step, pid, refusal, tid, write_export

from cbprof.errors import DataError
from cbprof.formats import load

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return lambda tables, **options: write_export(tmp_path / "t.sqlite", tables, **options)


def test_reports_are_refused_with_the_command_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without an nsys that would export them
    for name, command in (
        ("my run.nsys-rep", "`nsys export --type sqlite --output '{0}/my run.sqlite' '{0}/my run.nsys-rep'`"),
        ("old.qdrep", "`nsys export --type sqlite --output {0}/old.sqlite {0}/old.qdrep`"),
        ("raw.qdstrm", "`QdstrmImporter -i {0}/raw.qdstrm`, then `nsys export --type sqlite --output {0}/raw.sqlite"),
    ):
        (tmp_path / name).write_bytes(b"\x08\x01binary")
        assert command.format(tmp_path) in refusal(tmp_path / name)
    shutil.copy(write_export(tmp_path / "t.sqlite", one_step()), tmp_path / "named.nsys-rep")
    assert len(load(tmp_path / "named.nsys-rep")) == 5, "what a file is shows in its content"


def test_other_databases_are_refused(tmp_path: Path, write: Write) -> None:
    for tables, reason in (
        ("CREATE TABLE songs (title TEXT)", "no export of Nsight Systems"),
        ("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end", "no export of Nsight Systems"),
        ("CREATE TABLE StringTable (_id_ INTEGER); CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (start INTEGER)", "nvprof"),
    ):
        path = tmp_path / f"{len(tables)}.sqlite"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(tables)
        assert reason in refusal(path)
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(write(one_step()).read_bytes()))
    assert "gunzip" in refusal(packed)


def test_an_export_that_is_still_being_written(write: Write) -> None:
    path = write(one_step())
    path.with_name(path.name + "-wal").write_bytes(b"pages")
    assert "still being written" in refusal(path)
    path.with_name(path.name + "-wal").write_bytes(b"")
    assert len(load(path)) == 5


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_an_export_that_is_still_being_written_and_goes_by_a_link(tmp_path: Path, write: Write, suffix: str) -> None:
    path, link, further = write(one_step()), tmp_path / "sub" / "latest.sqlite", tmp_path / "further.sqlite"
    link.parent.mkdir()
    link.symlink_to(Path("..") / path.name)
    further.symlink_to(link)
    for name in (link, further):
        path.with_name(path.name + suffix).write_bytes(b"pages")
        assert f"still being written ({path.name}{suffix} exists)" in refusal(name)
        path.with_name(path.name + suffix).unlink()
        assert len(load(name)) == 5


@pytest.mark.parametrize("default", ["'{}'", "CAST('{}' AS BLOB)"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("StringIds", "value"), ("NVTX_EVENTS", "text"), ("META_DATA_EXPORT", "value"), ("META_DATA_EXPORT", "name")],
)
def test_a_default_that_stands_once_in_the_file_and_in_every_row(
    write: Write, table: str, column: str, default: str
) -> None:
    """20 KB of text, 2,000 times: read as text it is refused; as bytes it is no value at all, and is not read."""
    path = write(one_step())
    process, thread = pid(7), tid(7, 9)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO plain")
        others = [name for _, name, *_ in connection.execute("PRAGMA table_info(plain)") if name != column]
        connection.execute(f"CREATE TABLE {table} ({', '.join(others)})")
        values = {"id": "each", "start": "each", "end": "each + 1", "eventType": "59", "globalTid": str(thread)}
        chosen = ", ".join(values.get(name, "NULL") for name in others)
        connection.execute(
            f"WITH RECURSIVE n(each) AS (SELECT 1 UNION ALL SELECT each + 1 FROM n LIMIT 2000) "
            f"INSERT INTO {table} SELECT {chosen} FROM n"
        )
        connection.executemany(
            f"INSERT INTO {KERNEL} (start, end, deviceId, globalPid, demangledName) VALUES (?, ?, 0, ?, ?)",
            [(each, each + 1, process, each) for each in range(2000)],
        )
        literal = connection.execute(f"SELECT quote({default.format('x' * 20_000)})").fetchone()[0]
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} DEFAULT {literal}")
    assert path.stat().st_size < 200_000
    if "BLOB" in default:
        assert len(load(path)) > 2000
    else:
        assert "its texts are longer than the file" in refusal(path)


def test_reading_leaves_no_trace_and_needs_no_lock(write: Write) -> None:
    path = write(one_step())
    before = path.read_bytes(), sorted(path.parent.iterdir())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert len(load(path)) == 5
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


def large_export(path: Path) -> bytes:
    process, thread = pid(7), tid(7, 9)
    kernels = [(1000 + 10 * each, 1005 + 10 * each, 0, 13, each, process, GEMM, GEMM) for each in range(2000)]
    calls = [(900 + 10 * each, 905 + 10 * each, thread, each, LAUNCH) for each in range(2000)]
    strings = list(enumerate([*STRINGS, *(f"void kernel_{each}<float>" for each in range(200))]))
    return write_export(path, {KERNEL: kernels, RUNTIME: calls, "StringIds": strings}).read_bytes()


def test_a_file_cut_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = large_export(tmp_path / "whole.sqlite")
    cut = tmp_path / "cut.sqlite"
    for length in {16, 17, 99, 100, 512, 4095, 4096, len(whole) // 2, len(whole) - 1}:
        cut.write_bytes(whole[:length])
        assert "cut or damaged" in refusal(cut)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_flipped_bytes_do_no_harm(tmp_path: Path, seed: int, flips: int) -> None:
    """Whatever the bytes, there is a trace or one line: no other exception, no endless walk."""
    whole = tmp_path / "whole.sqlite"
    data = bytearray(whole.read_bytes() if whole.exists() else large_export(whole))
    dice = random.Random(seed)
    for _ in range(flips):
        # Half of them in the first pages, where the schema and the roots of the tables are.
        place = dice.randrange(len(data) if dice.random() < 0.5 else 3 * 4096)
        data[place] = dice.randrange(256)
    data[:16] = b"SQLite format 3\0"
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(data)
    try:
        trace = load(damaged)
    except DataError:
        refusal(damaged)
    else:
        assert (trace.dur_ns >= 0).all()


def test_work_is_bounded_by_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that point at each other could keep SQLite walking for ever."""
    large_export(tmp_path / "t.sqlite")
    load(tmp_path / "t.sqlite")
    monkeypatch.setattr("cbprof.formats.records.database._STEPS_AT_LEAST", 10_000)
    monkeypatch.setattr("cbprof.formats.records.database._STEPS_A_BYTE", 0)
    monkeypatch.setattr("cbprof.formats.records.database._STEPS_A_CHECK", 1_000)
    assert "cut or damaged (interrupted)" in refusal(tmp_path / "t.sqlite")
