"""The flame graph as a page of its own: one file that works offline. A click on a cell zooms in on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from cbprof.files import write_whole
from cbprof.names import plain
from cbprof.numbers import duration
from cbprof.render.charts.flame import DIFFERENCE, READING, flame_chart, flame_of
from cbprof.render.web.page import as_html, data_element
from cbprof.trace import Trace

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 16px; font: 14px/1.5 system-ui, sans-serif; }}
h1 {{ margin: 0; font-size: 19px; overflow-wrap: anywhere; }}
p {{ margin: 4px 0 12px; }}
</style>
<h1>{title}</h1>
<p>{reading}</p>
<div id="flame" role="img" aria-label="{title}" style="height: {height}px"></div>
{data}
<script>{plotly}</script>
<script>
const {{ data, layout }} = JSON.parse(document.getElementById("flame-data").textContent);
const flame = document.getElementById("flame");
Plotly.newPlot(flame, data, layout, {{ displayModeBar: false, responsive: true }}).then(() => {{
  flame.on("plotly_click", ({{ points: [{{ data: bars, pointNumber }}] }}) => {{
    const from = bars.base[pointNumber];
    Plotly.relayout(flame, {{ "xaxis.range": [from, from + bars.x[pointNumber]] }});
  }});
  flame.on("plotly_doubleclick", () => Plotly.relayout(flame, {{ "xaxis.range": layout.xaxis.range }}));
  window.drawn = true;
}});
</script>
</html>
"""


def write_flame(traces: Sequence[Trace], labels: Sequence[str], path: Path, *, of: Iterable[Path] = ()) -> None:
    """Write the page about one trace, or the second against the first; ``labels``: what each is called.

    Whole or not at all. Raises :class:`CbprofError` on a disk error.
    """
    write_whole(path, flame_html(traces, labels).encode("utf-8"), "the flame graph", of=of)


def flame_html(traces: Sequence[Trace], labels: Sequence[str]) -> str:
    """The page as text."""
    flames = [flame_of(trace) for trace in traces]
    figure = flame_chart(*flames)
    idle = " and ".join(
        f"{plain(label)} ({duration(flame.idle_ns)} idle)" for label, flame in zip(labels, flames, strict=True)
    )
    script = (files("cbprof.render") / "vendor" / "plotly-basic.min.js").read_text(encoding="utf-8")
    return _PAGE.format(
        title=as_html(f"Which code cost the GPU its time: {idle}"),
        reading=as_html(f"{READING} {DIFFERENCE}" if len(flames) > 1 else READING),
        height=int(figure.layout.height),
        data=data_element("flame-data", json.loads(figure.to_json())),
        plotly=script,
    )
