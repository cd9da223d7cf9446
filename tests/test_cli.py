"""The command line as its users meet it: a process, its output, its exit code and what it leaves on disk."""

from __future__ import annotations

import gzip
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import command_line as here
import pytest
from trace_samples import small_trace

from cbprof.formats import load, save

pytest.importorskip("torch")
SMALL = ("--batch", "4", "--prompt-len", "4:8", "--new-tokens", "12", "--device", "host", "--quiet")
ENDLESS = ("--batch", "2", "--prompt-len", "2", "--new-tokens", "9000", "--device", "host", "--mode", "sync")


def cbprof(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbprof", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "100"}
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("both")
    return folder, cbprof("run", "--mode", "both", *SMALL, cwd=folder)


def test_run_serves_both_modes_and_compares_them(both: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = both
    assert done.returncode == 0, done.stderr
    assert "tokens: identical" in done.stdout
    assert "see it: cbprof plot trace.sync.json trace.async.json" in done.stdout
    assert [line[:9].rstrip() for line in done.stdout.splitlines() if line.startswith(("sync ", "async "))] == [
        "sync",
        "async",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["trace.async.json", "trace.sync.json"]
    for mode in ("sync", "async"):
        trace = load(folder / f"trace.{mode}.json")
        assert (trace.mode, trace.complete, trace.meta.tokens) == (mode, True, 48)
        assert len(trace.steps) == 12


@pytest.mark.parametrize(
    "command",
    [("run", "--mode", "both", *SMALL), ("run", "--mode", "async", *SMALL, "-o", "trace.async.json"),
     ("record", "-o", "trace.sync.json", "--", sys.executable, "-c", "print('started')")],
    ids=["both modes", "one mode", "a program"],
)  # fmt: skip
def test_no_older_trace_is_replaced_unasked(
    both: tuple[Path, subprocess.CompletedProcess[str]], command: tuple[str, ...]
) -> None:
    folder, _ = both
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = cbprof(*command, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert ".json: is there already; give --force to replace it, or --output another name" in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("older", "rank", "is_in_the_way"),
    [
        ("t.rank00001.json", None, True),
        ("t.2.json", None, True),
        ("t.rank00001.3.json", None, True),
        ("t.2.cupti.json.gz", None, True),
        ("t.2.json.gz", None, False),
        ("t2.json", None, False),
        ("t.before.json", None, False),
        ("t.rank00001.json", "1", True),
        ("t.rank00000.json", "1", False),
    ],
)
def test_no_older_rank_or_number_is_replaced_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: str, rank: str | None, is_in_the_way: bool
) -> None:
    (tmp_path / older).write_text("old")
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": rank and "2"}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    done = cbprof("record", "-o", "t.json", "--", "no-such-program", cwd=tmp_path)
    refused = f"cbprof: {older}: is there already; give --force to replace it, or --output another name\n"
    assert (done.returncode, done.stderr == refused) == (2, is_in_the_way)


def test_an_older_trace_is_replaced_where_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("old")
    program = "import cbprof\nwith cbprof.Tracer(device='none') as tracer, tracer.cpu('work'): pass"
    done = cbprof("record", "--force", "-o", "t.json", "--", sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "t.json").names == ("work",)


def test_the_traces_of_a_run_open_in_every_command(both: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = both
    report = cbprof("report", "trace.sync.json", cwd=folder)
    assert report.returncode == 0
    assert "GPU idle" in report.stdout
    numbers = json.loads(cbprof("report", "trace.async.json", "--json", cwd=folder).stdout)
    assert numbers["schema"] == 1
    assert numbers["mode"] == "async"
    assert 0 < numbers["devices"][0]["idle_pct"] < 100
    plot = cbprof("plot", "trace.sync.json", "trace.async.json", "--no-open", cwd=folder)
    assert plot.stdout == "wrote trace.html\n"
    assert "<html" in (folder / "trace.html").read_text()
    (folder / "trace.html").unlink()


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in its own process group that has written some of its trace."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cbprof", "run", *ENDLESS, "-o", "long.json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    part = tmp_path / "long.json.part"
    while process.poll() is None and not (part.exists() and part.stat().st_size > 20_000):
        pass
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_keeps_the_trace_so_far(long_run: subprocess.Popen[str], tmp_path: Path) -> None:
    (device,) = children(long_run.pid)
    os.killpg(long_run.pid, signal.SIGINT)
    output, errors = long_run.communicate(timeout=60)
    assert long_run.returncode == 130, errors
    assert "interrupted: long.json holds the run so far" in output
    assert "Traceback" not in errors
    trace = load(tmp_path / "long.json")
    assert not trace.complete
    assert len(trace) > 100
    assert not Path(f"/proc/{device}").exists()


def test_a_stopped_device_process_is_told_of_and_the_first_ctrl_c_ends_the_run(
    long_run: subprocess.Popen[str], tmp_path: Path
) -> None:
    (device,) = children(long_run.pid)
    os.kill(device, signal.SIGSTOP)
    assert long_run.stderr is not None
    while not (line := long_run.stderr.readline()).startswith(
        f"cbprof: the device process (pid {device}) is stopped: "
    ):
        assert line, "nothing was said of it"
    os.killpg(long_run.pid, signal.SIGINT)
    output, errors = long_run.communicate(timeout=60)
    assert (long_run.returncode, errors) == (130, "")
    assert "interrupted: long.json holds the run so far" in output
    assert len(load(tmp_path / "long.json")) > 100
    assert not Path(f"/proc/{device}").exists()


def test_a_killed_run_leaves_a_part_that_can_be_read(long_run: subprocess.Popen[str], tmp_path: Path) -> None:
    (device,) = children(long_run.pid)
    descriptor = os.pidfd_open(device)
    long_run.kill()
    long_run.wait()
    assert select.select([descriptor], [], [], 60)[0], "the device process outlived its parent"
    os.close(descriptor)
    assert not (tmp_path / "long.json").exists()
    trace = load(tmp_path / "long.json.part")
    assert not trace.complete
    assert len(trace) > 100


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--batch", "0"], "0 requests: there must be at least 1", 2),
        (["--batch", "0", "--requests", "1"], "max batch is 0: it must be at least 1", 2),
        (["--new-tokens", "0"], "new tokens is 0:0: it must be at least 1", 2),
        (["--prompt-len", "many"], "'many' is not a length", 2),
        (
            ["--prompt-len", "900", "--blocks", "4"],
            "4 KV blocks of 16 hold 64 tokens, but one request may need 1412",
            2,
        ),
        (["--device", "tpu"], "unknown device 'tpu': use auto, cuda or host", 2),
        (["--device", "host", "--compile"], "leave out --compile, or use --device cuda", 2),
        (["--model", "gpt-9"], "unknown model 'gpt-9'", 2),
        (["-o", "no/such/folder/t.json"], "there is no folder no/such/folder", 2),
        (["--seed", "-5"], "seed is -5: it must be at least 0 and less than 2**63", 2),
        (["--seed", str(2**63)], "it must be at least 0 and less than 2**63", 2),
        (["--rate", "nan"], "rate is nan: it must be a number, at least 0", 2),
        (["--rate", "inf"], "rate is inf: it must be a number, at least 0", 2),
        (["--temperature", "nan"], "temperature is nan: it must be a number, at least 0", 2),
        (["--temperature", "-1"], "temperature is -1.0: it must be a number, at least 0", 2),
        (
            ["--engine", "transformers", "--compile"],
            "--compile has no effect with --engine transformers",
            2,
        ),
        (["--engine", "transformers", "--mode", "multi"], "transformers has no multi-step loop: give --mode sync", 2),
        (["--mode", "sync", "--slots", "3"], "--slots is for the async loop: add --mode async or both", 2),
        (["--slots", "1"], "--slots is 1: async has two batches in flight at least; --mode sync has one", 2),
        (["--steps-per-sync", "4"], "--steps-per-sync is for the multi-step loop: add --mode multi", 2),
        (["--mode", "multi", "--steps-per-sync", "0"], "--steps-per-sync is 0: it must be at least 1", 2),
        (["--engine", "transformers", "--no-fuse"], "--no-fuse has no effect with --engine transformers", 2),
        (["-o", "."], ".: is a folder; give --output the name of a file", 2),
    ],
)
def test_bad_requests_are_one_clear_line(arguments: list[str], message: str, code: int, tmp_path: Path) -> None:
    done = here.cbprof("run", "--device", "host", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_needs_a_gpu_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    done = cbprof("run", "--device", "host", "--compile", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("cbprof: ")
    assert "loading" not in done.stderr


def test_no_cuda_where_cuda_was_asked_for(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = cbprof("run", "--device", "cuda", cwd=tmp_path)
    assert done.returncode == 2
    assert "torch sees no CUDA device: use --device host" in done.stderr


@pytest.mark.parametrize("verb", ["report", "plot"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.json", b""),
        ("text.json", b"hello, this is not JSON"),
        ("other.json", b'{"answer": 42}'),
        ("cut.json", b'{"displayTimeUnit": "ms", "cbprof": {"schema": 1'),
        ("newer.json", b'{"cbprof": {"schema": 99}, "traceEvents": []}'),
        ("broken.json.gz", gzip.compress(b'{"cbprof":', mtime=0)[:12]),
    ],
)
def test_bad_files_are_one_clear_line(verb: str, name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    done = here.cbprof(verb, name, *(["--no-open"] if verb == "plot" else []), cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("cbprof: ")
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    done = cbprof("report", "nowhere.json", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "nowhere.json" in done.stderr


WITHOUT_TORCH = (
    "import sys\n"
    "for name in ('torch', 'transformers'): sys.modules[name] = None\n"
    "import cbprof\n"
    "from cbprof.cli.main import main\n"
    "main()\n"
)


@pytest.mark.parametrize("verb", ["report", "plot"])
def test_reading_needs_no_torch(verb: str, tmp_path: Path) -> None:
    save(small_trace(), tmp_path / "t.json")
    arguments = [verb, "t.json", *(["--no-open"] if verb == "plot" else [])]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_running_without_torch_says_how_to_install_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "run"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'cbprof[engine]'" in done.stderr


def test_help_shows_examples(tmp_path: Path) -> None:
    for verb in ("run", "report", "plot"):
        done = cbprof(verb, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert f"cbprof {verb}" in done.stdout.split("Examples:")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "t.json", "-o", "t.json"],
        ["convert", "t.json", "./t.json"],
        ["plot", "t.html", "-o", "t.html"],
        ["report", "t.html", "-o", "t.html"],
    ],
)
def test_what_is_read_is_never_written_over(arguments: list[str], tmp_path: Path) -> None:
    trace = (Path(__file__).parents[1] / "sample_traces" / "tiny_cpu.sync.json.gz").read_bytes()
    for name in ("t.json", "t.html"):
        (tmp_path / name).write_bytes(trace)
    done = cbprof(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("is a file that this command reads; give the output another name")
    assert all((tmp_path / name).read_bytes() == trace for name in ("t.json", "t.html"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    trace = Path(__file__).parents[1] / "sample_traces" / "tiny_cpu.sync.json.gz"
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cbprof", "report", str(trace)]
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert done.stderr == "cbprof: cannot write the output: No space left on device; make room, or write elsewhere\n"


def test_a_page_of_a_folder(tmp_path: Path) -> None:
    traces = Path(__file__).parents[1] / "sample_traces" / "h200_ranks"
    done = cbprof("report", str(traces), "-o", "r.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = cbprof("report", "pipe", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr == "cbprof: pipe: is a pipe, and a trace is read more than once; write it to a file first\n"
