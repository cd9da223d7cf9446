"""The report that people send to each other: what happened, why, what would help, and how it was measured; one file.

The sentence comes first, then what to keep in mind, then the interactive timeline and the figures behind it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cbprof.analysis.verdict.advice import about
from cbprof.files import write_whole
from cbprof.names import plain
from cbprof.render.web.page import as_html, as_prose, data_element, page, timeline_content
from cbprof.render.web.report_sections import sections
from cbprof.render.web.viewer_coarse import MOST_SPANS
from cbprof.render.words.report import AnalysedRun, analyse_runs, gist, notes, subtitle
from cbprof.trace import Trace

MOST_BYTES = 3_000_000
MOST_SPANS_IN_A_MAIL = 100_000


def write_report(
    traces: Mapping[str, Trace], path: Path, *, of: Iterable[Path] = (), labels: Sequence[str] = ()
) -> None:
    """Write :func:`report_html` to ``path``, whole or not at all. Raises :class:`CbprofError` on a disk error."""
    write_whole(path, report_html(traces, labels).encode("utf-8"), "the report", of=of)


def report_html(traces: Mapping[str, Trace], labels: Sequence[str] = ()) -> str:
    """The page as text; ``traces`` by the name of their file, in the order of the page.

    ``labels``: what to call each in place of its file.

    Raises :class:`DataError` where a time is too large to be exact in a browser (26 days).
    """
    runs = analyse_runs(traces, labels)
    parts = list(sections(runs))
    figures = {key: json.loads(figure.to_json()) for part in parts for key, figure in part.figures.items()}
    scenes = [run.scene for run in runs]
    before = f'<header class="gist">{_gist(runs)}</header><section class="timeline" id="timeline"><h2>Timeline</h2>'
    after = "\n".join(("</section>", *(part.to_html() for part in parts), _charts(figures)))

    def whole(most_spans: int) -> str:
        timeline = timeline_content(scenes, embedded=True, most_spans=most_spans)
        return page("timeline", "report", title=" ".join(gist(runs)), content=f"{before}{timeline}{after}")

    report = whole(MOST_SPANS)
    if len(report) > MOST_BYTES:  # too large for a mail: ship single spans of some stretches only
        report = whole(MOST_SPANS_IN_A_MAIL // len(scenes))
    return report


def _gist(runs: Sequence[AnalysedRun]) -> str:
    lines = "".join(f"<li{_class(note.warning)}>{as_prose(note.text)}</li>" for note in notes(runs))
    sentences = "".join(f"<span>{as_prose(sentence)}</span> " for sentence in gist(runs))
    return f'<h1>{sentences}</h1><p>{as_html(subtitle(runs))}</p><ul class="notes">{lines}</ul>{_advice(runs)}'


def _advice(runs: Sequence[AnalysedRun]) -> str:
    """What to do next about each run, with the commands."""
    lines = "".join(
        f"<li>{as_html(f'{run.label}: ' if len(runs) > 1 else '')}Next: {as_prose(plain(each.what))} "
        f"<code>{as_html(plain(each.command))}</code></li>"
        for run in runs
        for each in about(run.summary.advice, run.name)
    )
    return f'<ul class="advice" aria-label="What to do next">{lines}</ul>' if lines else ""


def _class(warning: bool) -> str:
    return ' class="warning"' if warning else ""


def _charts(figures: Mapping[str, Any]) -> str:
    """The data of the charts, and plotly's basic distribution, deflated: a third of its 1.2 MB."""
    script = (files("cbprof.render") / "vendor" / "plotly-basic.min.js").read_bytes() if figures else b""
    deflated = base64.b64encode(zlib.compress(script, level=9)).decode("ascii")
    plotly = f'<script type="application/octet-stream" id="chart-script">{deflated}</script>'
    return data_element("chart-data", figures) + plotly
