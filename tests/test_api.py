"""What a notebook types: `cbprof.load`, and the verbs of a recording."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from oracle import COMPUTE, ENGINE, H2D
from typer.testing import CliRunner

import cbprof
from cbprof.api import Recording
from cbprof.cli.main import app
from cbprof.errors import DataError, UsageError
from cbprof.formats import save
from cbprof.meta import Meta
from cbprof.render.views.view import View
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

US = 1000


def sync_trace(steps: int = 12, *, prepare_us: int = 20) -> Trace:
    """Steps of the whole sync loop: schedule, prepare, copy in, 80 us of compute, copy out, wait, update."""
    builder = TraceBuilder()
    engine, compute, h2d, d2h = (builder.lane(lane) for lane in (ENGINE, COMPUTE, H2D, Lane("d2h", 0)))
    time = 0
    for step in range(steps):

        def host(name: str, length_us: int, kind: Kind = Kind.CPU_WORK, step: int = step) -> int:
            nonlocal time
            builder.span(engine, kind, name, time, length_us * US, step=step, slot=0)
            time += length_us * US
            return time

        builder.batch(step, tokens=4, requests=4, context=40 + 4 * step, phase="decode")
        host("schedule", 10)
        host("prepare", prepare_us)
        builder.span(h2d, Kind.GPU_H2D, "h2d", host("h2d", 2), 3 * US, step=step, slot=0)
        begin = host("launch", 2) + 1 * US
        builder.span(compute, Kind.GPU_COMPUTE, "compute", begin, 80 * US, step=step, slot=0)
        host("fetch", 2)
        builder.span(d2h, Kind.GPU_D2H, "d2h", begin + 80 * US, 2 * US, step=step, slot=0)
        host("wait", 82, Kind.CPU_WAIT)
        host("update", 5)
    facts = {"mode": "sync", "evidence": "emulated", "complete": True, "tokens": 4 * steps, "workload": {"batch": 4}}
    return builder.build(Meta.parse(facts))


def test_what_completion_offers_is_there() -> None:
    assert {"load", "Tracer", "attach", "fleet", "errors", "DataError", "UsageError"} <= set(dir(cbprof))
    for name in dir(cbprof):
        assert getattr(cbprof, name) is not None
    assert cbprof.DataError is DataError


def test_the_spans_are_a_data_frame(recording: Recording) -> None:
    spans = recording.spans()
    assert len(spans) == len(recording.trace)
    assert list(spans.columns[:4]) == ["start_ns", "dur_ns", "name", "kind"]
    assert spans.dur_ns[spans.name == "compute"].tolist() == [80 * US] * 12


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    save(sync_trace(), tmp_path / "trace.json")
    return cbprof.load(tmp_path / "trace.json")


VERBS: dict[str, Callable[[Recording], object]] = {
    "summary": lambda t: t.summary(),
    "gaps": lambda t: t.gaps(),
    "steps": lambda t: t.steps(),
    "predict": lambda t: t.predict(),
    "compare": lambda t: t.compare(t),
    "hazards": lambda t: t.hazards(),
    "health": lambda t: t.health(),
    "check": lambda t: t.check({"max-idle": "1%"}),
    "plot": lambda t: t.plot(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_returns_something_small_frozen_and_drawn(verb: str, recording: Recording) -> None:
    view = VERBS[verb](recording)
    drawn = view._repr_html_()  # type: ignore[attr-defined]
    assert drawn.startswith(("<table>", "<iframe "))
    assert len(repr(view).splitlines()) == 1
    with pytest.raises(FrozenInstanceError):
        setattr(view, fields(view)[0].name, None)  # type: ignore[arg-type]
    if verb != "plot":
        assert len(view.to_pandas()) > 0  # type: ignore[attr-defined]
        assert json.loads(json.dumps(view.to_json()))  # type: ignore[attr-defined]


def test_summary(recording: Recording) -> None:
    summary = recording.summary()
    assert summary.wall_ns == 12 * 123 * US
    assert summary.idle_pct == pytest.approx(100 * 43 / 123)
    (row,) = summary.to_pandas().to_dict("records")
    assert (row["steps"], row["tokens"], row["bound"]) == (12, 48, "serialised")
    assert "GPU idle" in summary._repr_html_()


def test_a_stretch_of_steps(recording: Recording) -> None:
    assert recording.steps(steps=(4, 8)).to_pandas()["step"].tolist() == [4, 5, 6, 7]
    assert recording.summary(steps=(4, 8)).wall_ns == 4 * 123 * US


def test_gaps_name_their_causes_to_the_nanosecond(recording: Recording) -> None:
    table = recording.gaps().to_pandas()
    causes = [column for column in table if column.startswith("blame.")]
    assert "blame.prepare" in causes
    assert (table[causes].sum(axis=1) == table["length_ns"]).all()


def test_steps_spell_out_phases(recording: Recording) -> None:
    table = recording.steps().to_pandas()
    assert set(table["phase"]) == {"decode"}
    assert table["compute_ns"].tolist() == [80 * US] * 12


def test_a_prediction_is_a_recording_to_look_at(recording: Recording) -> None:
    prediction = recording.predict()
    assert prediction.full.speedup > 1.3
    predicted = Recording(prediction.full.trace)
    assert predicted.name == "predicted async"
    assert predicted.summary().idle_pct == pytest.approx(prediction.full.predicted_idle_pct)


def test_compare(recording: Recording) -> None:
    after = Recording(sync_trace(prepare_us=10), Path("after.json"))
    view = recording.compare(after)
    assert view.names == (recording.name, "after.json")
    phases = view.to_pandas().set_index("name")
    assert phases.loc["prepare", "ratio"] == 0.5
    assert "after.json takes 0.9" in repr(view)


def test_hazards(recording: Recording) -> None:
    assert repr(recording.hazards()) == "no hazard found"
    assert recording.hazards().to_pandas()["verdict"].tolist().count("found") == 0


def test_health_and_limits(recording: Recording) -> None:
    assert recording.health().reliable
    limits = recording.check({"max-idle": "1%", "max-gap": "1ms"})
    assert [limit.name for limit in limits.full if not limit.passed] == ["max-idle"]
    assert not limits.passed


COMMANDS: dict[str, tuple[Callable[[Recording], View], list[str]]] = {
    "report": (lambda t: t.summary(), []),
    "report --full": (lambda t: t.summary(detailed=True), []),
    "report --skip 2": (lambda t: t.summary(skip=2), []),
    "predict": (lambda t: t.predict(), []),
    "predict --drop update": (lambda t: t.predict(drop=["update"]), []),
    "compare": (lambda t: t.compare(t, fail_if=["idle:1pp"]), ["--fail-if", "idle:1pp"]),
    "hazards": (lambda t: t.hazards(), []),
    "doctor": (lambda t: t.health(), []),
    "check --max-idle 1%": (lambda t: t.check({"max-idle": "1%"}), []),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_view_shows_what_the_command_shows(
    command: str, recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    made, more = COMMANDS[command]
    view, files = made(recording), [recording.name] * (2 if command == "compare" else 1)

    def shown(*options: str) -> str:
        typed = CliRunner().invoke(app, [*command.split(), *files, *more, *options])
        return typed.stdout

    capsys.readouterr()
    view.print()
    assert capsys.readouterr().out == shown()
    if not command.startswith(("check", "report --full")):
        assert json.loads(json.dumps(view.to_json())) == json.loads(shown("--json"))
    if command.startswith(("report", "compare")):
        assert view.to_markdown() + "\n" == shown("--format", "md")


def test_ranks_side_by_side(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("[[[")
    ranks = cbprof.load_ranks(recording.name, tmp_path / "broken.json", skip=2)
    assert repr(ranks) == "1 rank in 2 files"
    table = ranks.to_pandas().set_index("file")
    assert table.loc[recording.name, "idle_pct"] == recording.summary(skip=2).idle_pct
    assert table.loc[str(tmp_path / "broken.json"), "reason"]
    assert "collectives" in ranks.to_markdown()


@pytest.mark.parametrize("name", ["a.html", "a.svg"])
def test_pictures_are_saved_by_their_name(name: str, recording: Recording, tmp_path: Path) -> None:
    assert recording.save_plot(tmp_path / name, other=recording).stat().st_size > 1000
    with pytest.raises(UsageError, match=r"choose a name that ends in \.html, \.png"):
        recording.save_plot(tmp_path / "a.gif")


def test_a_report_is_a_page_about_several_recordings(recording: Recording, tmp_path: Path) -> None:
    page = cbprof.save_report(
        [recording, Recording(recording.trace, Path("b.json"))], tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    assert "Side by side" in page
    with pytest.raises(UsageError, match=r"ends in \.html"):
        cbprof.save_report([recording], tmp_path / "report.pdf")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_saved_recording_is_the_same_again(name: str, recording: Recording, tmp_path: Path) -> None:
    again = cbprof.load(recording.save(tmp_path / name))
    assert again.summary().full.to_json() == recording.summary().full.to_json()
    with pytest.raises(UsageError, match="does not say what to write"):
        recording.save(tmp_path / "a.docx")


def test_the_timeline_is_a_page_in_a_frame(recording: Recording, tmp_path: Path) -> None:
    timeline = recording.plot(recording)
    page = timeline.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == timeline.page
    frame = timeline._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!')
    assert frame.count('"') == frame.split("srcdoc=")[0].count('"') + 8, "nothing of the page ends an attribute"


def test_nothing_recorded(tmp_path: Path) -> None:
    empty = Recording(TraceBuilder().build())
    for view in (empty.summary(), empty.gaps(), empty.steps(), empty.compare(empty)):
        assert len(view.to_pandas()) == 0
        view._repr_html_()
    with pytest.raises(DataError, match="no such file"):
        cbprof.load(tmp_path / "none.json")


def test_names_in_tables_cannot_end_them() -> None:
    builder = TraceBuilder()
    builder.span(builder.lane(ENGINE), Kind.CPU_WORK, "<script>", 0, 5, step=0)
    builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 5, 5, step=0)
    drawn = Recording(builder.build()).summary()._repr_html_()
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_importing_cbprof_is_light() -> None:
    code = "import sys, cbprof; cbprof.load; cbprof.Recording; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = cbprof.lode
