"""How long a timeline takes to make and to show: cbprof, plotly's own timeline, matplotlib bars, on the same spans.

    python scripts/bench_plot.py                          # 20,000 spans with all three
    python scripts/bench_plot.py --spans 10000000 --only cbprof

Build is from the trace in memory to the file on disk. First paint is from opening the file in headless Chromium to the
frame in which all of it is drawn. Each figure is the median of ``--repeat`` runs, the three taken in turn. Needs the
``dev`` and ``image`` extras, and Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer
from bench_analysis import generated

from cbprof.files import write_whole
from cbprof.render.web.timeline import timeline_html
from cbprof.trace import Trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DRAWN = """
new Promise(async (done) => {
  await window.cbprof?.ready;
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
})
"""


class Result(NamedTuple):
    build_s: float
    size_mb: float
    paint_s: float | None


def cbprof_page(trace: Trace, path: Path) -> None:
    write_whole(path, timeline_html(trace).encode(), "the timeline")


def plotly_timeline(trace: Trace, path: Path) -> None:
    """``px.timeline``, as a user would call it on the trace as a table."""
    import pandas as pd
    import plotly.express as px

    table = trace.to_pandas()
    table["start"] = pd.to_datetime(table["start_ns"])
    table["end"] = pd.to_datetime(table["start_ns"] + table["dur_ns"])
    px.timeline(table, x_start="start", x_end="end", y="lane", color="name").write_html(path)


def matplotlib_bars(trace: Trace, path: Path) -> None:
    """A bar a span, as an image that nobody can zoom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4))
    axes = figure.subplots()
    for name in range(len(trace.names)):
        rows = np.flatnonzero(trace.name_id == name)
        axes.barh(trace.lane_id[rows], trace.dur_ns[rows], left=trace.start_ns[rows], label=trace.names[name])
    axes.set_yticks(range(len(trace.lanes)), [lane.name for lane in trace.lanes])
    FigureCanvasAgg(figure).print_png(path)


TOOLS: dict[str, tuple[str, Callable[[Trace, Path], None]]] = {
    "cbprof": (".html", cbprof_page),
    "plotly": (".html", plotly_timeline),
    "matplotlib": (".png", matplotlib_bars),
}


def bench(
    spans: Annotated[int, typer.Option(help="About how many spans the trace has.")] = 20_000,
    repeat: Annotated[int, typer.Option(help="Runs of each tool.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(TOOLS)}.")] = None,
) -> None:
    """Measure, and print a table with the ratios to cbprof."""
    trace = generated(spans)
    found: dict[str, list[Result]] = {tool: [] for tool in TOOLS if not only or tool in only}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for _ in range(repeat):
            for tool, results in found.items():
                suffix, draw = TOOLS[tool]
                path = Path(folder) / f"{tool}{suffix}"
                start = time.perf_counter()
                draw(trace, path)
                build = time.perf_counter() - start
                results.append(Result(build, path.stat().st_size / 1e6, first_paint(browser, path)))
    typer.echo(f"{len(trace):,} spans, median of {repeat}\n")
    typer.echo("| tool | build | file | first paint |\n| --- | ---: | ---: | ---: |")
    middle = {tool: Result(*map(_median, zip(*results, strict=True))) for tool, results in found.items()}
    base = middle.get("cbprof")
    for tool, result in middle.items():
        cells = [
            _cell(result, base, field, unit) for field, unit in (("build_s", "s"), ("size_mb", "MB"), ("paint_s", "s"))
        ]
        typer.echo(f"| {tool} | {' | '.join(cells)} |")


def _median(values: tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _cell(result: Result, base: Result | None, field: str, unit: str) -> str:
    value, reference = getattr(result, field), getattr(base, field) if base else None
    if value is None:
        return ""
    text = f"{value:.2f} {unit}"
    return f"{text} ({value / reference:.2f}x)" if reference and result is not base else text


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no chromium on the PATH: install it first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def first_paint(browser: Browser, path: Path) -> float | None:
    """Seconds from opening a page to the frame after it was drawn; an image is not timed."""
    if path.suffix != ".html":
        return None
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(path.as_uri(), timeout=600_000)
    drawn = page.evaluate(DRAWN)
    page.close()
    return float(drawn) / 1000


if __name__ == "__main__":
    typer.run(bench)
