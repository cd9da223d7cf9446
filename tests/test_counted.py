"""One thing is one, and what is not there is not called measured, cut off or trusted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kineto_samples import host, kernel, write
from typer.testing import CliRunner

import cbprof
from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.errors import DataError
from cbprof.formats import load
from cbprof.formats.kineto import event_stream
from cbprof.numbers import counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1024, "1,024 steps"), (-1, "-1 steps")]
)
def test_one_is_one(number: int, words: str) -> None:
    assert counted(number, "step") == words


def test_a_plural_of_its_own() -> None:
    assert [counted(number, "event has", "events have") for number in (1, 2)] == ["1 event has", "2 events have"]


@pytest.mark.parametrize("lost", [1, 2])
def test_warnings_agree_with_their_number(tmp_path: Path, lost: int) -> None:
    events = [kernel(1, 1), *(kernel("never", 1) for _ in range(lost))]
    (warning,) = (each for each in summarize(load(write(tmp_path, *events))).warnings if "usable" in each)
    assert warning.startswith("1 event has no" if lost == 1 else "2 events have no")


# "1 of 3 batches" is right, and "others" are two or more.
_MANY = re.compile(r"(?<!of )\{(?:len\([^{}]*\)|n_\w+|count\([^{}]*\))(?::,)?\} (?!others|traces)[a-z]+s\b")


def test_no_message_counts_by_hand() -> None:
    """``{len(steps)} steps`` reads "1 steps" some day."""
    sources = Path(cbprof.__file__).parent.rglob("*.py")
    found = {path.name: _MANY.findall(path.read_text(encoding="utf-8")) for path in sources}
    assert {name: many for name, many in found.items() if many} == {}


def test_a_trace_without_gpu_work_is_neither_measured_nor_trusted(tmp_path: Path) -> None:
    path = write(tmp_path, host(0, 10, "aten::mm"), host(20, 10, "aten::mm"))
    texts = [CliRunner().invoke(app, [verb, str(path)]).output for verb in ("report", "doctor")]
    for text in texts:
        assert "can be trusted" not in text
        assert "the device's own records" not in text


def test_a_large_file_that_is_no_trace_is_not_called_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_OUTSIDE", 1 << 20)
    path = tmp_path / "weights.json"
    path.write_text('{"weights": [' + ", ".join(["0.125"] * 2_000_000) + "]}")
    with pytest.raises(DataError, match="not a trace: it has no list `traceEvents` in its first") as refused:
        load(path)
    assert "cut off" not in str(refused.value)
