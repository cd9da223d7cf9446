"""Reports of Nsight Systems where an ``nsys`` is on the path: a script stands in for it."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from nsys_samples import one_step, refusal, write_export

from cbprof.errors import DataError
from cbprof.fleet.files import find_files
from cbprof.formats import load
from cbprof.formats.cache import cache_folder

EXPORTS = """#!/bin/sh
printf '%s\\n' "$@" >> {log}
while [ "$1" != --output ]; do shift; done
cp {export} "$2"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a report whose name is awkward; the cache lies beside it, and ``bin`` is all of the path."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "-my run.nsys-rep").write_bytes(b"\x08\x01binary")
    return tmp_path


def stand_in(folder: Path, script: str) -> Path:
    """Puts an ``nsys`` on the path; returns where it notes its arguments."""
    log, nsys = folder / "log", folder / "bin" / "nsys"
    export = write_export(folder / "export.sqlite", one_step())
    nsys.write_text(script.format(log=log, export=export))
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    return log


def test_a_report_is_exported_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, report = stand_in(folder, EXPORTS), folder / "-my run.nsys-rep"
    assert len(load(report)) == 5
    said = capsys.readouterr().err
    assert said.startswith(f"cbprof: exporting {report} with `nsys export`")
    arguments = log.read_text().splitlines()
    assert arguments[:6] == ["export", "--type", "sqlite", "--force-overwrite", "true", "--output"]
    assert arguments[7:] == [str(report)]
    assert len(load(report)) == 5
    assert log.read_text().splitlines() == arguments, "the second time it is read from the cache"
    assert capsys.readouterr().err == ""
    assert [file.suffix for file in (cache_folder() or folder).iterdir()] == [".sqlite"]

    report.write_bytes(b"\x08\x01another")
    load(report)
    assert len(log.read_text().splitlines()) == 2 * len(arguments)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho one >&2\necho 'no such  report' >&2\nexit 3\n", "failed with exit code 3: no such report"),
        ("#!/bin/sh\necho done\n", "failed with exit code 0: done"),
        ("#!/bin/sh\nexit 1\n", "failed with exit code 1: it said nothing"),
        ('#!/bin/sh\nwhile [ $1 != --output ]; do shift; done\necho part > "$2"\nexit 9\n', "exit code 9"),
    ],
)
def test_an_nsys_that_fails_is_one_line(folder: Path, script: str, why: str) -> None:
    report = folder / "-my run.nsys-rep"
    stand_in(folder, script.replace("{", "{{").replace("}", "}}"))
    assert why in refusal(report)
    assert list((cache_folder() or folder).iterdir()) == [], "nothing is left behind"


def test_a_cache_that_cannot_be_written_is_one_line(folder: Path) -> None:
    stand_in(folder, EXPORTS)
    (folder / "cache").write_text("a file")
    assert "cannot be exported" in refusal(folder / "-my run.nsys-rep")


def test_what_is_no_report_is_not_exported(folder: Path) -> None:
    log = stand_in(folder, EXPORTS)
    renamed = folder / "t.qdrep"
    renamed.write_bytes((folder / "export.sqlite").read_bytes())
    assert len(load(renamed)) == 5
    (folder / "raw.qdstrm").write_bytes(b"\x08\x01binary")
    assert "QdstrmImporter" in refusal(folder / "raw.qdstrm")
    assert "no such file" in refusal(folder / "gone.nsys-rep")
    assert not log.exists()


def test_an_export_that_holds_something_else_is_refused(folder: Path) -> None:
    stand_in(folder, EXPORTS)
    with closing(sqlite3.connect(folder / "songs.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    (folder / "export.sqlite").write_bytes((folder / "songs.sqlite").read_bytes())
    with pytest.raises(DataError, match="no export of Nsight Systems"):
        load(folder / "-my run.nsys-rep")


def test_tables_of_parquet_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "run_pqtdir").mkdir()
    (tmp_path / "run_pqtdir" / "CUPTI_ACTIVITY_KIND_KERNEL.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"as Parquet tables; .*nsys export --type sqlite"):
        find_files([str(tmp_path / "run_pqtdir")])
