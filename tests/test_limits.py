"""Files that are built to cost much: they are read, or refused in one line, in bounded memory and linear time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbprof.errors import DataError
from cbprof.formats import load, save
from cbprof.formats.bytes import stream
from cbprof.formats.chrome import document
from cbprof.formats.chrome import read as chrome_read
from cbprof.formats.kineto import columns
from cbprof.trace import Kind, Lane, TraceBuilder

MEMORY = 1800 << 20
"""Of the address space. The packages alone take 1 GB of it, and 60 MB of memory."""


def run(*arguments: object, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    """A command in a process that may not have more memory."""
    return subprocess.run(
        [sys.executable, "-m", "cbprof", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        env={"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1]), "CBPROF_NO_CACHE": "1"},
    )


def refused(*arguments: object) -> str:
    """The line with which a command refuses a file."""
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.stderr[-2000:]
    return done.stderr


def packed(path: Path, head: bytes, piece: bytes, size: int) -> Path:
    """A gzip file of a head and one piece, again and again, that inflates to ``size``."""
    block = piece * ((1 << 20) // len(piece))
    pack = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        file.write(pack.compress(head))
        for _ in range(size // len(block)):
            file.write(pack.compress(block))
        file.write(pack.flush())
    return path


OURS = b'{"cbprof":{"schema":1},"traceEvents":['


def test_a_small_file_that_inflates_to_a_large_one(tmp_path: Path) -> None:
    assert "inflates more than 300-fold" in refused("report", packed(tmp_path / "t.json.gz", OURS, b"{},", 18 << 20))


@pytest.mark.parametrize("piece", [b"{},", b"[],", b'[[],""],'])
def test_whatever_it_inflates_to(tmp_path: Path, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_RATIO_COUNTS_FROM", 1 << 20)
    with pytest.raises(DataError, match="inflates more than 300-fold"):
        load(packed(tmp_path / "t.json.gz", OURS, piece, 3 << 20))


def nested(size: int) -> bytes:
    """An event of so many bytes that is full of lists, of which each takes 20 times its text."""
    return b'{"ph":"X","name":"x","cat":"cpu.work","pid":0,"tid":1,"ts":0,"dur":1,"args":{"a":[%s[]]}}' % (
        b"[]," * (size // 3)
    )


def test_an_event_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_VALUE", 1 << 19)
    (tmp_path / "t.json").write_bytes(OURS + nested(3 << 20) + b"]}")
    with pytest.raises(DataError, match="before its first whole event"):
        load(tmp_path / "t.json")


def test_args_that_would_fill_the_memory_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.json").write_bytes(OURS + b",".join([nested(30)] * 5) + b"]}")
    assert len(load(tmp_path / "t.json").extra) == 5
    monkeypatch.setattr(chrome_read, "MOST_UNKNOWN", 30)
    trace = load(tmp_path / "t.json")
    assert (len(trace), len(trace.extra)) == (5, 2)
    assert trace.meta.warnings == (
        "args that only viewers show are left out of 3 spans: there are too many for memory",
    )


@pytest.mark.parametrize("pieces", [1, 7, 64, 1 << 10])
def test_a_file_is_the_same_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    rows = [
        {"ph": "X", "name": f"é{n}", "cat": "cpu.work", "pid": 0, "tid": n % 3, "ts": n, "dur": 1} for n in range(50)
    ]
    named = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 2, "args": {"name": "last"}}
    text = json.dumps({"traceEvents": [*rows, 7, [{}, {}], named], "cbprof": {"rank": 3}}, ensure_ascii=False, indent=1)
    (tmp_path / "t.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    whole = load(tmp_path / "t.json")
    monkeypatch.setattr("cbprof.formats.bytes.stream.PIECE", pieces)
    trace = chrome_read.load(tmp_path / "t.json")
    assert [trace.name_of(row) for row in range(len(trace))] == [f"é{n}" for n in range(50)]
    assert (trace.lanes, trace.meta) == (whole.lanes, whole.meta)
    assert [lane.name for lane in trace.lanes] == ["last", "thread 0", "thread 1"]
    assert (trace.meta.rank, trace.complete, trace.meta.health["n_dropped"]) == (3, True, 2)


@pytest.mark.parametrize(
    "broken", ['[{"ph":1} {"ph":2}]', "[{},]", "[,{}]", "[{}:{}]", "[{}]]", "[{}", '{"a" 1,"x":2}']
)
def test_brackets_and_commas_that_are_not_in_order(tmp_path: Path, broken: str) -> None:
    event = '{"ph":"X","name":"x","cat":"cpu.work","pid":0,"tid":1,"ts":0,"dur":1}'
    text = broken.replace("{}", event).replace('{"ph":1}', event).replace('{"ph":2}', event)
    text = text.replace('"x":2', f'"traceEvents":[{event}]')
    (tmp_path / "t.json").write_text(text)
    trace = load(tmp_path / "t.json")
    assert (len(trace), trace.complete) == (text.count("cpu.work"), False)


# Numbers beyond all columns


HUGE = [1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, -(1 << 63), -(10**30)]
VERBS = ["report", "report --json", "doctor", "hazards", "predict", "convert {} out.json", "plot --no-open -o p.html"]


def ours(number: int) -> Iterator[dict[str, Any]]:
    span = {"ph": "X", "name": "x", "cat": "gpu.compute", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.25}
    yield span
    for key in ("pid", "tid", "ts", "dur"):
        yield span | {key: number}
    for key in ("step", "slot", "link", "tokens"):
        yield span | {"args": {key: number}}
    yield span | {"cat": "cpu.work", "pid": 0, "args": dict.fromkeys(("step", "tokens", "requests", "context"), number)}
    yield {"ph": "M", "name": "thread_name", "pid": number, "tid": number, "args": {"name": "x", "rank": number}}
    yield {"ph": "M", "name": "batch", "pid": 0, "args": {"step": number, "tokens": number}}
    yield {"ph": "i", "name": "token", "cat": "request", "ts": 1, "args": {"request": number}}


def kineto(number: int) -> Iterator[dict[str, Any]]:
    args = {"device": 0, "stream": 7, "correlation": 3}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": args}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4, "tid": 5, "ts": 1, "dur": 2}
    yield kernel
    yield call | {"args": {"correlation": 3}}
    for key in ("pid", "tid", "ts", "dur"):
        yield kernel | {key: number}
        yield call | {key: number}
    for key in ("device", "stream", "correlation"):
        yield kernel | {"args": args | {key: number}}
    mark = {"ph": "X", "cat": "user_annotation", "pid": 4, "tid": 5, "ts": 0, "dur": 50}
    for name in (
        "execute_context_1({0})_generation_{0}(sq{0}sk{0})",
        "ProfilerStep#{0}",
        "step[DECODE bs={0} toks={0}]",
    ):
        yield mark | {"name": name.format(abs(number))}
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"[TP{abs(number)}] GPU {number}"}}
    yield {"ph": "s", "name": "launch", "id": number, "pid": number, "tid": number, "ts": number}


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("events", [ours, kineto])
def test_numbers_that_fit_no_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Callable[[int], Iterator[dict[str, Any]]], number: int
) -> None:
    from typer.testing import CliRunner

    from cbprof.cli.main import app
    from cbprof.errors import CbprofError

    facts = {"rank": number, "world_size": number, "base_time_ns": number, "tokens": number, "clock_error_ns": number}
    fields: dict[str, Any] = {
        "baseTimeNanoseconds": number,
        "distributedInfo": {"rank": number, "world_size": number},
        "traceEvents": list(events(number)),
    }
    if events is ours:
        fields["cbprof"] = facts
    monkeypatch.chdir(tmp_path)
    Path("t.json").write_text(json.dumps(fields))
    for verb in VERBS:
        line = verb.format("t.json").split() if "{}" in verb else [*verb.split(), "t.json"]
        result = CliRunner().invoke(app, line)
        assert result.exception is None or isinstance(result.exception, CbprofError | SystemExit), (
            verb,
            result.exception,
        )
    assert load("t.json").start_ns.tolist()


# Time


def test_lanes_without_end(tmp_path: Path) -> None:
    """Each span on a thread of its own: no table of lanes by lanes, and no look through all of them for each."""
    builder = TraceBuilder()
    stream = builder.lane(Lane("compute", 0))
    for row in range(6_000):
        lane = builder.lane(Lane(f"thread {row}"))
        builder.span(lane, Kind.CPU_WORK, "op", 100 * row, 50, link=row)
        builder.span(stream, Kind.GPU_COMPUTE, "gemm", 100 * row + 40, 60, link=row)
    save(builder.build(), tmp_path / "t.json")
    done = run("report", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    done = run("convert", tmp_path / "t.json", tmp_path / "u.json")
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "u.json").lanes == load(tmp_path / "t.json").lanes


def test_spans_that_are_never_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every event is looked at a few times at most, whatever is open."""
    seen = []
    original = columns._Edge.__getattribute__

    def counted(edge: Any, name: str) -> Any:
        seen.append(name)
        return original(edge, name)

    monkeypatch.setattr(columns._Edge, "__getattribute__", counted)
    size = 2000
    event = columns.TextEvent
    collector = columns.Collector()
    for number in range(size):
        collector._edges.append(columns._Edge(True, number, event(name=f"b{number}", pid=1, tid=1)))
        collector._edges.append(columns._Edge(False, number, event(name=f"e{number}", pid=1, tid=1)))
    assert len(collector.spans()) == 0
    assert collector.n_unmatched == size
    assert len(seen) < 40 * size
