"""``cbprof plot``: the timeline of a trace, as a web page of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.errors import UsageError


def plot(
    traces: Annotated[
        list[Path], typer.Argument(help="One trace, or two to lay one below the other.", metavar="TRACE")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write. [default: beside the trace, .html]")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Show it in the browser.")] = True,
) -> None:
    """Draw when the GPU worked and when it waited: an interactive page in one file, which works offline.

    Examples:

        cbprof plot trace.json

        cbprof plot trace.sync.json trace.async.json -o timeline.html --no-open
    """
    from cbprof.formats import load
    from cbprof.render.timeline import write_timeline

    if len(traces) > 2:
        raise UsageError(f"{len(traces)} traces were given: plot takes one, or two to compare")
    page = output or _page_beside(traces)
    if page.suffix.lower() not in {".html", ".htm"}:
        raise UsageError(f"{page}: only .html pages can be written so far: choose a name that ends in .html")
    loaded = [load(trace) for trace in traces]
    write_timeline(loaded[0], page, other=loaded[1] if len(loaded) > 1 else None)
    typer.echo(f"wrote {page}")
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _page_beside(traces: list[Path]) -> Path:
    """``trace.json.gz`` gives ``trace.html``; ``trace.sync.json`` and ``trace.async.json`` give ``trace.html``."""
    stems = [trace.name.removesuffix(".gz").removesuffix(".json").removesuffix(".part") for trace in traces]
    stem = stems[0].removesuffix(".sync").removesuffix(".async") if len(stems) > 1 else stems[0]
    return traces[0].with_name(f"{stem}.html")
