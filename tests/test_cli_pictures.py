"""``cbprof plot`` and ``cbprof report -o``: which file, which form, and one clear line where it cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from timeline_samples import steady_trace
from typer.testing import CliRunner, Result

from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import save

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in a folder with two traces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for mode, steps in (("sync", 40), ("async", 30)):
        save(steady_trace(steps), tmp_path / f"run.{mode}.json")

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, arguments)
        if isinstance(result.exception, UsageError):
            assert len(str(result.exception).splitlines()) == 1
        return result

    return run


@pytest.mark.parametrize(
    ("arguments", "file", "magic"),
    [
        (("run.sync.json", "--no-open"), "run.sync.html", b"<!doctype html>"),
        (("run.sync.json", "run.async.json", "--no-open"), "run.html", b"<!doctype html>"),
        (("run.sync.json", "-o", "a.png"), "a.png", b"\x89PNG"),
        (("run.sync.json", "run.async.json", "-o", "a.SVG", "--width", "90mm"), "a.SVG", b"<?xml"),
        (("run.sync.json", "-o", "a.pdf", "--width", "1400px"), "a.pdf", b"%PDF"),
    ],
)
def test_plot_writes_what_the_name_ends_in(run: Run, arguments: tuple[str, ...], file: str, magic: bytes) -> None:
    if not file.endswith("html"):
        pytest.importorskip("matplotlib", reason="matplotlib (the image extra) is not installed")
    done = run("plot", *arguments)
    assert done.stdout == f"wrote {file}\n"
    assert Path(file).read_bytes().startswith(magic)


def test_plot_draws_in_the_terminal(run: Run) -> None:
    done = run("plot", "--term", "run.sync.json", "run.async.json")
    assert done.stdout.count("GPU idle 3") == 2
    assert "▓" in done.stdout
    assert "│compute━" in done.stdout
    assert sorted(path.name for path in Path().iterdir()) == ["run.async.json", "run.sync.json"]


def test_every_run_is_labelled_with_its_file_or_as_the_user_says(run: Run) -> None:
    pair = ("run.sync.json", "run.async.json")
    assert all(f"{name} · " in run("plot", "--term", *pair).stdout for name in pair)
    named = ("--label", "before", "--label", "a <b> c")
    assert "before · " in run("plot", "--term", *pair, *named).stdout
    run("plot", *pair, "--no-open", *named)
    page = Path("run.html").read_text()
    assert '"label":"before"' in page
    assert '"label":"a \\u003cb> c"' in page
    assert "<title>before: GPU idle" in page
    run("report", *pair, "-o", "r.html")
    assert "<h3>run.sync.json</h3>" in Path("r.html").read_text()  # both say that they are sync
    run("report", *pair, "-o", "r.html", *named)
    assert "before: The GPU waited" in Path("r.html").read_text()
    refused = run("plot", *pair, "--label", "one", "--no-open")
    assert "1 label for 2 traces" in str(refused.exception)
    assert "--label has no effect without --output" in str(run("report", *pair, "--label", "a").exception)


def test_the_page_opens_where_both_runs_are(run: Run) -> None:
    save(steady_trace(400), Path("long.json"))
    run("plot", "long.json", "run.async.json", "--no-open", "-o", "both.html")
    found = re.search(r'"opening":\[(\d+),(\d+)\]', Path("both.html").read_text())
    assert found
    assert 0 < int(found[1]) < int(found[2]) < 300_000_000  # the shorter one takes 0.3 s


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plot", "run.sync.json", "-o", "a.gif"), "a.gif: choose a name that ends in .html, .png, .svg, .pdf"),
        (("plot", "run.sync.json", "-o", "a.html", "--width", "7in"), "--width has no effect without an image"),
        (("plot", "run.sync.json", "-o", "a.png", "--width", "wide"), "such as 7in"),
        (("plot", *3 * ("run.sync.json",)), "3 traces were given"),
        (("report", "run.sync.json", "-o", "a.docx"), "a.docx: the report is a page"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert words in str(done.exception)
    assert sorted(path.name for path in Path().iterdir()) == ["run.async.json", "run.sync.json"]


def test_report_writes_a_page_of_one_run_or_several(run: Run) -> None:
    assert run("report", "run.sync.json", "-o", "one.html").stdout == "wrote one.html\n"
    run("report", "run.sync.json", "run.async.json", "-o", "two.html")
    assert "Side by side" in Path("two.html").read_text()
    assert "Side by side" not in Path("one.html").read_text()
