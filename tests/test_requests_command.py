"""``cbprof requests``: the table, one request, JSON, CSV, and traces that cannot tell."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from test_request_lives import play
from typer.testing import CliRunner

import cbprof
from cbprof.cli.main import app
from cbprof.errors import DataError, UsageError
from cbprof.formats import save
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestEvent, TraceBuilder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return save(play(3, "async").trace, tmp_path / "trace.json")


def test_the_slowest_comes_first(trace: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["requests", str(trace), "--json"]).output)
    assert found["schema"] == 1
    whole = [each["end_to_end_ns"] for each in found["requests"]]
    assert whole == sorted(whole, reverse=True)
    for each in found["requests"]:
        assert sum(each["parts_ns"].values()) == each["end_to_end_ns"] == each["end_ns"] - each["arrive_ns"]
    shown = CliRunner().invoke(app, ["requests", str(trace)]).output
    assert shown.splitlines()[1].startswith(f"{found['requests'][0]['request']} ")
    assert "preempted" in shown


def test_one_request_token_by_token(trace: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["requests", str(trace), "--request", "5", "--json"]).output)
    (life,) = found["requests"]
    assert life["request"] == 5
    assert len(life["token_gaps"]) == life["tokens"]
    shown = CliRunner().invoke(app, ["requests", str(trace), "--request", "5"]).output
    assert "0, step " in shown
    assert "what delayed each" in shown


def test_csv_has_a_column_for_each_part(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "requests.csv"
    assert CliRunner().invoke(app, ["requests", str(trace), "--csv", str(target)]).exit_code == 0
    with target.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    parts = list(rows[0])[list(rows[0]).index("dropped_tokens") + 1 :]
    for row in rows:
        assert sum(int(row[part]) for part in parts) == int(row["end_to_end_ns"])


def test_what_a_trace_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """A recording of before: it has first tokens and ends, and does not say who rode."""
    builder = TraceBuilder()
    builder.span(builder.lane(Lane("compute", device=0)), Kind.GPU_COMPUTE, "compute", 0, 90, step=0)
    for event, time_ns in ((RequestEvent.ARRIVE, 0), (RequestEvent.FIRST, 30), (RequestEvent.FINISH, 80)):
        builder.request(event, 4, time_ns)
    path = save(builder.build(Meta.parse({"evidence": "emulated"})), tmp_path / "trace.json")
    (life,) = cbprof.load(path).requests().to_json()["requests"]
    assert (life["parts_ns"], life["ttft_ns"], life["end_to_end_ns"]) == (None, 30, 80)
    assert CliRunner().invoke(app, ["requests", str(path)]).exit_code == 0
    assert CliRunner().invoke(app, ["requests", str(path), "--request", "4"]).exit_code == 0
    with pytest.raises(UsageError, match="has no request 7"):
        cbprof.load(path).requests(request=7)
    nothing = save(TraceBuilder().build(), tmp_path / "empty.json")
    with pytest.raises(DataError, match="of no request"):
        cbprof.load(nothing).requests()
