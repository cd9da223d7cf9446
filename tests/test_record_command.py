"""``cbprof record`` as its users meet it: the program stays itself, whatever becomes of it; the last words are true."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.trace import NONE

STEPS = """
import sys, cbprof
tracer = cbprof.Tracer("own.json", engine="toy")
def run(first, last):
    for number in range(first, last):
        with tracer.step(number), tracer.cpu("schedule"): pass
"""

FAKE_TORCH = """
def synchronize(device=None): pass
def is_initialized(): return True
class Stream:
    def synchronize(self): pass
class Event:
    def synchronize(self): synchronize()
class CUDAGraph:
    def replay(self): return 42
"""


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``cbprof record OPTIONS -- python SCRIPT ARGUMENTS`` in an empty folder."""

    def run(
        script: str, *options: str, arguments: tuple[str, ...] = (), given: str = "", python: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script)
        command = [sys.executable, "-m", "cbprof", "record", *options, "--", python, "script.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True, check=False)

    return run


Record = Callable[..., subprocess.CompletedProcess[str]]


def words(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What cbprof said, as against the program."""
    return [line.removeprefix("cbprof: ") for line in done.stderr.splitlines() if line.startswith("cbprof: ")]


def steps(path: Path) -> list[int]:
    trace = load(path)
    return sorted({int(step) for step in trace.step if step != NONE})


def test_arguments_input_output_and_exit_code_are_the_programs(record: Record, tmp_path: Path) -> None:
    script = STEPS + "run(0, 3); print(sys.argv[1:], input()); print('oops', file=sys.stderr); sys.exit(3)"
    done = record(script, "-o", "t.json.gz", arguments=("--steps", "-o", "x y", "--"), given="typed\n")
    assert done.returncode == 3
    assert done.stdout == "['--steps', '-o', 'x y', '--'] typed\n"
    assert done.stderr.startswith("oops\n")
    assert words(done) == [
        "the program exited with 3",
        "wrote t.json.gz",
        "it has no device spans, so idle time is unknown: the program used no CUDA device",
        "see it: cbprof report t.json.gz, or cbprof plot t.json.gz",
    ]
    trace = load(tmp_path / "t.json.gz")
    assert (trace.complete, trace.meta.engine, steps(tmp_path / "t.json.gz")) == (True, "toy", [0, 1, 2])
    assert not (tmp_path / "own.json").exists()


def test_a_program_that_raises(record: Record, tmp_path: Path) -> None:
    done = record(STEPS + "run(0, 2)\nraise ValueError('its own error')")
    assert done.returncode == 1
    assert "ValueError: its own error" in done.stderr
    assert "sitecustomize" not in done.stderr
    assert words(done)[:2] == ["the program exited with 1", "wrote trace.json"]
    assert not load(tmp_path / "trace.json").complete


def test_a_program_that_is_killed(record: Record, tmp_path: Path) -> None:
    script = (
        STEPS
        + """
import os, pathlib, signal
number = 0
while not any(path.stat().st_size > 5000 for path in pathlib.Path().glob("*.part")):
    run(number, number := number + 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    done = record(script)
    assert done.returncode == -signal.SIGKILL, "we die the same death"
    assert words(done) == [
        "the program was ended by SIGKILL",
        "trace.json.part holds the recording up to then: cbprof report trace.json.part",
    ]
    trace = load(tmp_path / "trace.json.part")
    assert not trace.complete
    assert len(trace) > 10


def test_a_program_that_forks(record: Record, tmp_path: Path) -> None:
    script = (
        STEPS
        + """
import os
run(0, 2)
pid = os.fork()
if pid == 0:
    run(2, 5)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
run(5, 6)
"""
    )
    done = record(script)
    assert done.returncode == 0, done.stderr
    assert any("forked once: only the parent is recorded; start others" in line for line in words(done))
    assert steps(tmp_path / "trace.json") == [0, 1, 5]


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        ("print('hello')", [], "the program imported no torch; mark the phases of your own engine with cbprof.Tracer"),
        (STEPS + "run(0, 5)", ["--steps", "100:110"], "steps 100:110 were never reached: the program made 5 steps"),
        (STEPS + "run(0, 5)", ["--on-signal"], "no SIGUSR2 came; while it runs, type: kill -USR2 "),
    ],
    ids=["no torch", "window", "signal"],
)
def test_a_program_with_nothing_to_record(
    record: Record, tmp_path: Path, script: str, options: list[str], reason: str
) -> None:
    done = record(script, *options)
    assert done.returncode == 0
    assert len(words(done)) == 1
    assert words(done)[0].startswith(f"nothing was recorded: {reason}")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_python_that_cannot_be_recorded(record: Record, tmp_path: Path) -> None:
    isolated = tmp_path / "isolated"
    isolated.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    isolated.chmod(0o755)
    assert "one that ignores PYTHONPATH" in words(record("pass", python=str(isolated)))[0]
    base = getattr(sys, "_base_executable", sys.executable)
    if subprocess.run([base, "-c", "import cbprof"], capture_output=True, check=False).returncode:
        assert "has no cbprof: install it there" in words(record("pass", python=base))[0]


def test_a_window_of_steps_begins_and_ends_exactly(record: Record, tmp_path: Path) -> None:
    done = record(STEPS + "run(0, 9)", "--steps", "3:5")
    assert done.returncode == 0
    assert steps(tmp_path / "trace.json") == [3, 4]
    assert load(tmp_path / "trace.json").complete


def test_a_window_of_seconds_ends_while_the_program_goes_on(record: Record, tmp_path: Path) -> None:
    script = (
        STEPS
        + """
import pathlib, time
number = 0
while not pathlib.Path("trace.json").exists():
    run(number, number := number + 1)
    time.sleep(0.001)  # only so that the trace stays small
run(number, number + 10)
print(number)
"""
    )
    done = record(script, "--seconds", "0.05")
    assert done.returncode == 0
    assert steps(tmp_path / "trace.json")[-1] < int(done.stdout)


TWO_STEPS = """
import cbprof
tracer = cbprof.Tracer(device="host")
for number in range(2):
    with tracer.step(number), tracer.gpu("forward"): pass
"""


def place(rank: int) -> dict[str, str]:
    return {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}


def both_ranks(folder: Path) -> None:
    """They lie side by side in the folder, and a report of it tells them apart."""
    names = [f"t.rank0000{rank}.json" for rank in range(2)]
    assert sorted(path.name for path in folder.glob("*.json")) == names
    reported = CliRunner().invoke(app, ["report", str(folder), "--json"])
    ranks = json.loads(reported.stdout)["ranks"]
    assert [(Path(rank["file"]).name, rank["rank"]) for rank in ranks] == [(names[0], 0), (names[1], 1)]
    assert all(rank["base_time_ns"] is not None for rank in ranks), "both say when they began"


def test_each_rank_under_a_launcher_has_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TWO_STEPS)
    command = [sys.executable, "-m", "cbprof", "record", "-o", "t.json", "script.py"]
    for rank in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=place(rank), capture_output=True, text=True, check=True)
        assert words(done)[0] == f"wrote t.rank0000{rank}.json"
    both_ranks(tmp_path)


def test_each_rank_of_a_recorded_launcher_has_a_file_of_its_own(record: Record, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(TWO_STEPS)
    (tmp_path / "late.py").write_text(f"import os, cbprof\nos.environ['RANK'] = '1'\n{TWO_STEPS}")
    launcher = """
import os, subprocess, sys
place = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
for script in ("rank.py", "late.py"):
    subprocess.run([sys.executable, script], env=place, check=True)
"""
    done = record(launcher, "-o", "t.json")
    assert done.returncode == 0
    both_ranks(tmp_path)


def test_signals_switch_it_on_and_off(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        STEPS + "run(0, 1)\nfor line in sys.stdin: run(int(line), int(line) + 1); print(tracer.on, flush=True)"
    )
    command = [sys.executable, "-m", "cbprof", "record", "--on-signal", "-o", "t.json", "script.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    number = 0
    for wanted in (False, True, False, True, False):
        if number:
            process.send_signal(signal.SIGUSR2)  # to us, who hand it on
        on = None
        while on is not wanted:
            number += 1
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            on = process.stdout.readline() == "True\n"
    output, errors = process.communicate()
    assert process.returncode == 0
    assert "wrote t.json t.2.json" in errors
    first, second = steps(tmp_path / "t.json"), steps(tmp_path / "t.2.json")
    assert first
    assert second
    assert first[-1] < second[0]
    assert output == ""


def test_no_other_thread_of_ours_takes_signals(tmp_path: Path) -> None:
    """What we wait for would end us, if a thread that does not block it was there."""
    (tmp_path / "script.py").write_text(
        "import os\n"
        "for thread in os.listdir(f'/proc/{os.getppid()}/task'):\n"
        "    lines = open(f'/proc/{os.getppid()}/task/{thread}/status').read().splitlines()\n"
        "    mask = int(next(line.split()[1] for line in lines if line.startswith('SigBlk')), 16)\n"
        "    print(int(thread) == os.getppid(), hex(mask & 0x2))"
    )
    for more in ((), ("--metrics", "0")):
        command = [sys.executable, "-m", "cbprof", "record", "-q", *more, "script.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        others = [line for line in done.stdout.splitlines() if line.startswith("False")]
        assert others == ["False 0x2"] * bool(more)


def test_what_is_sent_to_us_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)  # a signal before `pause` would be waited for again"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "cbprof", "record", "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait() == 9
    process.stdout.close()


def test_ctrl_c_comes_once_and_ends_us_as_it_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        STEPS
        + """
import time
run(0, 3)
try:
    print("ready", flush=True)
    while True: time.sleep(0.05)  # a signal that comes before `pause` begins would be waited for again
except KeyboardInterrupt:
    print("caught", flush=True)
    raise
"""
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "cbprof", "record", "-q", "script.py"])
    shown = read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    shown = read_until(terminal, b"")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT
    os.close(terminal)
    assert shown.count(b"caught") == 1
    assert shown.count(b"KeyboardInterrupt") == 1
    assert b"the program was ended by SIGINT" in shown
    assert steps(tmp_path / "trace.json") == [0, 1, 2]


def read_until(terminal: int, text: bytes) -> bytes:
    """What the terminal shows up to ``text``; with no text, to its end."""
    shown = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the last process on it has ended
            break
        if not chunk:
            break
        shown += chunk
        if text and text in shown:
            break
    return shown


def test_synchronisations_and_graph_launches_are_recorded(record: Record, tmp_path: Path) -> None:
    (tmp_path / "torch" / "cuda").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("from torch import cuda")
    (tmp_path / "torch" / "cuda" / "__init__.py").write_text(FAKE_TORCH)
    script = """
import torch
assert torch.cuda.__spec__.loader is torch.cuda.__loader__
assert type(torch.cuda.__loader__).__name__ == "SourceFileLoader"
torch.cuda.synchronize()
torch.cuda.Stream().synchronize()
torch.cuda.Event().synchronize()
assert torch.cuda.CUDAGraph().replay() == 42
"""
    done = record(script)
    assert done.returncode == 0, done.stderr
    assert "record again with --cupti" in done.stderr
    trace = load(tmp_path / "trace.json")
    assert [trace.name_of(i) for i in range(len(trace))] == [
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize",
        "cudaGraphLaunch",
    ]  # fmt: skip


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customized = True")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cbprof",
            "record",
            "--",
            sys.executable,
            "-c",
            "import sys; print(customized, sys.path)",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("True ")
    assert "inject" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonesuch"], "there is no program 'nonesuch' that can be run"),
        (["nonesuch.py"], "nonesuch.py: there is no such file"),
        (["-o", "no/where.json", "python"], "there is no folder no; create it"),
        (["--steps", "1:2", "--on-signal", "python"], "--on-signal has no effect with --steps"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["record", *arguments])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_transformers_is_recorded_where_it_is_imported(record: Record, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("psutil")
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from transformers_batching import generate, tiny_model
print(len(generate(tiny_model())))
"""
    done = record(script, "--steps", "2:4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"
    trace = load(tmp_path / "trace.json")
    assert trace.meta.engine.startswith("transformers ")
    assert steps(tmp_path / "trace.json") == [2, 3]
    assert {"schedule", "inputs", "dispatch", "read", "update", "compute"} <= set(trace.names)
    assert trace.mask(device=0).any()
