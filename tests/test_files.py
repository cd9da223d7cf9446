"""Writing files: whole or not at all, never over an input, under names that nobody can have taken, as private as it."""

from __future__ import annotations

import csv
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_api import sync_trace
from typer.testing import CliRunner, Result

from cbprof.cli.main import app
from cbprof.errors import CbprofError, UsageError
from cbprof.files import plain_cell, split_suffix, whole_file, with_infix, write_table
from cbprof.formats import TraceWriter, load, save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, TraceBuilder

WRITERS = {
    "report IN -o OUT": "out.html",
    "report IN --csv OUT": "out.csv",
    "plot IN --no-open -o OUT": "out.html",
    "plot  IN -o OUT": "out.svg",
    "predict IN -o OUT": "out.json",
    "check IN --max-idle 99% --junit OUT": "out.xml",
    "convert IN OUT": "out.json",
    "convert  IN OUT": "out.json.gz",
    "convert IN  OUT": "out.csv",
    "convert  IN  OUT": "out.parquet",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(sync_trace(40), tmp_path / "t.json")
    return tmp_path


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file grows beyond a few hundred bytes, as on a full disk."""
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def typed(command: str, source: str = "t.json", target: str | None = None) -> Result:
    line = command.replace("IN", source).replace("OUT", target or WRITERS[command])
    return CliRunner().invoke(app, line.split())


def outputs_of(command: str) -> list[Path]:
    """What the command writes."""
    name = WRITERS[command]
    return [Path("out.steps.csv"), Path("out.gaps.csv")] if "--csv" in command else [Path(name)]


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.usefixtures("full_disk")
def test_on_a_full_disk_what_was_there_stays(command: str, folder: Path) -> None:
    for target in outputs_of(command):
        target.write_bytes(b"what was there")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    error = typed(command).exception
    assert isinstance(error, CbprofError), error
    assert error.exit_code == 3
    assert "out." in str(error)
    assert "File too large" in str(error)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize("command", WRITERS)
def test_no_output_is_the_input_by_another_name(command: str, link: object, folder: Path) -> None:
    before = Path("t.json").read_bytes()
    for target in outputs_of(command):
        assert callable(link)
        link(folder / "t.json", target)
    error = typed(command).exception
    assert isinstance(error, UsageError), error
    assert "is a file that this command reads" in str(error)
    assert Path("t.json").read_bytes() == before


@pytest.mark.parametrize("command", WRITERS)
def test_what_is_told_of_a_private_trace_is_private(command: str) -> None:
    Path("t.json").chmod(0o600)
    assert typed(command).exit_code == 0
    for target in outputs_of(command):
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        target.unlink()
    Path("t.json").chmod(0o444)
    umask = os.umask(0o027)
    try:
        typed(command)
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(target.stat().st_mode) for target in outputs_of(command)} == {0o640}


@pytest.mark.parametrize("command", WRITERS)
def test_temporary_names_lead_nowhere(command: str, folder: Path) -> None:
    """What was put at the names that used to be taken is not touched."""
    for target in outputs_of(command):
        for name in (f"{target}.part", f".{target}.{os.getpid()}.part"):
            Path(name).symlink_to(folder / "victim")
    Path("victim").write_text("precious")
    assert typed(command).exit_code == 0
    assert Path("victim").read_text() == "precious"
    assert not [path for path in folder.iterdir() if path.name.endswith(".part") and not path.is_symlink()]


@pytest.mark.usefixtures("full_disk")
def test_a_salvage_that_fails_keeps_the_only_copy() -> None:
    Path("t.json").rename("t.json.part")
    content = Path("t.json.part").read_bytes()
    assert isinstance(typed("convert IN OUT", "t.json.part", "t.json").exception, CbprofError)
    assert Path("t.json.part").read_bytes() == content
    assert not Path("t.json").exists()


def test_a_salvage_that_succeeds_keeps_its_input() -> None:
    Path("t.json").rename("t.json.part")
    assert typed("convert IN OUT", "t.json.part", "t.json").exit_code == 0
    assert len(load("t.json")) == len(load("t.json.part"))


def begun(name: str = "run.json") -> TraceWriter:
    writer = TraceWriter(Path(name), Meta.parse({}))
    writer.span(writer.lane(Lane("engine")), Kind.CPU_WORK, "schedule", 0, 10)
    writer.flush()
    return writer


def test_two_recordings_of_one_name_do_not_mix() -> None:
    first = begun()
    with pytest.raises(UsageError, match=r"run\.json\.part: another process is writing it; choose another name"):
        begun()
    first.close(Meta.parse({}))
    assert len(load("run.json")) == 1
    begun().close(Meta.parse({}))
    assert not list(Path().glob("*.part"))


def test_two_recordings_of_one_name_do_not_mix_in_two_processes() -> None:
    first = begun()
    code = "from test_files import begun; begun()"
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    second = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "another process is writing it" in second.stderr
    first.close(Meta.parse({}))
    assert len(load("run.json")) == 1


def test_what_a_killed_run_left_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    code = "import os, signal; from test_files import begun; w = begun(); os.kill(os.getpid(), signal.SIGKILL)"
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False)
    begun().close(Meta.parse({}))
    kept = [Path("run.json.1.part"), Path("run.json.2.part")]
    assert [len(load(path)) for path in kept] == [1, 1]
    assert caplog.messages[-1] == "kept what a run that broke off had written: run.json.2.part"
    assert not Path("run.json.part").exists()


def test_a_trace_that_is_read_is_not_replaced_by_what_is_made_of_it(folder: Path) -> None:
    with pytest.raises(UsageError, match="is a file that this command reads"):
        save(load("t.json"), folder / "t.json", of=[Path("t.json")])


def test_a_block_that_fails_changes_nothing(folder: Path) -> None:
    def fail() -> None:
        with whole_file(folder / "new", "the answer") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in folder.iterdir()] == ["t.json"]


HOSTILE = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=HYPERLINK(0)\n::error::")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_is_a_formula(text: str) -> None:
    write_table(Path("t.csv"), ("name", "ns"), [(text, -1), ("plain", 2)], "the table")
    with Path("t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["name", "ns"], [f"'{text}", "-1"], ["plain", "2"]]


def test_no_name_in_a_table_is_a_formula() -> None:
    builder = TraceBuilder()
    lane = builder.lane(Lane("=lane"))
    for name in HOSTILE:
        builder.span(lane, Kind.CPU_WORK, name, 0, 10)
    save(builder.build(), Path("hostile.json"))
    assert typed("convert IN  OUT", "hostile.json").exit_code == 0
    with Path("out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["name"] for row in rows) == sorted(plain_cell(name) for name in HOSTILE)
    assert {row["lane"] for row in rows} == {"'=lane"}


@pytest.mark.parametrize(
    ("name", "parts"), [("t.json.gz", ("t", ".json.gz")), ("a.b.json", ("a.b", ".json")), ("t", ("t", ""))]
)
def test_suffixes(name: str, parts: tuple[str, str]) -> None:
    assert split_suffix(name) == parts
    assert with_infix(Path("d", name), "sync") == Path("d", f"{parts[0]}.sync{parts[1]}")
