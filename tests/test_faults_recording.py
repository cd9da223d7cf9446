"""Disks that take no more, folders that take no file, closed streams: the program goes on, the words are true."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_api import sync_trace

from cbprof.formats import load, save

RUN = """
import os, resource, sys, cbprof
def engine(out="own.json", last=400):
    with cbprof.Tracer(out, device="none") as tracer:
        for number in range(last):
            with tracer.step(number), tracer.cpu("schedule"): pass
            if tracer.recorder is not None: tracer.recorder.drain()
    return tracer
def no_room(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in an empty folder, under ``cbprof record`` if it is given options."""

    def run(script: str, *options: str, shell: str = "", limit: int | None = None) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(RUN + script)
        recorded = [sys.executable, "-m", "cbprof", "record", *options, "--"] if options else []
        command = " ".join([*recorded, sys.executable, "script.py", shell])
        return subprocess.run(
            ["/bin/sh", "-c", f"exec {command}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    return run


Program = Callable[..., subprocess.CompletedProcess[str]]


def test_a_tracer_without_room_warns_once_and_the_program_goes_on(program: Program, tmp_path: Path) -> None:
    done = program(
        "no_room(9000)\n"
        "tracer = engine(); assert 'File too large' in str(tracer.failure)\n"
        "with tracer, tracer.cpu('again'): pass\n"
        "engine('nowhere/own.json'); print('done')"
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    first, second = done.stderr.splitlines()
    assert first.startswith("recording stopped after ")
    assert first.endswith(" spans: own.json: cannot be written: File too large; write elsewhere (-o)")
    assert second.startswith("nowhere/own.json: there is no folder nowhere")
    assert not (tmp_path / "own.json").exists()
    assert 0 < len(load(tmp_path / "own.json.part")) < 400


def test_a_recorded_program_without_room_keeps_what_there_is(program: Program, tmp_path: Path) -> None:
    done = program("no_room(9000); engine(); print('done')", "-o", "own.json")
    assert (done.returncode, done.stdout) == (3, "done\n")
    first, second = done.stderr.splitlines()
    assert "File too large" in first
    assert second == "cbprof: own.json.part holds the recording up to then: cbprof report own.json.part"
    assert len(load(tmp_path / "own.json.part")) > 0


def test_a_recorded_program_without_any_room(program: Program, tmp_path: Path) -> None:
    done = program("no_room(0); engine(); print('done', file=sys.stderr)", "-o", "own.json")
    assert done.returncode == 3
    assert "wrote" not in done.stderr
    assert not (tmp_path / "own.json").exists()


def test_a_recording_for_which_there_is_no_room_is_refused_before_the_program(program: Program, tmp_path: Path) -> None:
    done = program("open('ran', 'w')", "-o", "own.json", limit=4096)
    assert done.returncode == 3
    assert done.stderr == "cbprof: own.json: cannot write the output: File too large; write elsewhere\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["script.py"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_an_output_in_a_folder_of_somebody_else_is_refused_before_the_work() -> None:
    script = """
import os
from pathlib import Path
from cbprof.cli.writing import check_output
os.setuid(65534)
try: check_output(Path("own.json"))
except Exception as error: print(error.exit_code, error)
"""
    with tempfile.TemporaryDirectory() as theirs:
        os.chmod(theirs, 0o755)
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=theirs, capture_output=True, text=True, check=False)
        assert os.listdir(theirs) == []
    assert done.stdout == "2 own.json: cannot write the output: Permission denied; write elsewhere\n", done.stderr


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_what_goes_to_a_closed_stream_never_ends_up_in_the_trace(program: Program, tmp_path: Path, closed: str) -> None:
    script = """
engine(last=3)
for fd in (1, 2):
    try: os.write(fd, b'astray')
    except OSError: pass
"""
    done = program(script, "-o", "own.json", shell=closed)
    assert done.returncode == 0
    assert len(load(tmp_path / "own.json")) == 6
    assert b"astray" not in (tmp_path / "own.json").read_bytes()


def test_a_program_that_replaces_itself_keeps_what_it_recorded(program: Program, tmp_path: Path) -> None:
    script = """
tracer = cbprof.Tracer("own.json", device="none")
for number in range(5):
    with tracer.step(number), tracer.cpu("schedule"): pass
if len(sys.argv) == 1:
    try: os.execv("nowhere", ["nowhere"])
    except FileNotFoundError: pass
    os.execv(sys.executable, [sys.executable, "script.py", "again"])
"""
    done = program(script, "-o", "own.json")
    assert done.returncode == 0
    assert done.stderr.splitlines()[:2] == [
        "cbprof: own.json.part holds the recording up to then: cbprof report own.json.part",
        "cbprof: wrote own.2.json",
    ]
    assert [len(load(tmp_path / name)) for name in ("own.json.part", "own.2.json")] == [10, 10]


@pytest.mark.parametrize(("options", "code"), [("--max-idle 100%", 0), ("--max-idle 0%", 1)])
def test_a_reader_that_goes_away_changes_no_exit_code(tmp_path: Path, options: str, code: int) -> None:
    save(sync_trace(), tmp_path / "t.json")
    gone, ours = os.pipe()
    os.close(gone)
    command = [sys.executable, "-m", "cbprof", "check", "t.json", *options.split()]
    done = subprocess.run(command, cwd=tmp_path, stdout=ours, stderr=subprocess.PIPE, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (code, b"")
