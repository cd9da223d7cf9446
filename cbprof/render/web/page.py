"""Web pages of one file: one template, the parts that a page is made of, and how text gets in without breaking out."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cbprof.render.picture.scene import Scene
from cbprof.render.sheet import prose
from cbprof.render.theme import STATES
from cbprof.render.web.bundle import bundle, viewer_file
from cbprof.render.web.viewer_coarse import MOST_SPANS
from cbprof.render.web.viewer_data import enums, run_document


def page(*parts: str, title: str, content: str) -> str:
    """A page whose ``<body>`` holds the markup ``content``; ``title`` is text.

    ``parts`` have a style sheet each in ``viewer/``, such as ``timeline`` and ``report``. The last one has the script.
    """
    colors = " ".join(f"--{key}: {style.color};" for key, style in STATES.items())
    filled = {
        "version": as_html(version("cbprof")),
        "title": as_html(title),
        "style": "\n".join((f":root {{{colors}}}", *(viewer_file(f"{part}.css") for part in parts))),
        "parts": " ".join(parts),
        "content": content,
        "script": bundle(parts[-1]),
    }
    # One pass: what is filled in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], viewer_file("page.html"))


def timeline_content(
    scenes: Sequence[Scene], title: str | None = None, *, embedded: bool = False, most_spans: int = MOST_SPANS
) -> str:
    """The markup and the data of the timeline of these runs.

    ``embedded``: it is one of several things on the page, so that the wheel scrolls over it unless Ctrl is held.
    ``most_spans``: of a run whose spans are all shipped.
    """
    opening = scenes[0].view_within(min(each.window.length_ns for each in scenes))
    document = {
        "title": title,
        "embedded": embedded,
        "opening": opening,
        **enums(),
        "runs": [run_document(each, most_spans=most_spans, opening_ns=sum(opening) // 2) for each in scenes],
    }
    return viewer_file("timeline.html") + data_element("data", document)


def data_element(key: str, document: Any) -> str:
    """JSON in an element of its own, found by the id ``key``. It is ASCII, and no name in it can end the element."""
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{key}">{text}</script>'


def as_prose(text: str) -> str:
    """A sentence for an element, as :func:`prose` has it: numbers keep their units. In ASCII."""
    return in_ascii(prose(text))


def in_ascii(markup: str) -> str:
    """What is not ASCII as numeric references, so that any name is valid UTF-8."""
    return markup.encode("ascii", "xmlcharrefreplace").decode("ascii")


def as_html(text: str) -> str:
    """Text for an element or an attribute, in ASCII: any name, even half a surrogate pair, is valid UTF-8 then."""
    return in_ascii(html.escape(text))
