"""``cbprof plot``: pictures of a trace, or of two on one time axis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.api import IMAGES, PAGES
from cbprof.cli.options import Label, labelled, refuse_with, refuse_without
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import check_output, say
from cbprof.errors import UsageError


def plot(
    context: typer.Context,
    traces: Annotated[
        list[Path], typer.Argument(help="One trace, or two to lay one below the other.", metavar="TRACE")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="NAME.html, .png, .svg or .pdf. [default: beside the trace, .html]"),
    ] = None,
    width: Annotated[
        str | None, typer.Option(help="Of a .png, .svg or .pdf: 7in, 180mm or 1400px. [default: 7in]")
    ] = None,
    label: Label = None,
    term: Annotated[bool, typer.Option("--term", help="Draw in the terminal, as wide as it is.")] = False,
    flame: Annotated[
        bool,
        typer.Option("--flame", help="A flame graph: which code cost the GPU its time; of two, what changed."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the browser.")] = True,
    no_cache: NoCache = False,
) -> None:
    """Draw when the GPU worked and when it waited: an interactive page that works offline, an image, or text.

    Images need matplotlib: `pip install 'cbprof[image]'`.

    Examples:

        cbprof plot trace.json

        cbprof plot trace.sync.json trace.async.json -o timeline.html --no-open

        cbprof plot trace.json -o figure.pdf --width 7in

        cbprof plot before.json after.json --label before --label "with graphs"

        cbprof plot trace.json --term

        cbprof plot trace.json --flame -o flame.html --no-open
    """
    if len(traces) > 2:
        raise UsageError(f"{len(traces)} traces were given: plot takes one, or two to compare")
    if term:
        refuse_with(context, "--term", "output", "width", "open_page", "flame")
    picture = output or _page_beside(traces, ".flame.html" if flame else ".html")
    suffix = picture.suffix.lower()
    if suffix not in PAGES + IMAGES:
        raise UsageError(f"{picture}: choose a name that ends in {', '.join((PAGES[0], *IMAGES))}, or --term")
    if flame and suffix in IMAGES:
        raise UsageError(f"{picture}: the flame graph is a page: choose a name that ends in .html")
    if output is not None:
        check_output(picture, inputs=traces)
    if suffix in IMAGES:
        refuse_with(context, "an image", "open_page")
    else:
        refuse_without(context, "an image (-o NAME.png, .svg or .pdf)", "width")
    recording, *others = labelled([read(trace, no_cache=no_cache) for trace in traces], label)
    other = others[0] if others else None
    if term:
        recording.print_plot(other)
        return
    if output is None:
        check_output(picture, inputs=traces)  # a name made of theirs, which can be read by now
    if flame:
        from cbprof.render.views.pictures import save_flame

        save_flame(picture, recording, other)
        say(f"wrote {picture}")
    else:
        say(f"wrote {recording.save_plot(picture, other=other, width=width)}")
    if open_page and suffix in PAGES:
        import webbrowser

        webbrowser.open(picture.resolve().as_uri())


def _page_beside(traces: list[Path], suffix: str) -> Path:
    """``trace.json.gz`` gives ``trace.html``; ``trace.sync.json`` and ``trace.async.json`` give ``trace.html``."""
    stems = [trace.name.removesuffix(".gz").removesuffix(".json").removesuffix(".part") for trace in traces]
    stem = stems[0].removesuffix(".sync").removesuffix(".async") if len(stems) > 1 else stems[0]
    return traces[0].with_name(f"{stem}{suffix}")
