"""How commands read a trace: the bar is for large files and terminals, and ``--no-cache`` leaves no file behind."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cbprof.cli.main import app
from cbprof.cli.reading import reading_bar
from cbprof.formats import cache, load

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from gen_kineto import Loop, generate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def terminal() -> Console:
    return Console(file=StringIO(), force_terminal=True, force_interactive=True, width=100, _environ={"TERM": "xterm"})


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_bar_appears_after_a_second() -> None:
    console, clock = terminal(), Clock()
    with reading_bar("large[1].json", console, clock) as tell:
        assert tell is not None
        tell(1 << 20, 1 << 30)
        clock.now = 0.9
        tell(2 << 20, 1 << 30)
        assert "large" not in written(console)
        clock.now = 1.0
        tell(512 << 20, 1 << 30)
    assert "reading large[1].json" in written(console)


def test_a_file_that_is_read_at_once_shows_nothing() -> None:
    console = terminal()
    with reading_bar("small.json", console, Clock()) as tell:
        assert tell is not None
        tell(1 << 20, 1 << 20)
    assert "small" not in written(console)


def test_nobody_is_told_where_nobody_watches() -> None:
    with reading_bar("large.json", Console(file=StringIO())) as tell:
        assert tell is None


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    generate(path, 500, Loop())
    told: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told[-1] == (size, size)


@pytest.mark.parametrize("command", [["report"], ["report", "--json"], ["doctor"], ["plot", "--no-open"], ["compare"]])
def test_no_cache(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.OPT_OUT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "WORTH_FROM", 1)
    path = tmp_path / "trace.json"
    generate(path, 500, Loop())
    files = [str(path)] * (2 if command == ["compare"] else 1)

    def caches(*options: str) -> list[Path]:
        result = CliRunner().invoke(app, [*command, *files, *options])
        assert result.exit_code == 0, result.output
        return list((tmp_path / "home" / "cbprof").glob(f"*{cache.SUFFIX}"))

    assert not caches("--no-cache")
    assert len(caches()) == 1
