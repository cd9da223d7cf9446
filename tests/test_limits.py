"""Files that are built to cost much: they are read, or refused in one line, in bounded memory and linear time."""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import ascend_samples
import nsys_samples
import pytest
import rocm_samples

from cbprof.analysis.summary import summarize
from cbprof.errors import DataError
from cbprof.formats import load, save
from cbprof.formats.bytes import stream
from cbprof.formats.chrome import document
from cbprof.formats.chrome import read as chrome_read
from cbprof.formats.kineto import columns
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

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


LOAD_ALL = """
import resource, sys
from cbprof.errors import DataError
from cbprof.formats import importers, load
from cbprof.formats.kineto import read
from cbprof.formats.rocm import rocprofv3
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try: load(path, alone=True, cached=False)
    except DataError as error: print(error)
"""


def test_small_files_that_would_fill_the_memory_of_a_process(tmp_path: Path) -> None:
    """Each of them would take more than 200 MB: defaults of 1 MB in SQLite, records and texts of some bytes in JSON."""
    tables = nsys_samples.one_step() | {"META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION",)] * 400}
    for name, column in (("nsys.sqlite", "value"), ("names.sqlite", "name")):
        other = "name" if column == "value" else "value"
        nsys_samples.write_export(tmp_path / name, tables, columns={"META_DATA_EXPORT": other})
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute(f"ALTER TABLE META_DATA_EXPORT ADD COLUMN {column} DEFAULT '{'x' * (1 << 20)}'")
            connection.commit()
    rocm_samples.write_rocpd(tmp_path / "rocpd.db")
    with closing(sqlite3.connect(tmp_path / "rocpd.db")) as connection:
        connection.execute("DROP VIEW rocpd_metadata")
        connection.execute("CREATE TABLE rocpd_metadata_1 (id, tag)")
        connection.execute("DROP TABLE rocpd_metadata_00000000")
        connection.execute("ALTER TABLE rocpd_metadata_1 RENAME TO rocpd_metadata_00000000")
        connection.executemany("INSERT INTO rocpd_metadata_00000000 VALUES (?, ?)", [(n, n) for n in range(400)])
        connection.execute(f"ALTER TABLE rocpd_metadata_00000000 ADD COLUMN value DEFAULT '{'x' * (1 << 20)}'")
        connection.commit()
    head = b'{"rocprofiler-sdk-tool":[{"buffer_records":{"hip_api":['
    packed(tmp_path / "rocprofv3.json.gz", head, b"{},", 12 << 20)
    names_head = b'{"rocprofiler-sdk-tool":[{"strings":{"buffer_records":[{"operations":['
    packed(tmp_path / "texts.json.gz", names_head, b'"ab",', 15 << 20)
    names = ["nsys.sqlite", "names.sqlite", "rocpd.db", "rocprofv3.json.gz", "texts.json.gz"]
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.stderr == ""
    why = ["its texts are longer than the file"] * 3 + ["its records are smaller than any"] * 2
    assert [part in line for part, line in zip(why, done.stdout.splitlines(), strict=True)] == [True] * 5, done.stdout


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


def read_or_refused(path: Path) -> Trace | None:
    """What it holds; None where that is refused in one line."""
    try:
        return load(path)
    except DataError as error:
        if "\n" in str(error):
            raise
        return None


def in_nsys(path: Path, number: int) -> Iterator[Path]:
    """Exports in which one number is so large; SQLite has it as a float where 64 bits do not hold it."""
    large = number if -(1 << 63) <= number < 1 << 63 else float(number)
    process, thread = nsys_samples.pid(7), nsys_samples.tid(7, 9)
    kernel: list[Any] = [1000, 3000, 0, 13, 1, process, nsys_samples.GEMM, nsys_samples.GEMM]
    ranks, begin = {"MPI_RANKS": [(process, 0)]}, {"TARGET_INFO_SESSION_START_TIME": [(0,)]}
    tables = {**nsys_samples.one_step(), **ranks, **begin}
    for column in range(len(kernel)):
        yield write_nsys(
            path, tables | {nsys_samples.KERNEL: [kernel, [*kernel[:column], large, *kernel[column + 1 :]]]}
        )
    yield write_nsys(path, tables | {nsys_samples.RUNTIME: [(900, 950, large, 1, 2), (900, 950, thread, large, large)]})
    yield write_nsys(path, tables | {"MPI_RANKS": [(process, large), (large, 0)]})
    yield write_nsys(path, tables | {"TARGET_INFO_SESSION_START_TIME": [(large,)]})


def write_nsys(path: Path, tables: dict[str, Any]) -> Path:
    path.unlink(missing_ok=True)
    more = {"MPI_RANKS": "globalPid, rank", "TARGET_INFO_SESSION_START_TIME": "utcEpochNs"}
    return nsys_samples.write_export(path, tables, columns=more)


def in_rocpd(path: Path, number: int) -> Iterator[Path]:
    large = number if -(1 << 63) <= number < 1 << 63 else float(number)
    path.unlink(missing_ok=True)
    rocm_samples.write_rocpd(path)
    columns = {
        "kernel_dispatch": ("start", "end", "agent_id", "stream_id", "pid", "event_id", "kernel_id"),
        "region": ("start", "tid", "nid", "name_id"),
        "event": ("stack_id", "category_id"),
        "info_agent": ("absolute_index", "type_index", "nid"),
        "info_process": ("pid",),
        "info_thread": ("tid",),
    }
    for table, names in columns.items():
        for name in names:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f'UPDATE rocpd_{table}_00000000 SET "{name}" = ? WHERE id = 2 OR id = 1', (large,))
                connection.commit()
                yield path


def in_rocprofv3(path: Path, number: int) -> Iterator[Path]:
    text = json.dumps(rocm_samples.rocprofv3())
    keys = (
        "pid",
        "thread_id",
        "internal",
        "handle",
        "start_timestamp",
        "end_timestamp",
        "kind",
        "operation",
        "node_id",
    )
    for key in (*keys, "logical_node_type_id", "key", "kernel_id", "type"):
        path.write_text(re.sub(rf'"{key}": -?\d+', f'"{key}": {number}', text, count=3))
        yield path


def in_ascend(path: Path, number: int) -> Iterator[Path]:
    text = json.dumps(ascend_samples.one_step())
    for old in ("NPU 3", "Stream 2", "Group 0", "hcom_allReduce__929", '"dur": 100', '"tid": 1', '"pid": 300'):
        words, _, last = old.rpartition(" ")
        path.write_text(text.replace(old, f"{words} {number}" if last.isdigit() else f"execute_context_{number}(1)"))
        yield path


@pytest.mark.parametrize(
    "number", [*HUGE, int("9" * 4300), -1], ids=lambda number: f"{len(str(number))}-digits-{number % 7}"
)
@pytest.mark.parametrize("files", [in_nsys, in_rocpd, in_rocprofv3, in_ascend])
def test_numbers_that_fit_no_column_of_other_formats(
    tmp_path: Path, files: Callable[[Path, int], Iterator[Path]], number: int
) -> None:
    """Each is read, or refused in one line; what is read fits into a file of ours."""
    if len(str(number)) > 300 and files in (in_nsys, in_rocpd):
        pytest.skip("a float does not hold it either")
    for path in files(tmp_path / "t", number):
        if (trace := read_or_refused(path)) is None:
            continue
        assert all(-1 <= lane.device < 1 << 31 and -1 <= lane.rank < 1 << 31 for lane in trace.lanes)
        json.dumps(summarize(trace).to_json(gaps="all"), allow_nan=False)
        save(trace, tmp_path / "u.json")
        assert load(tmp_path / "u.json").start_ns.tolist() == trace.start_ns.tolist()


def test_text_that_is_a_number_of_too_many_digits_for_python(tmp_path: Path) -> None:
    many = "9" * 5000
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4, "tid": 5, "ts": 1, "dur": 2}
    for row in (many, f"stream {many}", f"stream #{many} compute"):
        for more in ({"tid": row}, {"args": {"stream": row}}, {"args": {"device": many}}, {"pid": many}):
            rows = [
                call,
                event | more,
                {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": row}},
            ]
            (tmp_path / "t.json").write_text(json.dumps({"traceEvents": rows}))
            assert len(load(tmp_path / "t.json")) == 2
    for old in ("NPU 3", "Stream 2"):
        text = json.dumps(ascend_samples.one_step())
        (tmp_path / "t.json").write_text(text.replace(old, f"{old.split()[0]} {many}"))
        assert len(load(tmp_path / "t.json")) > 5


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), 10**30])
@pytest.mark.parametrize("what", ["origin_ns", "link", "request", "pid"])
def test_processes_whose_numbers_do_not_fit_together(tmp_path: Path, what: str, number: int) -> None:
    for process, large in enumerate((0, number, number)):
        said = {"pid": process, "origin_ns": 0} | ({what: large} if what in ("origin_ns", "pid") else {})
        span = {"ph": "X", "name": "x", "cat": "cpu.work", "pid": 0, "tid": 1, "ts": 5, "dur": 1, "args": {"link": 1}}
        moment = {"ph": "i", "name": "arrive", "cat": "request", "ts": 1, "args": {"request": 1}}
        if what == "link":
            span["args"] = {"link": large}
        elif what == "request":
            moment["args"] = {"request": large}
        document = {"traceEvents": [span, moment], "cbprof": {"schema": 1, "process": said}}
        (tmp_path / f"t.process-{process}.json").write_text(json.dumps(document))
    trace = read_or_refused(tmp_path)
    fits = what == "pid" or (what != "origin_ns" and (number < 0 or number > 1 << 63))  # else of no link or request
    assert (trace is not None and len(trace) == 3) if fits else trace is None


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
