"""The lab: what is wrong by design comes out wrong and is found, what is right comes out right, on the host device."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line as here
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.engine.batch import Batch as EngineBatch
from cbprof.engine.devices.base import Event, Stream
from cbprof.engine.hooks import Hooks
from cbprof.engine.run import Run
from cbprof.engine.slots import Slot, order
from cbprof.formats import load
from cbprof.lab import catalog, measure
from cbprof.lab.arithmetic import MULTIPLIER, SHIFT, churn
from cbprof.lab.catalog import EXPERIMENTS, experiment, lesson
from cbprof.lab.chart import svg
from cbprof.lab.experiments import events as events_file
from cbprof.lab.experiments import host_bound as host_bound_file
from cbprof.lab.experiments import no_events as no_events_file
from cbprof.lab.experiments import one_slot as one_slot_file
from cbprof.lab.finding import Chart, Finding, Series
from cbprof.lab.host_model import BARE_ROUNDS, WIDTH
from cbprof.lab.lab import Batch, Lab
from cbprof.lab.page import write_findings
from cbprof.lab.terminal import shown
from cbprof.trace import Trace

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ROOT = Path(__file__).parents[1]
NEED_CUDA = {"default-stream", "graphs"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("host") as lab:
        yield lab


@pytest.fixture(scope="module")
def findings(lab: Lab) -> dict[str, Finding]:
    """Every experiment once, on one child process."""
    return {name: run(lab) for name, run in EXPERIMENTS.items()}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - NEED_CUDA))
def test_every_experiment_comes_out_as_it_must(findings: dict[str, Finding], name: str) -> None:
    finding = findings[name]
    assert finding.name == name
    assert finding.ok, finding.proves
    assert not finding.skipped
    assert any(character.isdigit() for character in finding.proves)
    assert finding.figures
    assert all(len(row) == len(finding.table.header) for row in finding.table.rows)
    for _, trace in finding.traces:
        assert (trace.evidence, trace.complete) == ("emulated", True)
        assert summarize(trace).devices


@pytest.mark.parametrize("name", sorted(NEED_CUDA))
def test_what_needs_cuda_says_so_and_shows_no_figure(findings: dict[str, Finding], name: str) -> None:
    finding = findings[name]
    assert finding.skipped
    assert finding.proves.startswith("needs a CUDA device: ")
    assert (finding.figures, finding.table.rows, finding.traces, finding.chart) == ({}, (), (), None)


def test_without_events_every_answer_is_wrong_and_the_missing_events_are_named(findings: dict[str, Finding]) -> None:
    figures = findings["no-events"].figures
    assert figures["wrong_batches"] == figures["batches"] == 10
    assert {"h2d_before_compute", "compute_before_d2h"} <= set(str(figures["hazards"]).split(", "))


def test_with_events_every_answer_is_right(findings: dict[str, Finding]) -> None:
    figures = findings["events"].figures
    assert figures["right_batches"] == figures["batches"] == 10


def test_one_slot_corrupts_batches_and_the_second_slot_none(lab: Lab, findings: dict[str, Finding]) -> None:
    for finding in (findings["one-slot"], *(experiment("one-slot")(lab) for _ in range(2))):
        figures = finding.figures
        # The last batch has none behind it that could overwrite its inputs.
        assert 0 < int(figures["one_slot_wrong_batches"]) < 10
        assert figures["two_slots_wrong_batches"] == 0
        assert {"host_buffer_kept", "inputs_kept"} <= set(str(figures["hazards"]).split(", "))


@pytest.mark.parametrize("file", [no_events_file, one_slot_file], ids=["no-events", "one-slot"])
@pytest.mark.parametrize("fault", ["right", "unseen"])
def test_an_experiment_that_fails_to_go_wrong_is_not_ok(
    lab: Lab, file: object, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "right":
        monkeypatch.setattr(Batch, "wrong_pct", lambda batch, output: 0.0)
    else:
        monkeypatch.setattr(file, "hazards_found", lambda trace: [])
    run = experiment("no-events" if file is no_events_file else "one-slot")
    assert not run(lab).ok


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - NEED_CUDA))
def test_what_is_claimed_and_not_checked_is_named(findings: dict[str, Finding], name: str) -> None:
    unchecked = {"streams": 1, "carry-over": 1, "async": 1, "host-bound": 2}
    finding = findings[name]
    assert len(finding.unchecked) == unchecked.get(name, 0)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown(finding, picture=False))
    assert console.export_text().count("not checked on this device: that") == len(finding.unchecked)


def test_events_are_not_ok_where_the_host_blocks_at_each(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def order_and_block(event: Event, first: Stream, then: Stream, step: int, hooks: Hooks) -> None:
        order(event, first, then, step, hooks)
        event.synchronize()

    monkeypatch.setattr(events_file, "order", order_and_block)
    finding = experiment("events")(lab)
    assert finding.figures["right_batches"] == 10
    assert not finding.ok


def test_async_is_not_ok_where_updates_leave_the_device_idle(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Run.update

    def slow_update(run: Run, batch: EngineBatch, slot: Slot) -> None:
        update(run, batch, slot)
        lab.device.synchronize()
        time.sleep(0.02)  # the device has nothing to do, on whatever machine

    monkeypatch.setattr(Run, "update", slow_update)
    finding = experiment("async")(lab)
    assert finding.figures["tokens_identical"]
    assert not finding.ok


def test_host_bound_is_not_ok_where_predictions_are_far_off(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_bound_file, "EXTRA", (0.0,))
    period = host_bound_file.period_ns
    predicted: list[Trace] = []

    def predict(trace: Trace) -> Any:
        result = predict_it(trace)
        predicted.append(result.trace)
        return result

    predict_it = host_bound_file.predict
    monkeypatch.setattr(host_bound_file, "predict", predict)
    monkeypatch.setattr(
        host_bound_file,
        "period_ns",
        lambda trace: period(trace) * (9 if any(trace is each for each in predicted) else 1),
    )
    finding = experiment("host-bound")(lab)
    assert finding.figures["middle_error_pct"] > 200
    assert not finding.ok


def test_the_carry_over_is_what_makes_the_tokens_right(findings: dict[str, Finding]) -> None:
    figures = findings["carry-over"].figures
    assert figures["carried_tokens"] == 8 * 31  # the first token of each request comes from its prompt
    assert figures["identical_requests"] == figures["differ_without_mask"] == figures["requests"] == 8


def test_a_late_finish_wastes_one_token_and_frees_its_blocks_once(findings: dict[str, Finding]) -> None:
    figures = findings["late-finish"].figures
    assert figures["dropped"] == figures["stopped"] > 0
    assert figures["dropped_sync"] == 0
    assert figures["free_blocks"] == figures["blocks"]
    assert figures["identical_requests"] == figures["finished"] == figures["requests"] == 16


def test_the_async_loop_gives_the_same_tokens(findings: dict[str, Finding]) -> None:
    assert findings["async"].figures["tokens_identical"]


def test_the_recordings_of_right_experiments_hold_no_hazard(findings: dict[str, Finding]) -> None:
    for name in ("turns", "events", "carry-over", "late-finish", "async", "host-bound"):
        for _, trace in findings[name].traces:
            assert measure.hazards_found(trace) == [], name


def test_the_answers_are_those_of_the_arithmetic(lab: Lab) -> None:
    (batch,) = lab.batches(1)
    state = np.zeros(WIDTH, np.int32)
    churn(state, batch.inputs, BARE_ROUNDS)
    assert np.array_equal(np.bitwise_xor.reduce(state.reshape(len(batch.answer), -1), axis=1), batch.answer)
    assert len(np.unique(batch.answer)) > len(batch.answer) / 2


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=2, max_size=9), st.integers(0, 7))
def test_churning_is_plain_32_bit_arithmetic(inputs: list[int], rounds: int) -> None:
    state = np.zeros(2, np.int32)
    churn(state, np.array(inputs, np.int32), rounds)
    chunks = [inputs[at : at + 2] for at in range(0, len(inputs) - 1, 2)]
    expected = [0, 0]
    for number in range(rounds):
        chunk = chunks[number % len(chunks)]
        for place in range(2):
            value = ((expected[place] ^ chunk[place]) * MULTIPLIER + (1 << 31)) % (1 << 32) - (1 << 31)
            expected[place] = value ^ value >> SHIFT
    assert state.tolist() == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no thread affinity on this system")
def test_closing_the_lab_gives_its_core_back() -> None:
    before = os.sched_getaffinity(0)
    with Lab("host"):
        assert len(os.sched_getaffinity(0)) == max(1, len(before) - 1)
    assert os.sched_getaffinity(0) == before


def test_findings_become_one_page_and_files_that_open(findings: dict[str, Finding], tmp_path: Path) -> None:
    page = write_findings(list(findings.values()), tmp_path / "made" / "here", "host process")
    text = page.read_text(encoding="utf-8")
    for name in EXPERIMENTS:
        assert f'<h2 id="{name}">' in text
    assert text.count("<iframe") == len(EXPERIMENTS) - len(NEED_CUDA)
    assert "needs a CUDA device" in text
    assert 'src="http' not in text
    folder = page.parent
    assert json.loads((folder / "findings.json").read_text())["findings"][0]["name"] == "turns"
    traces = sorted(folder.glob("*.json.gz"))
    assert len(traces) == sum(len(finding.traces) for finding in findings.values())
    assert all(load(trace).complete for trace in traces)
    assert "<html" in (folder / "async.html").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on the PATH")
def test_the_page_draws_every_timeline_at_its_height(findings: dict[str, Finding], tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    page = write_findings([findings["turns"], findings["one-slot"]], tmp_path, "host process")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        complaints: list[str] = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(page.resolve().as_uri())
        for frame in tab.query_selector_all("iframe"):
            frame.scroll_into_view_if_needed()
            tab.wait_for_function("frame => parseInt(frame.style.height) > 400", arg=frame)
        browser.close()
    assert complaints == []


def test_a_chart_is_well_formed_and_holds_its_points() -> None:
    line = Series("a < b", [(0.0, 1.0), (3.0, 4.2)], measured=True)
    chart = Chart("x & y", "y", [line, Series("guess", line.points, measured=False)])
    root = ET.fromstring(svg(chart))
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("circle") == 2
    assert "a < b" in {element.text for element in root.iter()}


def test_every_experiment_explains_itself() -> None:
    for name in EXPERIMENTS:
        about, explanation = lesson(name)
        assert about.endswith(".")
        assert len(explanation) > 100


def test_the_tutorial_takes_the_numbers_of_a_run(findings: dict[str, Finding], tmp_path: Path) -> None:
    write_findings(list(findings.values()), tmp_path, "some machine")
    tutorial = tmp_path / "tutorial.md"
    shutil.copy(ROOT / "docs" / "tutorial.md", tutorial)
    script = [sys.executable, str(ROOT / "scripts" / "lab_tutorial.py"), str(tmp_path / "findings.json")]
    done = subprocess.run([*script, "--tutorial", str(tutorial)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = tutorial.read_text(encoding="utf-8")
    assert text.count("**Measured** (some machine): ") == len(EXPERIMENTS) - len(NEED_CUDA)
    assert findings["one-slot"].proves in text
    before = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for part in re.split(r"<!-- lab:.*?<!-- /lab -->", before, flags=re.DOTALL):
        assert part in text
    assert re.findall(r"<!-- lab:(.*?) -->", before) == list(EXPERIMENTS)


@pytest.fixture
def run_before(findings: dict[str, Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments are not run twice: each gives what it found."""
    monkeypatch.setattr(catalog, "EXPERIMENTS", {name: lambda _, name=name: findings[name] for name in EXPERIMENTS})


def test_the_notebook_runs_and_holds_no_outputs(
    tmp_path: Path, run_before: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "notebooks" / "04_lab.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    exec(code, {"__name__": "__main__"})
    assert "one-slot" in capsys.readouterr().out


# The command line --------------------------------------------------------------------------------------------------


def cbprof(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbprof", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_lab_runs_without_torch_on_one_child(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from cbprof.cli.main import main; main()"
    names = ["turns", "graphs", "late-finish"]
    command = [sys.executable, "-c", code, "lab", *names, "-o", "out", "--device", "auto"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as expected") == 2
    assert "NOT AS EXPECTED" not in done.stdout
    assert "wrote out/index.html" in done.stdout


def test_the_whole_lab(tmp_path: Path, run_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["lab", "--all", "-o", "out", "--device", "host"])
    assert result.exit_code == 0, result.output
    assert result.output.count("as expected") == len(EXPERIMENTS) - len(NEED_CUDA)


def test_json_goes_out_alone(tmp_path: Path) -> None:
    done = cbprof("lab", "events", "graphs", "--device", "host", "--json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["device"]) == (1, "host process")
    assert [finding["name"] for finding in answer["findings"]] == ["events", "graphs"]
    assert [finding["skipped"] for finding in answer["findings"]] == [False, True]
    assert answer == json.loads((tmp_path / "out" / "findings.json").read_text())


def test_an_unexpected_outcome_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(no_events_file, "hazards_found", lambda trace: [])
    result = CliRunner().invoke(app, ["lab", "no-events", "--device", "host"])
    assert result.exit_code == 1
    assert "NOT AS EXPECTED" in result.output


def test_the_list_names_all(tmp_path: Path) -> None:
    done = here.cbprof("lab", "--list", cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")] == list(EXPERIMENTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lab"], "which experiment? Give names (cbprof lab --list), or --all"),
        (["lab", "alchemy"], "there is no experiment 'alchemy': choose one of turns, streams,"),
        (["lab", "turns", "--device", "tpu"], "unknown device 'tpu': use auto, cuda or host"),
        (["lab", "turns", "-o", "file"], "file is a file: give --output the name of a folder"),
    ],
)
def test_bad_requests_are_one_clear_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = here.cbprof(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_cuda_where_cuda_was_asked_for() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = CliRunner().invoke(app, ["lab", "turns", "--device", "cuda"])
    assert "torch sees no CUDA device" in str(result.exception)
