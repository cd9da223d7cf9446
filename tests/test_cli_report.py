"""``cbprof report``: what is shown, in which form, of which steps."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from oracle import COMPUTE, ENGINE
from typer.testing import CliRunner

from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import save
from cbprof.meta import Meta
from cbprof.render.sheet import Sheet
from cbprof.render.tables.csv_files import write_csv
from cbprof.trace import Kind, RequestEvent, Trace, TraceBuilder

MS = 10**6


def sync_trace(steps: int = 20) -> Trace:
    """Two requests served in steps of 2 ms of host work and 6 ms of compute; step ``k`` has 10 + k tokens a request."""
    builder = TraceBuilder()
    engine, compute = builder.lane(ENGINE), builder.lane(COMPUTE)
    for request in (0, 1):
        builder.request(RequestEvent.ARRIVE, request, 0)
        builder.request(RequestEvent.FIRST, request, 8 * MS)
        builder.request(RequestEvent.FINISH, request, 8 * steps * MS)
    for step in range(steps):
        start = 8 * step * MS
        builder.batch(step, tokens=2, requests=2, context=2 * (10 + step), phase="decode" if step else "prefill")
        builder.span(engine, Kind.CPU_WORK, "a|schedule", start, MS, step=step)
        builder.span(engine, Kind.CPU_WORK, "launch", start + MS, MS, step=step)
        builder.span(engine, Kind.CPU_WAIT, "wait", start + 2 * MS, 6 * MS, step=step)
        builder.span(compute, Kind.GPU_COMPUTE, "compute", start + 2 * MS, 6 * MS, step=step, slot=0)
    return builder.build(Meta.parse({"complete": True, "evidence": "emulated", "mode": "sync", "tokens": 2 * steps}))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save(sync_trace(), tmp_path / "trace.json")
    return "trace.json"


def shown(*args: str) -> str:
    result = CliRunner().invoke(app, ["report", *args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_figures_and_verdict(path: str) -> None:
    text = shown(path)
    assert "GPU idle     25.00 %  40.00 ms" in text
    assert 'Serialised by a blocking wait: the host sits in "wait" while the GPU works' in text
    assert "10 % less GPU work: up to 7.50 % less time" in text
    assert "over context" not in text


def test_full(path: str) -> None:
    text = shown(path, "--full")
    for part in ("host phases", "overlap efficiency", "20 gaps", "GPU idle over time", "GPU idle over context length"):
        assert part in text, part
    assert "first token" in text
    assert {len(line) for line in text.splitlines() if line[:1] in "╭│╰"} == {80}


def test_markdown(path: str) -> None:
    text = shown(path, "--format", "md")
    assert text.startswith("**trace.json**\n\n| figure | value |\n| --- | ---: |\n| wall time | 160.0 ms |")
    assert "| a\\|schedule | 20.00 ms | 50.00 % |" in text
    assert "GPU idle over time" not in text
    assert "**GPU idle over time**" in shown(path, "--format", "md", "--full")


def test_skip_is_a_range_of_steps(path: str) -> None:
    skipped, chosen = (json.loads(shown(path, "--json", *args)) for args in (["--skip", "5"], ["--steps", "5:"]))
    assert skipped == chosen
    assert skipped["steps"]["count"] == 15


def test_skip_counts_steps_whatever_their_numbers() -> None:
    from cbprof.analysis.accounting.window import steps_after

    builder = TraceBuilder()
    for index, step in enumerate((70, 80, 75)):
        builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 10 * index, 5, step=step)
    assert steps_after(builder.build(), 1) == (80, None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--skip", "20"], "leaves none: the trace has 20"),
        (["--skip", "1", "--steps", "2:"], "--steps has no effect with --skip"),
    ],
)
def test_skip_that_makes_no_sense(path: str, args: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["report", path, *args])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_csv_in_a_folder(path: str) -> None:
    shown(path, "--csv", "tables")
    with Path("tables/steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert {key: rows[1][key] for key in ("device", "step", "cpu_work_ns", "gap_ns", "context", "phase", "slot")} == {
        "device": "0",
        "step": "1",
        "cpu_work_ns": str(2 * MS),
        "gap_ns": str(2 * MS),
        "context": "22",
        "phase": "decode",
        "slot": "0",
    }
    with Path("tables/gaps.csv").open(encoding="utf-8", newline="") as file:
        gaps = list(csv.DictReader(file))
    assert sum(int(gap["length_ns"]) for gap in gaps) == 40 * MS
    assert gaps[0]["cause_ns"] == gaps[0]["blame_ns"] == f"a|schedule={MS};launch={MS}"


def test_csv_beside_a_name_and_what_is_unknown_is_empty(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 0, 5, step=0)
    steps, gaps = write_csv(summarize(builder.build()), tmp_path / "run.csv")
    assert (steps.name, gaps.name) == ("run.steps.csv", "run.gaps.csv")
    with steps.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["launched_ns"], row["tokens"], row["phase"]) == ("", "", "")
    assert len(gaps.read_text(encoding="utf-8").splitlines()) == 1


def test_csv_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write the tables"):
        write_csv(summarize(sync_trace(1)), tmp_path / "file" / "tables")


def test_a_sheet_keeps_names_from_steering_what_shows_it() -> None:
    sheet = Sheet(("name", "value"), [("<b>|\x1b[2J`*", "1")], "title", ("note_",))
    assert sheet.to_markdown() == (
        "**title**\n\n| name | value |\n| --- | ---: |\n| \\<b\\>\\|?\\[2J\\`\\* | 1 |\n\nnote\\_\n"
    )
    assert "&lt;b&gt;|?[2J" in sheet.to_html()
