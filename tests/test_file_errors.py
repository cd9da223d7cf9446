"""Files that cannot be read or written: one line that names the file, and says which of the two it was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from command_line import cbprof
from test_api import sync_trace
from typer.testing import CliRunner

from cbprof.cli.main import app, main
from cbprof.errors import CbprofError
from cbprof.formats import save

LONG = "x" * 300
READERS = (
    "report IN",
    "report t.json IN",
    "report IN -o page.html",
    "plot IN --no-open",
    "plot IN --term",
    "predict IN",
    "compare IN t.json",
    "compare t.json IN",
    "hazards IN",
    "doctor IN",
    "check IN --max-idle 1%",
    "check t.json --config IN",
    "convert IN out.json",
)
WRITERS = (
    "report t.json -o OUT.html",
    "report t.json --csv OUT.csv",
    "plot t.json --no-open -o OUT.html",
    "predict t.json -o OUT.json",
    "check t.json --max-idle 1% --junit OUT.xml",
    "convert t.json OUT.json",
    "convert t.json OUT.json.gz",
    "convert t.json OUT.csv",
    "record -o OUT.json -- true",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(sync_trace(), tmp_path / "t.json")
    (tmp_path / "folder").mkdir()
    return tmp_path


def error_of(line: str) -> str:
    """The one line with which a command ends."""
    result = CliRunner().invoke(app, line.split())
    assert isinstance(result.exception, CbprofError), (result.exception, result.output)
    message = str(result.exception)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("line", READERS)
def test_a_name_that_is_too_long_to_read(line: str) -> None:
    message = error_of(line.replace("IN", f"{LONG}.json"))
    assert f"{LONG}.json: " in message
    assert "cannot be read" in message
    assert "File name too long" in message


@pytest.mark.parametrize("line", [line for line in READERS if not line.startswith("report")])
def test_a_folder_where_a_file_is_read(line: str) -> None:
    assert re.match(r"folder: (is a folder|cannot be read: Is a directory)", error_of(line.replace("IN", "folder")))


@pytest.mark.parametrize(
    "line", ["report folder", "report folder -o page.html", "plot folder/t.json --no-open", "doctor folder/t.json"]
)
def test_a_folder_that_may_not_be_entered(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(sync_trace(), folder / "folder" / "t.json")
    if os.geteuid():
        (folder / "folder").chmod(0)
    else:  # root may enter everything
        refuse_below(folder / "folder", monkeypatch)
    message = error_of(line)
    (folder / "folder").chmod(0o700)
    assert message.startswith("folder")
    assert "cannot be read: Permission denied" in message


SOMEBODY_ELSE = """
import json, os
import cbprof
cbprof.load_ranks("open").to_json()
if os.geteuid() == 0: os.setuid(65534)
os.environ["CBPROF_NO_CACHE"] = "1"
for paths in (".", "*/t.json", "**/*.js*"):
    print(json.dumps(cbprof.load_ranks(paths).to_json()))
"""


def test_a_subfolder_that_may_not_be_entered_is_a_row_with_its_reason() -> None:
    """By a user to whom it is closed: root may enter everything."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for inside in ("open", "closed", "closed.parquet"):
            (folder / inside).mkdir(mode=0o755)
            save(sync_trace(), folder / inside / "t.json")
            (folder / inside / "t.json").chmod(0o644)
        for inside in ("closed", "closed.parquet"):
            (folder / inside).chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", SOMEBODY_ELSE],
            cwd=folder,
            env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        for inside in ("closed", "closed.parquet"):
            (folder / inside).chmod(0o700)
    assert "Traceback" not in done.stderr, done.stderr
    assert "closed.parquet" not in done.stdout + done.stderr
    for line, name in zip(done.stdout.splitlines(), ("./closed", "closed", "closed"), strict=True):
        rows = {row["file"]: row["reason"] for row in json.loads(line)["ranks"]}
        assert rows == {
            name: "a folder that cannot be read: Permission denied",
            name.replace("closed", "open/t.json"): None,
        }


def refuse_below(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse what lies in ``path``, as it does to all users but root."""

    def refused(name: object) -> bool:
        return isinstance(name, str | os.PathLike) and Path(name).absolute().is_relative_to(path)

    def guarded(call: object) -> object:
        def instead(*arguments: object, **options: object) -> object:
            if arguments and refused(arguments[0]):
                raise PermissionError(13, "Permission denied", str(arguments[0]))
            return call(*arguments, **options)  # type: ignore[operator]

        return instead

    for target in ("os.listdir", "os.scandir", "io.open", "builtins.open"):
        module, name = target.split(".")
        monkeypatch.setattr(target, guarded(getattr(sys.modules[module], name)))


@pytest.mark.parametrize("line", WRITERS)
def test_a_name_that_is_too_long_to_write(line: str, folder: Path) -> None:
    message = error_of(line.replace("OUT", LONG))
    assert message.startswith(LONG)
    assert re.search(r"cannot (be written|write)", message)
    assert sorted(path.name for path in folder.iterdir()) == ["folder", "t.json"]


@pytest.mark.parametrize("line", WRITERS)
def test_a_file_where_the_folder_of_the_output_should_be(line: str, folder: Path) -> None:
    assert error_of(line.replace("OUT", "t.json/out")).startswith("t.json/out")
    assert sorted(path.name for path in folder.iterdir()) == ["folder", "t.json"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "some.file"),
            "cbprof: some.file: cannot be used: Permission denied; ",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "x"),
            "cbprof: x: cannot be used: No such file or directory; ",
        ),
    ],
)
def test_an_error_that_nobody_expected_names_its_file(
    error: OSError, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("cbprof.cli.main.app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith(line)


@pytest.mark.parametrize(
    "line", ["report t.json", "report t.json -o page.html", "report .", "check t.json --max-idle 1%"]
)
def test_figures_that_memory_does_not_hold(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of an exbibyte stands for one that is too large by a byte."""
    monkeypatch.setattr("cbprof.analysis.summary.summarize_device", lambda *_, **__: np.empty(1 << 60, np.int8))
    done = cbprof(*line.split(), cwd=folder)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "more memory than there is" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["report t.json --json", "hazards t.json", "plot t.json --term"])
def test_a_full_disk_behind_stdout(line: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cbprof", *line.split()]
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert done.stderr == "cbprof: cannot write the output: No space left on device; make room, or write elsewhere\n"


HOSTILE = "a\x1b[31m\x1b]52;c;eA==\x07\r\n::error::x\u202e"


@pytest.mark.parametrize(
    "command",
    [
        ("report", f"{HOSTILE}.json"),
        ("report", f"{HOSTILE}.broken"),
        ("report", f"{HOSTILE}.nowhere"),
        ("report", f"{HOSTILE}.json", "-o", f"{HOSTILE}.html"),
        ("report", f"{HOSTILE}.json", "--csv", f"{HOSTILE}.csv"),
        ("compare", f"{HOSTILE}.json", "t.json"),
        ("requests", f"{HOSTILE}.json", "--csv", f"{HOSTILE}.csv"),
        ("doctor", f"{HOSTILE}.json"),
        ("check", f"{HOSTILE}.json", "--max-idle", "1%", "--format", "github", "--junit", "junit.xml"),
        ("check", f"{HOSTILE}.broken", "--max-idle", "1%", "--format", "github"),
        ("plot", f"{HOSTILE}.json", "--term"),
        ("plot", f"{HOSTILE}.json", "--no-open"),
        ("predict", f"{HOSTILE}.json", "-o", f"{HOSTILE}.async.json"),
        ("convert", f"{HOSTILE}.json", f"{HOSTILE}.csv"),
        ("fleet", f"{HOSTILE}.nowhere"),
    ],
    ids=lambda command: " ".join(command[:1] + command[2:3]),
)
def test_the_name_of_a_file_steers_no_terminal_and_no_log(command: tuple[str, ...], folder: Path) -> None:
    (folder / "t.json").with_name(f"{HOSTILE}.json").write_bytes((folder / "t.json").read_bytes())
    (folder / f"{HOSTILE}.broken").write_text("{")
    done = cbprof(*command, cwd=folder)
    said = done.stdout + done.stderr
    assert said
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said)
    assert not any(line.startswith("::error::") for line in said.splitlines())
    assert done.stderr.count("\n") == (1 if done.returncode > 1 else done.stderr.count("wrote"))
