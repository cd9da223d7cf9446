"""Options that do not go together: of each pair, both have an effect, or the command refuses the pair in one line."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest
from replay_oracle import Costs, trace_of_run
from test_api import sync_trace
from typer.testing import CliRunner

from cbprof.cli.main import app
from cbprof.errors import CbprofError, UsageError
from cbprof.formats import save

Options = Mapping[str, tuple[str, ...]]

COMMANDS: dict[str, Options] = {
    "report t.json": {
        "steps": ("--steps", "3:"),
        "skip": ("--skip", "2"),
        "window": ("--window", "gpu_span"),
        "activity": ("--activity", "busy"),
        "full": ("--full",),
        "md": ("--format", "md"),
        "json": ("--json",),
        "gaps": ("--gaps", "all"),
        "output": ("-o", "page.html"),
        "csv": ("--csv", "tables"),
    },
    "report t.json u.json": {
        "steps": ("--steps", "3:"),
        "full": ("--full",),
        "md": ("--format", "md"),
        "json": ("--json",),
        "gaps": ("--gaps", "all"),
        "output": ("-o", "page.html"),
        "csv": ("--csv", "tables"),
    },
    "plot t.json": {
        "page": ("-o", "page.html"),
        "image": ("-o", "image.svg"),
        "width": ("--width", "3in"),
        "term": ("--term",),
        "open": ("--no-open",),
    },
    "compare t.json u.json": {
        "steps": ("--steps", ":9"),
        "fail_if": ("--fail-if", "workload"),
        "md": ("--format", "md"),
        "json": ("--json",),
    },
    "predict t.json": {
        "gpu_speed": ("--gpu-speed", "2"),
        "scale": ("--scale", "schedule=0.5"),
        "drop": ("--drop", "update"),
        "slots": ("--slots", "1"),
        "json": ("--json",),
        "output": ("-o", "predicted.json"),
    },
    "check t.json --max-idle 50%": {
        "gap": ("--max-gap", "1us"),
        "hazards": ("--no-hazards",),
        "steps": ("--steps", "3:"),
        "config": ("--config", "limits.toml"),
        "github": ("--format", "github"),
        "junit": ("--junit", "junit.xml"),
    },
    "convert t.json out.json": {"flows": ("--no-flows",)},
    "convert t.json out.csv": {"flows": ("--no-flows",)},
    "lab": {
        "list": ("--list",),
        "names": ("events",),
        "all": ("--all",),
        "device": ("--device", "host"),
        "model": ("--model", "tiny"),
        "output": ("-o", "out"),
        "json": ("--json",),
    },
}
"""Commands, and their options by a short name. Each value is one that changes what the command does."""

REFUSED = {
    "report t.json": {
        *(f"output {name}" for name in ("steps", "skip", "window", "activity", "full", "md", "json", "gaps", "csv")),
        *("json full", "json md", "skip steps", "window steps", "window skip"),
        *(f"gaps {name}" for name in ("steps", "skip", "window", "activity", "full", "md", "csv")),
    },
    "report t.json u.json": {
        *(f"output {name}" for name in ("steps", "full", "md", "json", "gaps", "csv")),
        *(f"{name} {other}" for name in ("full", "md", "gaps", "csv") for other in ("steps", "full", "md", "json")),
        "gaps csv",
    },
    "plot t.json": {
        *(f"term {name}" for name in ("page", "image", "width", "open")),
        *("image open", "page width", "width open"),
    },
    "compare t.json u.json": {"json md"},
    "lab": {
        *(f"list {name}" for name in ("names", "all", "device", "model", "output", "json")),
        *("all names", "device model"),
    },
}
"""Pairs of which one would have no effect; of ``-o page.html -o image.svg`` the last one counts, as everywhere."""

NEEDS = {"gaps": "json", "width": "image"}
SAME_OPTION = {"page image"}
RUNS = ("report", "plot", "compare", "predict", "check", "convert")
PAIRS = [
    (command, one, other)
    for command, options in COMMANDS.items()
    for one, other in permutations(options, 2)
    if not {f"{one} {other}", f"{other} {one}"} & SAME_OPTION
]


def is_refused(command: str, *names: str) -> bool:
    return any(" ".join(pair) in REFUSED.get(command, ()) for pair in permutations(names, 2))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("traces")
    save(sync_trace(), folder / "t.json")
    uneven = [Costs(schedule=20_000 * (1 + step * step % 7)) for step in range(20)]
    save(trace_of_run(uneven, 1, tokens=80), folder / "u.json")
    (folder / "limits.toml").write_text("[tool.cbprof.check]\nmax-gap = '2us'\nmax-step-p99 = '1us'\n")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Command:
    """Runs a command with options in a folder of its own, and tells all that a user could see of it."""

    def __init__(self, folder: Path, traces: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self.traces, self.folder, self.monkeypatch = traces, folder, monkeypatch

    def effects(self, command: str, *names: str) -> tuple[object, ...]:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for name, content in self.traces.items():
            (self.folder / name).write_bytes(content)
        self.monkeypatch.chdir(self.folder)
        opened: list[str] = []
        self.monkeypatch.setattr("webbrowser.open", opened.append)
        options = [text for name in names for text in COMMANDS[command][name]]
        stray = io.StringIO()
        with contextlib.redirect_stderr(stray):
            result = CliRunner().invoke(app, [*command.split(), *options])
        if isinstance(result.exception, CbprofError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        files = {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}
        return result.stdout, result.stderr, result.exit_code, files, opened


@pytest.fixture
def command(tmp_path: Path, traces: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, traces, monkeypatch)


@pytest.mark.parametrize(("line", "one", "other"), PAIRS)
def test_each_of_two_options_has_an_effect_or_the_pair_is_refused(
    line: str, one: str, other: str, command: Command
) -> None:
    if is_refused(line, one, other):
        with pytest.raises(UsageError, match=r"^\S+( \S+)? has no effect with(out)? .*leave out \S") as refused:
            command.effects(line, one, other)
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)
        return
    if line.split(maxsplit=1)[0] not in RUNS or NEEDS.get(other):
        return  # what takes long, and what is refused alone
    alone, both = command.effects(line, other), command.effects(line, one, other)
    assert alone != both, f"{one} has no effect beside {other}"
