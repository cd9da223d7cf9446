"""Web pages of one file: templates, the viewer's parts, and how text gets into them without breaking out."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from cbprof.render.picture.scene import Scene
from cbprof.render.theme import STATES
from cbprof.render.web.viewer_coarse import MOST_SPANS
from cbprof.render.web.viewer_data import run_document
from cbprof.trace import BATCH_PHASES

# Concatenated in this order into one module script: each file uses only what stands before it.
SCRIPTS = (
    "columns.js",
    "geometry.js",
    "text.js",
    "coarse.js",
    "partition.js",
    "run.js",
    "paint.js",
    "plot.js",
    "overview.js",
    "detail.js",
    "panel.js",
    "viewer.js",
    "controls.js",
)


def fill(template: str, **parts: str) -> str:
    """A template of ``viewer/`` with each ``{{part}}`` replaced; what is filled in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], viewer_file(template))


def viewer_file(name: str) -> str:
    return (files("cbprof.render") / "viewer" / name).read_text(encoding="utf-8")


def viewer_parts(
    scenes: Sequence[Scene], title: str | None = None, *, embedded: bool = False, most_spans: int = MOST_SPANS
) -> dict[str, str]:
    """The parts ``style``, ``body``, ``data`` and ``script`` of a page that holds the timeline of these runs.

    ``embedded``: it is one of several things on the page, so that the wheel scrolls over it unless Ctrl is held.
    ``most_spans``: of a run whose spans are all shipped.
    """
    opening = sum(scenes[0].first_view) // 2
    document = {
        "title": title,
        "embedded": embedded,
        "states": [{"key": key, "label": style.label} for key, style in STATES.items()],
        "phases": list(BATCH_PHASES),
        "runs": [run_document(each, most_spans=most_spans, opening_ns=opening) for each in scenes],
    }
    colors = " ".join(f"--{key}: {style.color};" for key, style in STATES.items())
    return {
        "style": f":root {{{colors}}}\n{viewer_file('timeline.css')}",
        "body": viewer_file("body.html"),
        "data": as_json(document),
        "script": "\n".join(viewer_file(name) for name in SCRIPTS),
    }


def as_json(document: Any) -> str:
    """JSON that can stand inside a script element: ASCII only, and no name can end the element."""
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def as_html(text: str) -> str:
    """Text for an element or an attribute, in ASCII: any name, even half a surrogate pair, is valid UTF-8 then."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")
