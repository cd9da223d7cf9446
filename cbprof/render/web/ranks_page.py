"""The page about a fleet that people send to each other: the paragraph, the heat map, and the tables; one file."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from cbprof.analysis.ranks.report import RanksReport
from cbprof.files import write_whole
from cbprof.numbers import percent, ticks
from cbprof.render.picture.ranks_heat import RAMP, Cells, heat_png, lines, most_idle_pct
from cbprof.render.sheet import Sheet
from cbprof.render.tables.ranks import failed_sheet, job_sheets, ranks_sheet, slow_sheet
from cbprof.render.web.page import as_html, as_prose, data_element, in_ascii, page
from cbprof.render.words.ranks import sentences

MOST_LINES = 512
MOST_ROWS = 256
MOST_JOBS = 8
LINE_PX, LEAST_PX, MOST_PX = 14, 60, 640
UNKNOWN = 255  # of an idle share in half per cents
ROW_LABELS = 24


def write_ranks_page(report: RanksReport, path: Path, *, of: Iterable[Path] = ()) -> None:
    """Write :func:`ranks_html` to ``path``, whole or not at all. Raises :class:`CbprofError` on a disk error."""
    write_whole(path, ranks_html(report).encode("utf-8"), "the report", of=of)


def ranks_html(report: RanksReport) -> str:
    """The page as text."""
    said = sentences(report)
    first, others = " ".join(said[:2]), said[2:]
    parts = (_gist(report, first, others), _heat(report) if report.rows else "", *_sections(report))
    return page("timeline", "report", "fleet", title=first, content="\n".join(parts))


def _gist(report: RanksReport, first: str, others: list[str]) -> str:
    notes = "".join(f'<li class="warning">{as_prose(warning)}</li>' for warning in report.warnings)
    said = f'<h1>{as_prose(first)}</h1><p>{as_prose(" ".join(others))}</p><ul class="notes">{notes}</ul>'
    return f'<header class="gist">{said}</header>'


def _heat(report: RanksReport) -> str:
    """The picture, its axes, and the figures behind it for the pointer."""
    found, heat = lines(report, MOST_LINES), report.heat
    height = min(MOST_PX, max(LEAST_PX, LINE_PX * len(found.labels)))
    picture = base64.b64encode(heat_png(found.cells)).decode("ascii")
    every = max(1, -(-len(found.labels) // ROW_LABELS))
    rows = "".join(
        f'<span style="top: {100 * (index + 0.5) / len(found.labels):.3f}%">{as_html(label)}</span>'
        for index, label in enumerate(found.labels)
        if index % every == 0
    )
    length = max(1, heat.length_ns)
    times = "".join(
        f'<span style="left: {100 * time / length:.3f}%">{text}</span>' for time, text in ticks(0, length, 8)
    )
    document = {
        "labels": list(found.labels),
        "columns": found.cells.shape[1],
        "length_s": length / 1e9,
        "unknown": UNKNOWN,
        "half_pct": base64.b64encode(_half_percents(found.cells)).decode("ascii"),
    }
    ramp = ", ".join(f"rgb{color}" for color in RAMP)
    many = f" Each line shows the most idle of {found.each} ranks." if found.each > 1 else ""
    axis = "on the common clock" if heat.together else "every rank from its own start"
    alt = as_html(f"Idle share of the GPU, rank by time, {axis}.{many} The darker, the more idle.")
    return (
        f'<section id="heat"><h2>Idle time by rank</h2>'
        f'<div class="heat" style="height: {height}px"><div class="ranks">{rows}</div>'
        f'<img alt="{alt}" src="data:image/png;base64,{picture}"><output hidden></output></div>'
        f'<div class="times">{times}</div>'
        f'<p class="caption">{alt} <span class="ramp" style="background: linear-gradient(to right, {ramp})"></span> '
        f"0 to {as_html(percent(most_idle_pct(found.cells)))}</p>"
        f"{data_element('heat-data', document)}</section>"
    )


def _half_percents(cells: Cells) -> bytes:
    return np.where(np.isnan(cells), UNKNOWN, np.rint(2 * np.nan_to_num(cells))).astype(np.uint8).tobytes()


def _sections(report: RanksReport) -> list[str]:
    jobs = list(job_sheets(report, MOST_JOBS))
    found = [
        ("slowest", "Slowest ranks, and why", [slow_sheet(report)]),
        ("together", "Steps and collectives", jobs),
        ("ranks", "Ranks", [ranks_sheet(report, MOST_ROWS)]),
        ("failed", "Files without figures", [failed_sheet(report)]),
    ]
    return [_section(key, title, sheets) for key, title, sheets in found if any(sheet.rows for sheet in sheets)]


def _section(key: str, title: str, sheets: list[Sheet]) -> str:
    tables = "".join(f'<div class="sheet">{in_ascii(sheet.to_html())}</div>' for sheet in sheets if sheet.rows)
    return f'<section id="{key}"><h2>{as_html(title)}</h2><div class="columns">{tables}</div></section>'
