"""The examples that `--help` shows: every command has at least two, and they do what they say."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from test_api import sync_trace
from typer.testing import CliRunner

from cbprof.cli.main import app
from cbprof.formats import save

COMMANDS: dict[str, Any] = typer.main.get_group(app).commands

RUN = ("report", "compare", "check", "predict", "hazards", "plot", "doctor")
"""Commands whose examples need nothing but traces; of the others the examples are only parsed."""
LIMITS = '[tool.cbprof.check]\nmax-idle = "50%"\n'


def examples(command: Any) -> list[str]:
    """The lines after "Examples:" in the docstring, without the program's name."""
    text = inspect.getdoc(command.callback) or ""
    lines = text.partition("Examples:")[2].splitlines()
    return [line.strip().removeprefix("cbprof ") for line in lines if line.strip().startswith("cbprof ")]


ALL = [(name, example) for name, command in COMMANDS.items() for example in examples(command)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_two_examples(name: str) -> None:
    assert len(examples(COMMANDS[name])) >= (1 if name == "run" else 2)


@pytest.mark.parametrize(("name", "example"), ALL, ids=[example for _, example in ALL])
def test_examples_work(name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *arguments = shlex.split(example)
    assert verb == name
    if name not in RUN:
        COMMANDS[name].make_context(name, arguments)
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    for file in (each for each in arguments if each.endswith((".json", ".json.gz"))):
        save(sync_trace(steps=30), tmp_path / file)
    Path("pyproject.toml").write_text(LIMITS, encoding="utf-8")
    result = CliRunner().invoke(app, [verb, *arguments])
    # The example trace breaks some of the limits that examples set, which is an answer, not a failure.
    assert result.exit_code in {0, 1}, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output
