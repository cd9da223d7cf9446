"""The findings as files: one page with all of them, and for each its timeline, its traces, its chart."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cbprof.files import write_whole
from cbprof.formats import save
from cbprof.lab.catalog import lesson
from cbprof.lab.chart import svg
from cbprof.lab.finding import Finding, Table
from cbprof.lab.terminal import verdict
from cbprof.render.web.timeline import timeline_html

PAGE = "index.html"
FIGURES = "findings.json"

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --ground: #ffffff; --line: #dddddd; --right: #00664f; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8ecf1; --ground: #13171c; --line: #323a44; --right: #5cc8a8; }
  svg rect { fill: #1b2027; } svg text { fill: #e8ecf1; } svg path[stroke="#e4e4e4"] { stroke: #323a44; }
  svg [stroke="#00664f"] { stroke: #5cc8a8; } svg [fill="#00664f"] { fill: #5cc8a8; }
}
body {
  font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
  background: var(--ground); color: var(--text); overflow-wrap: break-word;
}
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
.proves { font-weight: 600; }
.ok { color: var(--right); } .wrong { color: #d55e00; } .skipped { color: #888888; }
.table { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem 0 .2rem 1.2rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; white-space: normal; }
svg { max-width: 100%; height: auto; }
iframe { width: 100%; height: 480px; border: 1px solid var(--line); }
@media print { iframe { break-inside: avoid; } }
"""

# A timeline is as high as its lanes need, which is known once it is drawn; some are, before this script runs.
SCRIPT = """
function fit(frame) {
  const page = frame.contentDocument;
  const adjust = () => { frame.style.height = page.documentElement.scrollHeight + 4 + "px"; };
  new ResizeObserver(adjust).observe(page.body);
}
for (const frame of document.querySelectorAll("iframe")) {
  if (frame.contentDocument?.getElementById("runs")) fit(frame);
  else frame.addEventListener("load", () => fit(frame));
}
"""


def write_findings(findings: Sequence[Finding], folder: Path, device: str) -> Path:
    """Write all files of ``findings`` into ``folder``, which is made if need be. Returns the page with all of them.

    ``NAME.html`` is a timeline, ``NAME.TRACE.json.gz`` what was recorded, ``NAME.svg`` a chart, ``findings.json`` the
    numbers. Raises :class:`CbprofError` on a disk error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for finding in findings:
        timeline = _timeline(finding)
        if timeline:
            write_whole(folder / f"{finding.name}.html", timeline.encode(), "the timeline")
        if finding.chart:
            write_whole(folder / f"{finding.name}.svg", svg(finding.chart).encode(), "the chart")
        for name, trace in finding.traces:
            save(trace, folder / f"{finding.name}.{_slug(name)}.json.gz")
        sections.append(_section(finding, timeline))
    figures = json.dumps(to_json(findings, device), indent=1)
    write_whole(folder / FIGURES, f"{figures}\n".encode(), "the figures")
    page = _page(sections, device).encode("utf-8")
    write_whole(folder / PAGE, page, "the page")
    return folder / PAGE


def to_json(findings: Sequence[Finding], device: str) -> dict[str, Any]:
    """Plain data with stable keys: what each finding proves, and its figures."""
    return {
        "schema": 1,
        "device": device,
        "findings": [
            {
                "name": finding.name,
                "ok": finding.ok,
                "skipped": finding.skipped,
                "unchecked": list(finding.unchecked),
                "proves": finding.proves,
                "figures": dict(finding.figures),
                "table": [list(finding.table.header), *map(list, finding.table.rows)],
            }
            for finding in findings
        ],
    }


def _timeline(finding: Finding) -> str:
    """The recordings on one axis of time, as a page of its own."""
    if not finding.traces:
        return ""
    names = " / ".join(each.name for each in finding.traces[:2])
    first, *others = (each.trace for each in finding.traces[:2])
    return timeline_html(first, title=f"{finding.name}: {names}", other=others[0] if others else None)


def _section(finding: Finding, timeline: str) -> str:
    about, explanation = lesson(finding.name)
    state = "skipped" if finding.skipped else "ok" if finding.ok else "wrong"
    parts = [
        f'<h2 id="{finding.name}">{finding.name}</h2>',
        f"<p>{html.escape(about)}</p><p>{_prose(explanation)}</p>",
        f'<p class="proves"><span class="{state}">{verdict(finding)[0]}:</span> {html.escape(finding.proves)}</p>',
    ]
    parts += [f"<p>Not checked on this device: {html.escape(claim)}.</p>" for claim in finding.unchecked]
    if finding.table.rows:
        parts.append(_html_table(finding.table))
    if finding.chart:
        parts.append(svg(finding.chart))
    if timeline:
        parts.append(f'<iframe title="{finding.name}" loading="lazy" srcdoc="{html.escape(timeline)}"></iframe>')
    return "\n".join(parts)


def _html_table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    rows = row(table.header, "th") + "".join(row(cells, "td") for cells in table.rows)
    return f'<div class="table"><table>{rows}</table></div>'


def _page(sections: Sequence[str], device: str) -> str:
    body = "\n".join(sections)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>The lab of cbprof</title><style>{STYLE}</style></head>
<body><h1>The lab</h1>
<p>Each idea of asynchronous batching, made to happen and measured on: {html.escape(device)}.</p>
{body}
<script>{SCRIPT}</script></body></html>
"""


def _prose(text: str) -> str:
    """A paragraph of a docstring: double backticks are code."""
    return re.sub(r"``(.+?)``", r"<code>\1</code>", html.escape(text))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
