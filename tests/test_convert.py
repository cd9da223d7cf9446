"""``cbprof convert``: what comes out says what went in, arrows lead from launches, nothing is half written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from nsys_samples import GRAPH, KERNEL, MEMCPY, one_step, pid, write_export
from trace_samples import contents, small_trace, traces
from typer.testing import CliRunner

from cbprof.analysis.accounting.host import launches
from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import load, save
from cbprof.formats.tables import spans_table, write_parquet
from cbprof.trace import Trace

DATA = Path(__file__).parent / "data"


def convert(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)], catch_exceptions=True)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    tables = one_step() | {GRAPH: [(7000, 8000, 0, 13, 1, pid(7), 42, 43), (0, 0, 0, 13, 1, pid(7), 42, 43)]}
    return write_export(tmp_path / "profile.sqlite", tables)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_an_imported_trace_as_our_own(export: Path, name: str) -> None:
    target = export.with_name(name)
    result = convert(export, target)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {target}: 6 spans\n"
    before, after = load(export), load(target)
    assert contents(after) == contents(before)
    assert after.meta.health == {**before.meta.health, "n_events_recovered": 6}
    assert (before.meta.health["n_dropped"], after.complete) == (1, True)


def events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    found: list[dict[str, Any]] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]
    return found


def test_arrows_lead_from_each_launch_to_what_it_launched(export: Path) -> None:
    target = export.with_name("t.json")
    convert(export, target)
    arrows = [event for event in events(target) if event["ph"] in {"s", "f"}]
    begins = {event["id"]: event for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event for event in arrows if event["ph"] == "f"}
    spans = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in events(target) if e["ph"] == "X"}
    led = [
        tuple(spans[end["pid"], end["tid"], end["ts"]] for end in (begins[arrow], ends[arrow]))
        for arrow in sorted(begins)
    ]
    assert led == [
        ("cudaLaunchKernel", "gemm"),
        ("cudaStreamSynchronize", "Memcpy DtoH"),
        ("cudaLaunchKernel", "CUDA graph 42"),
    ]
    assert {event["bp"] for event in ends.values()} == {"e"}, "an arrow ends at the span that begins there"
    convert(export, target, "--no-flows")
    assert {event["ph"] for event in events(target)} == {"M", "X"}


@given(traces())
def test_arrows_are_for_viewers_alone(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    folder = tmp_path_factory.mktemp("arrows")
    save(trace, folder / "plain.json")
    save(trace, folder / "arrows.json", launch_of=launches(trace))
    assert contents(load(folder / "arrows.json")) == contents(load(folder / "plain.json"))


# Tables


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv(export: Path, name: str) -> None:
    target = export.with_name(name)
    assert convert(export, target).exit_code == 0
    table = pd.read_csv(target)
    assert list(table.columns) == [
        *("start_ns", "dur_ns", "name", "kind", "step", "slot", "link", "lane", "device", "rank"),
    ]
    assert table.iloc[2].tolist() == [1000, 2000, "gemm", "gpu.compute", -1, -1, table["link"][1], "stream 13", 0, -1]


@given(traces())
def test_a_table_has_every_span(trace: Trace) -> None:
    table = spans_table(trace)
    assert len(table) == len(trace)
    assert table["start_ns"].tolist() == trace.start_ns.tolist()
    assert table["rank"].tolist() == [trace.lanes[lane].rank for lane in trace.lane_id]
    if trace.extra:
        told = {row: json.loads(args) for row, args in enumerate(table["args"]) if isinstance(args, str)}
        assert told == {row: dict(args) for row, args in trace.extra.items()}


def test_parquet_or_how_to_get_it(tmp_path: Path) -> None:
    target, trace = tmp_path / "t.parquet", small_trace()
    try:
        from pyarrow import parquet
    except ImportError:
        with pytest.raises(UsageError, match=r"pip install cbprof\[parquet\]"):
            write_parquet(trace, target)
        assert list(tmp_path.iterdir()) == []
    else:
        write_parquet(trace, target)
        table = parquet.read_table(target)
        assert table["start_ns"].to_pylist() == trace.start_ns.tolist()
        assert json.loads(table.schema.metadata[b"cbprof"])["mode"] == "async"


# What cannot be written


@pytest.mark.parametrize("name", ["t", "t.txt", "t.html", "t.gz", "no/folder/t.json", "no/folder/t.csv"])
def test_targets_that_are_refused(export: Path, name: str) -> None:
    result = convert(export, export.with_name("x").parent / name)
    assert isinstance(result.exception, UsageError)
    assert "\n" not in str(result.exception)
    assert sorted(export.parent.iterdir()) == [export]


def test_a_file_is_not_converted_into_itself(tmp_path: Path) -> None:
    path = save(small_trace(), tmp_path / "t.json")
    before = path.read_bytes()
    assert isinstance(convert(path, path).exception, UsageError)
    assert path.read_bytes() == before


# Numbers after a round trip


@pytest.mark.parametrize("kinds", [(KERNEL,), (KERNEL, MEMCPY, GRAPH)])
def test_a_report_says_the_same_of_the_converted_trace(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    tables = one_step() | {GRAPH: [(7000, 8000, 0, 13, 1, pid(7), 42, 43)]}
    export = write_export(tmp_path / "t.sqlite", {name: rows for name, rows in tables.items() if name in kinds})
    assert_same_report(export, tmp_path / "t.json")


def assert_same_report(source: Path, target: Path) -> None:
    """All that a report says of devices, phases and steps."""
    assert convert(source, target).exit_code == 0
    reports = []
    for path in (source, target):
        result = CliRunner().invoke(app, ["report", str(path), "--json", "--gaps", "all"], catch_exceptions=False)
        reports.append(json.loads(result.stdout.replace(str(path), "FILE")))  # which advice names, too
        reports[-1].pop("file")
        reports[-1]["health"].pop("n_events_recovered", None)
        reports[-1].pop("format")
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    "name",
    [
        "cases/38-nsys-graph-trace-rows/trace.sqlite",
        "cases/40-nsys-nvtx-text-or-textid/trace.sqlite",
        "cases/11-cuda-graph-one-launch-many-kernels/trace.json",
        "cases/13-multi-gpu-same-stream-id/trace.json",
        "cases/21-epoch-us-timestamps-lose-ns/trace.json",
        "cases/22-ids-beyond-2-53/trace.json",
        "cases/29-blocking-dtoh-then-schedule/trace.json",
        "public/nsysai_healthy_1pct.sqlite",
        "public/tracelens_h100_bert_small.json.gz",
    ],
)
def test_reports_of_real_traces_survive_conversion(tmp_path: Path, name: str) -> None:
    assert_same_report(DATA / name, tmp_path / "t.json.gz")
