"""trace.json: what is written, that nothing is lost on the way there and back, and how the writer treats the disk."""

from __future__ import annotations

import gzip
import json
import math
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trace_samples import contents, small_trace, traces

from cbprof import __version__
from cbprof.errors import CbprofError, DataError, UsageError
from cbprof.formats import TraceWriter, load, save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, SpanSink, Trace, TraceBuilder


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


def tokens_of_one_step(*requests: int) -> Trace:
    """One event of the file, where it can be."""
    builder = TraceBuilder()
    builder.tokens(requests, 5)
    return builder.build()


@given(traces(), st.sampled_from(["trace.json", "trace.json.gz"]))
@example(small_trace(), "trace.json")
@example(tokens_of_one_step(3, 4, 4, 9), "trace.json")
@example(tokens_of_one_step(-2, 0, (1 << 63) - 1), "trace.json")
@example(tokens_of_one_step(*range(70_000)), "trace.json")
@settings(max_examples=60)
def test_a_trace_survives_the_round_trip(tmp_path_factory: pytest.TempPathFactory, trace: Trace, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / name
    assert save(trace, path) == path
    back = load(path)
    assert contents(back) == contents(trace)
    assert back.complete
    assert back.meta.health == {"n_events_recovered": len(trace) + len(trace.requests), "n_dropped": 0}
    save(back, path)
    again = load(path)
    assert contents(again) == contents(back)
    assert again.meta == back.meta


@pytest.mark.parametrize(
    "name", ['"quoted" \\ back', "</script><script>", "\x00\x1f\n\u2028", "Prüfung 試験 🙂", ""], ids=ascii
)
def test_any_name_survives(folder: Path, name: str) -> None:
    builder = TraceBuilder()
    builder.span(builder.lane(Lane(name)), Kind.CPU_WORK, name, 0, 1, extra={name: name})
    trace = builder.build(Meta.parse({name + "!": name}))
    assert contents(load(save(trace, folder / "t.json"))) == contents(trace)


FILE = """\
{"displayTimeUnit": "ms",
"otherData": {"producer":"cbprof VERSION"},
"cbprof": {"schema":1,"mode":"async","evidence":"cuda_events","workload":{"batch":32},"complete":false},
"traceEvents": [
{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"host"}},
{"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"engine"}},
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"GPU 0"}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"compute"}},
{"ph":"X","name":"schedule","cat":"cpu.work","pid":0,"tid":1,"ts":0.000,"dur":68.812,\
"args":{"step":0,"tokens":4096,"requests":32,"context":4096,"phase":"prefill"}},
{"ph":"X","name":"compute","cat":"gpu.compute","pid":1,"tid":1,"ts":91.040,"dur":7312.001,\
"args":{"step":0,"slot":0,"link":7}},
{"ph":"i","name":"arrive","cat":"request","s":"p","pid":0,"tid":0,"ts":-0.005,"args":{"request":3}},
{"ph":"i","name":"finish","cat":"request","s":"p","pid":0,"tid":0,"ts":9000.000,"args":{"request":3}}
],
"cbprof_end": {"complete":true}}
"""


def test_the_file_is_the_format_that_is_described(folder: Path) -> None:
    assert save(small_trace(), folder / "trace.json").read_text() == FILE.replace("VERSION", __version__)


def test_gzip_goes_by_the_name_and_gives_the_same_bytes_twice(folder: Path) -> None:
    plain, packed = save(small_trace(), folder / "t.json"), save(small_trace(), folder / "t.json.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    first = packed.read_bytes()
    assert save(small_trace(), packed).read_bytes() == first


def test_what_json_has_no_word_for_is_still_json(folder: Path) -> None:
    builder = TraceBuilder()
    odd = {
        "nan": math.nan,
        "path": Path("/x"),
        "np": np.int64(7),
        "deep": [math.inf, {"f": np.float32(0.5)}],
        "array": np.array([1.5, math.nan]),
    }
    builder.span(builder.lane(Lane("engine")), Kind.CPU_WORK, "x", 0, 1, extra=odd)
    back = load(save(builder.build(Meta.parse({"odd": odd})), folder / "t.json"))
    expected = {"nan": None, "path": "/x", "np": 7, "deep": [None, {"f": 0.5}], "array": [1.5, None]}
    assert back.extra[0] == expected == back.meta.extra["odd"]


def test_the_end_wins_over_the_head(folder: Path) -> None:
    writer = TraceWriter(folder / "t.json", Meta.parse({"mode": "sync", "tokens": 0, "otherData": {"host": "a"}}))
    writer.close(Meta.parse({"complete": False, "tokens": 5, "clock_error_ns": 7000}))
    trace = load(folder / "t.json")
    health = trace.meta.health
    facts = {"mode": "sync", "tokens": 5, "clock_error_ns": 7000, "complete": False}
    other = {"producer": f"cbprof {__version__}", "host": "a"}
    assert trace.meta == Meta.parse(facts | {"health": health, "otherData": other})
    assert load(save(trace, folder / "u.json")).meta == trace.meta


def test_lanes_have_the_rank_of_the_file(folder: Path) -> None:
    lanes = (Lane("engine", rank=2), Lane("compute", 0), Lane("compute", 0, rank=5), Lane("compute", 1, rank=2))
    writer = TraceWriter(folder / "t.json", Meta.parse({"rank": 2, "base_time_ns": 12}))
    assert [writer.lane(lane) for lane in (*lanes, lanes[1])] == [0, 1, 2, 3, 1]
    trace = load(writer.close(Meta.parse({})))
    assert trace.lanes == (lanes[0], Lane("compute", 0, rank=2), *lanes[2:])
    assert (trace.meta.rank, trace.meta.base_time_ns) == (2, 12)


# The facts of a batch


def carriers(path: Path) -> dict[int, str]:
    """The name of the event that carries the facts of each step."""
    events = json.loads(path.read_text())["traceEvents"]
    return {event["args"]["step"]: event["name"] for event in events if "tokens" in event.get("args", {})}


def write_facts(sink: SpanSink, step: int) -> None:
    sink.batch(step, tokens=step + 10, requests=2, context=30, phase="decode")


def test_facts_ride_on_the_schedule_span_or_the_next_one_of_their_step(folder: Path) -> None:
    writer = TraceWriter(folder / "t.json", Meta.parse({}))
    engine = writer.lane(Lane("engine"))
    write_facts(writer, 0)  # before its schedule span, which ends after the spans within it
    for name, step in (("scan", 0), ("schedule", 0), ("prepare", 0), ("schedule", 1)):
        writer.span(engine, Kind.CPU_WORK, name, 0, 1, step=step)
    write_facts(writer, 1)  # after its schedule span
    writer.span(engine, Kind.CPU_WAIT, "wait", 0, 1, step=1)
    writer.span(engine, Kind.CPU_WORK, "prepare", 0, 1, step=1)
    write_facts(writer, 2)  # no span of step 2 follows
    path = writer.close(Meta.parse({}))
    assert carriers(path) == {0: "schedule", 1: "prepare", 2: "batch"}
    trace = load(path)
    assert trace.steps.step.tolist() == [0, 1, 2]
    assert trace.steps.tokens.tolist() == [10, 11, 12]
    assert not trace.extra


def test_incomplete_facts_stay_where_they_are(folder: Path) -> None:
    builder = TraceBuilder()
    engine = builder.lane(Lane("engine"))
    builder.span(engine, Kind.CPU_WORK, "schedule", 0, 1, step=0, extra={"tokens": 5, "phase": "decode"})
    odd = {"tokens": "5", "requests": 1, "context": 1, "phase": "decode"}
    builder.span(engine, Kind.CPU_WORK, "schedule", 1, 1, step=1, extra=odd)
    trace = load(save(builder.build(), folder / "t.json"))
    assert trace.extra == {0: {"tokens": 5, "phase": "decode"}, 1: odd}
    assert len(trace.steps) == 0


def test_a_column_wins_over_an_extra_of_its_name(folder: Path) -> None:
    builder = TraceBuilder()
    extra = {"step": "third", "slot": 9, "note": 1}
    builder.span(builder.lane(Lane("engine")), Kind.CPU_WORK, "x", 0, 1, slot=1, extra=extra)
    trace = load(save(builder.build(), folder / "t.json"))
    assert (trace.step[0], trace.slot[0]) == (-1, 1)
    assert trace.extra == {0: {"step": "third", "note": 1}}


# The disk


def test_the_target_is_only_replaced_by_a_finished_file(folder: Path) -> None:
    target, part = folder / "t.json", folder / "t.json.part"
    target.write_text("old")
    writer = TraceWriter(target, Meta.parse({}))
    writer.span(writer.lane(Lane("engine")), Kind.CPU_WORK, "x", 0, 1)
    writer.flush()
    assert (target.read_text(), len(load(part))) == ("old", 1)
    assert writer.close(Meta.parse({})) == target
    assert len(load(target)) == 1
    assert not part.exists()
    writer.abandon()
    assert target.exists()


def test_an_abandoned_file_is_gone(folder: Path) -> None:
    TraceWriter(folder / "t.json.gz", Meta.parse({})).abandon()
    assert not list(folder.iterdir())


def test_many_lines_are_written_in_pieces(folder: Path) -> None:
    writer = TraceWriter(folder / "t.json", Meta.parse({}))
    engine = writer.lane(Lane("engine"))
    for step in range(10_000):
        writer.span(engine, Kind.CPU_WORK, "x", step * 10, 5, step=step)
    assert writer.part.stat().st_size > 500_000
    assert load(writer.close(Meta.parse({}))).step.tolist() == list(range(10_000))


def test_a_negative_duration_is_a_bug_of_the_caller(folder: Path) -> None:
    writer = TraceWriter(folder / "t.json", Meta.parse({}))
    with pytest.raises(ValueError, match="negative duration"):
        writer.span(writer.lane(Lane("engine")), Kind.CPU_WORK, "x", 0, -1)
    writer.abandon()


def one_line(error: pytest.ExceptionInfo[CbprofError], *parts: str) -> None:
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


def test_where_no_file_can_be_begun(folder: Path) -> None:
    for target, complaint in (
        (folder, "is not a file"),
        (Path("/dev/null"), "is not a file"),
        (folder / "no" / "t.json", f"there is no folder {folder / 'no'}"),
        (folder / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(UsageError) as error:
            TraceWriter(target, Meta.parse({}))
        one_line(error, str(target), complaint, "write elsewhere")
    assert not list(folder.iterdir())


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond 40 kB: a write past it fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def add_spans(sink: SpanSink) -> None:
    engine = sink.lane(Lane("engine"))
    for index in range(20_000):
        sink.span(engine, Kind.CPU_WORK, "x", index * 7919, index * index % 997, step=index)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_one_line_and_keeps_what_was_written(folder: Path, name: str) -> None:
    writer = TraceWriter(folder / name, Meta.parse({}))
    with pytest.raises(DataError) as error:
        add_spans(writer)
    one_line(error, str(folder / name), "File too large", "write elsewhere")
    with pytest.raises(DataError, match="File too large"):
        writer.close(Meta.parse({}))
    assert list(folder.iterdir()) == [writer.part]
    trace = load(writer.part)
    assert len(trace) > 100
    assert not trace.complete


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.usefixtures("full_disk")
def test_a_save_that_fails_leaves_nothing(folder: Path, name: str) -> None:
    builder = TraceBuilder()
    add_spans(builder)
    with pytest.raises(DataError, match="File too large"):
        save(builder.build(), folder / name)
    assert not list(folder.iterdir())
