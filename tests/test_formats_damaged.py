"""Files that are cut, damaged, malformed, foreign, or no traces: what can be had is had, the rest is one clear line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import contents, small_trace, traces

from cbprof.errors import DataError
from cbprof.formats import load, save
from cbprof.formats.bytes import content
from cbprof.formats.bytes.stream import GZIP_MAGIC
from cbprof.formats.tables import write_csv
from cbprof.trace import Lane, Trace

DATA = Path(__file__).parent / "data"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes bytes, text, or anything else as JSON."""

    def write(value: Any, name: str = "t.json") -> Path:
        data = value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


def native(*events: Any, **head: Any) -> dict[str, Any]:
    return {"cbprof": {"schema": 1, **head}, "traceEvents": list(events)}


def span(**changes: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "x", "cat": "cpu.work", "pid": 0, "tid": 1, "ts": 1.5, "dur": 2.25} | changes


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


# A file that is cut


def is_whole(line: bytes) -> bool:
    try:
        return bool(json.loads(line.rstrip(b",")))
    except ValueError:
        return False


def check_cut(path: Path, trace: Trace, inflated: bytes, complete: bool) -> None:
    """``path`` holds ``inflated``, the beginning of the file of ``trace``."""
    lines = inflated.split(b"\n")
    n_spans = sum(line.startswith(b'{"ph":"X"') and is_whole(line) for line in lines)
    n_moments = sum(line.startswith(b'{"ph":"i"') and is_whole(line) for line in lines)
    if not complete and n_spans + n_moments == 0:
        assert "before its first" in refusal(path) or not inflated
        return
    back = load(path)
    assert back.complete is complete
    assert back.meta.health == {"n_events_recovered": n_spans + n_moments, "n_dropped": 0}
    found, expected = contents(back), contents(trace)
    for column in ("start_ns", "dur_ns", "names", "link", "step", "slot", "kind"):
        assert found[column] == expected[column][:n_spans]
    assert found["requests"] == [column[:n_moments] for column in expected["requests"]]
    assert found["meta"] == expected["meta"]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_file_cut_at_each_byte(tmp_path: Path, name: str) -> None:
    trace = small_trace()
    data = save(trace, tmp_path / name).read_bytes()
    for size in range(len(data) + 1):
        check_one_cut(tmp_path / "cut", trace, data, size)


@given(traces(), st.booleans(), st.floats(0, 1))
@settings(max_examples=60)
def test_any_file_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, packed: bool, share: float
) -> None:
    folder = tmp_path_factory.getbasetemp()
    data = save(trace, folder / ("cut.json.gz" if packed else "cut.json")).read_bytes()
    check_one_cut(folder / "cut", trace, data, round(share * len(data)))


def check_one_cut(path: Path, trace: Trace, data: bytes, size: int) -> None:
    cut = data[:size]
    path.write_bytes(cut)
    if data.startswith(GZIP_MAGIC):
        inflated = zlib.decompressobj(wbits=31).decompress(cut) if size > 1 else b""
        check_cut(path, trace, inflated, complete=size == len(data))
    else:
        check_cut(path, trace, cut, complete=size >= len(data) - 1)  # all but the last line feed


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_killed_run_leaves_what_was_flushed(tmp_path: Path, name: str) -> None:
    script = f"""
import os, pathlib, signal
from cbprof.formats import TraceWriter
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane
writer = TraceWriter(pathlib.Path({str(tmp_path / name)!r}), Meta.parse({{"mode": "sync"}}))
engine = writer.lane(Lane("engine"))
for step in range(1000):
    writer.span(engine, Kind.CPU_WORK, "schedule", 1000 * step, 500, step=step)
writer.flush()
writer.span(engine, Kind.CPU_WORK, "unflushed", 0, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.part"]
    trace = load(tmp_path / f"{name}.part")
    assert trace.step.tolist() == list(range(1000))
    assert (trace.complete, trace.mode) == (False, "sync")


def test_a_damaged_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    data = bytearray(save(small_trace(), tmp_path / "t.json.gz").read_bytes())
    data[-8] ^= 1  # the checksum
    (tmp_path / "t.json.gz").write_bytes(data)
    trace = load(tmp_path / "t.json.gz")
    assert (len(trace), trace.complete) == (2, False)


def test_gzip_members_in_a_row_are_one_file(tmp_path: Path) -> None:
    data = save(small_trace(), tmp_path / "t.json").read_bytes()
    path = tmp_path / "named.txt"
    path.write_bytes(gzip.compress(data[:300]) + gzip.compress(data[300:]) + b"\0" * 20)
    assert contents(load(path)) == contents(small_trace())
    assert load(path).complete


def test_a_file_that_grows_beyond_the_limit_is_refused(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "MAX_BYTES", 1 << 20)
    head = b'{"cbprof": {"schema": 1}, "traceEvents": ['
    bomb = gzip.compress(head + b" " * (64 << 20))
    assert "more than 1 MiB" in refusal(write(bomb, "t.json.gz"))
    assert "more than 1 MiB" in refusal(write(head + b" " * (1 << 20)))


# Not a trace


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b", "before its first whole event"),
        (b"\x7fEL\x02", "starts with '\\x7f'"),
        (b"\xff\xfe{", "not a trace"),
        (b"step,start\n1,2\n", "starts with 's'"),
        (b"{", "before its first whole event"),
        (b'{"cbprof": {"schema": 1}, "traceEvents": [', "before its first whole event"),
        (b'{"cbprof": {"schema": 1}, "traceEvents": [{"ph": "M"}', "before its first span"),
        (b'{"cbprof": nul}', "before its first whole event"),
        (b"{}", "no list `traceEvents`"),
        (b'{"schema": "1.0", "nodes": []}', "no list `traceEvents`"),
        (b'{"a\\nb": 1, "traceEvents": {}}', "no list `traceEvents`"),
        (b"[]", "not a trace"),
        (b"[1, 2, null]", "not a trace"),
        (b"[" * 200_000, "not a trace"),
        (b'[{"ph": "X", "cat": "cpu.work", "args": ' + b'{"a":' * 200_000, "nested too deeply"),
        (b'{"traceEvents": [{"name": "x", "ts": 1, "dur": 1}]}', "has a phase"),
        (b'{"schemaVersion": 1, "traceEvents": [', "before its first whole event"),
        (b"SQLite format 3\0...", "an SQLite database"),
        (b'{"cbprof": {"schema": 2}, "traceEvents": []}', "schema is '2', this version reads 1"),
        (b'{"cbprof": {"schema": "x\\ny"}, "traceEvents": []}', "schema is 'x\\ny'"),
        (b'{"cbprof": {"schema": null}, "traceEvents": []}', "schema is 'None'"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_no_trace_is_one_line(write: Callable[..., Path], data: bytes, part: str) -> None:
    assert part in refusal(write(data))


def test_no_file_is_one_line(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "t.json")
    assert "is a folder" in refusal(tmp_path)
    assert "File name too long" in refusal(tmp_path / ("x" * 300))


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123eE.-+ \\n"phXcatstdurcbprof').map(str.encode))
@settings(max_examples=60)
def test_junk_never_crashes(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk"
    for data in (junk, b'{"cbprof":{},"traceEvents":[{"ph":"X","cat":"cpu.work",' + junk, GZIP_MAGIC + junk):
        path.write_bytes(data)
        assert "\n" not in complaint(path)


def complaint(path: Path) -> str:
    try:
        load(path)
    except DataError as error:
        return str(error)
    return ""


# Native, but not as cbprof writes it


MALFORMED: list[Any] = [
    *(span(ts=value) for value in (None, "1.5", float("nan"), float("inf"), 1e308, -1e17, True, [], 10**40)),
    *(span(dur=value) for value in (None, "1", -0.001, float("nan"), 1e17)),
    *(span(name=value) for value in (None, 7, [])),
    *(span(pid=value) for value in (-1, "0", None, 1.0, [])),
    *(span(tid=value) for value in (None, [], {})),
    {key: value for key, value in span().items() if key != "ts"},
    {key: value for key, value in span().items() if key != "pid"},
    span(cat=[]),
    {"ph": "i", "cat": "request", "name": "token", "ts": 1},
    {"ph": "i", "cat": "request", "name": "tokens", "ts": 1, "args": {"requests": [3]}},
    {"ph": "i", "cat": "request", "name": "token", "ts": 1, "args": {"request": "3"}},
    {"ph": "i", "cat": "request", "name": "token", "ts": None, "args": {"request": 3}},
    {"name": "no phase"},
    7,
    "text",
    None,
    [],
]


@pytest.mark.parametrize("event", MALFORMED, ids=lambda event: ascii(event)[:80])
def test_a_malformed_event_is_dropped_and_counted(write: Callable[..., Path], event: Any) -> None:
    trace = load(write(native(span(), event, span(ts=9))))
    assert trace.start_ns.tolist() == [1500, 9000]
    assert trace.meta.health == {"n_events_recovered": 2, "n_dropped": 1}
    assert trace.complete


def test_half_a_surrogate_pair_in_a_name_is_replaced(write: Callable[..., Path], tmp_path: Path) -> None:
    lane = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "lane \ud83d"}}
    trace = load(write(native(lane, span(name="é\ud83d"), span(name="é\ud83d\ude00"))))
    assert (trace.names, trace.lanes[0].name) == (("é\ufffd", "é\U0001f600"), "lane \ufffd")
    write_csv(trace, tmp_path / "t.csv")


def test_what_is_unknown_is_ignored(write: Callable[..., Path]) -> None:
    unknown = [
        span(cat="cpu.thought"),
        span(ph="B"),
        {key: value for key, value in span().items() if key != "cat"},
        {"ph": "C", "name": "memory", "ts": 1, "args": {"GB": 3}},
        {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 1, "args": {"sort_index": 1}},
        {"ph": "M", "name": "thread_name"},
        {"ph": "M", "name": "thread_name", "pid": -4, "tid": [], "args": {"name": "x"}},
        {"ph": "M", "name": "batch", "args": []},
        {"ph": "i", "cat": "request", "name": "daydream", "ts": 1, "args": {"request": 3}},
    ]
    trace = load(write(native(*unknown, span(color="red", args=[])) | {"colours": {}}))
    assert trace.meta.health == {"n_events_recovered": 1, "n_dropped": 0}
    assert trace.lanes == (Lane("thread 1"),)


def test_events_in_any_order_and_as_an_array(write: Callable[..., Path]) -> None:
    data = json.loads(save(small_trace(), write("")).read_text())
    expected = contents(small_trace())
    for order in (1, -1):
        trace = load(write(data["traceEvents"][::order]))
        found = contents(trace)
        for fact in ("start_ns", "dur_ns", "names", "step", "slot", "link", "kind", "steps", "requests", "extra"):
            assert found[fact] == expected[fact]
        assert set(trace.lanes) == {Lane("engine"), Lane("compute", device=0)}
        assert trace.complete


def test_an_array_without_its_end_is_cut(write: Callable[..., Path]) -> None:
    trace = load(write(json.dumps([span(), span(ts=7)])[:-1]))
    assert (len(trace), trace.complete) == (2, False)


def test_complete_is_what_a_whole_file_says(write: Callable[..., Path]) -> None:
    assert load(write(native(span()))).complete
    assert not load(write(native(span(), complete=False))).complete
    assert load(write(native(span(), complete=False) | {"cbprof_end": {"complete": True}})).complete
    assert load(write({"cbprof_end": 5, **native(span())})).complete


def test_keys_after_a_broken_end_are_kept_if_they_are_whole(write: Callable[..., Path]) -> None:
    text = json.dumps({"traceEvents": [span()], "cbprof": {"mode": "sync"}, "cbprof_end": {"tokens": 5}})
    trace = load(write(text[:-1]))
    assert (trace.mode, trace.meta.tokens, trace.complete) == ("sync", 5, False)


def test_times_are_exact_to_the_nanosecond(write: Callable[..., Path]) -> None:
    exact = {
        "0.001": 1,
        "-0.001": -1,
        "2251799813685.247": 2**51 - 1,
        "9007199254740.993": 2**53 + 1,
        "1767189312000000.001": 1767189312000000001,
        "-1767189312000000.001": -1767189312000000001,
        "4611686018427387.903": 2**62 - 1,
        "1767189312000000": 1767189312000000000,
        "1.5e3": 1_500_000,
        "0.1234567890123456789": 123,
    }
    events = ",".join(json.dumps(span(ts="@")).replace('"@"', text) for text in exact)
    trace = load(write(f"[{events}]"))
    assert trace.start_ns.tolist() == sorted(exact.values())


def test_floats_in_meta_and_args_stay_floats(write: Callable[..., Path]) -> None:
    value = {"share": [0.1234567890123456, 1.5]}
    trace = load(write(native(span(args=value), note=value)))
    assert trace.extra[0] == value == trace.meta.extra["note"]
    assert isinstance(trace.extra[0]["share"][0], float)


def test_lanes_without_a_name_and_lanes_of_one_name(write: Callable[..., Path]) -> None:
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": "worker"}}
        for tid in (1, 2, "main", 1)
    ]
    trace = load(write(native(span(pid=2, tid=7), span(tid=2), span(tid="main"), *named, rank=3)))
    names = [("worker", -1), ("worker (2)", -1), ("worker (main)", -1), ("stream 7", 1)]
    assert trace.lanes == tuple(Lane(name, device, rank=3) for name, device in names)
    assert sorted(trace.lane_id.tolist()) == [1, 2, 3]


@pytest.mark.parametrize("args", [{"step": "3"}, {"step": 1 << 31}, {"slot": 128}, {"link": 1 << 63}, {"step": True}])
def test_an_arg_that_fits_no_column_is_kept(write: Callable[..., Path], args: dict[str, Any]) -> None:
    trace = load(write(native(span(args=args))))
    assert (trace.step[0], trace.slot[0], trace.link[0]) == (-1, -1, -1)
    assert trace.extra == {0: args}


# Real files


@pytest.mark.parametrize(("mode", "n_spans"), [("sync", 79_374), ("async", 114_742)])
def test_native_traces_of_another_engine(mode: str, n_spans: int) -> None:
    trace = load(DATA / "h200_transformers" / f"{mode}_8b_bs32_8k.json.gz")
    assert (len(trace), trace.mode, trace.complete, trace.devices) == (n_spans, mode, True, (0,))
    assert trace.meta.health == {"n_events_recovered": n_spans, "n_dropped": 0}
    assert [lane.name for lane in trace.lanes] == ["generation loop", "compute", "h2d", "d2h"]
    assert trace.meta.other_data == {"producer": "probe over transformers 5.17.0"}
    assert not trace.extra


@pytest.mark.parametrize("name", ["golden.json", "not_a_chrome_trace.json.gz"])
def test_files_that_are_no_traces_are_refused(name: str) -> None:
    assert "no list `traceEvents`" in refusal(DATA / "public" / name)
