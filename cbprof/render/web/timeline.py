"""The interactive timeline: a trace, or two on one time axis, as one HTML file that needs no network.

The page draws on a canvas with a few hundred lines of its own (``viewer/``). A chart library such as plotly draws the
marks that it is given: bars of 100,000 spans are slow and wrong once they are thinner than a pixel, and bins that were
computed in advance are wrong after zooming. The viewer instead holds the spans themselves and computes the exact
coverage of every pixel column for whatever is in view, by the method of ``coverage.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbprof.render.picture.scene import scenes_of
from cbprof.render.web.page import page, timeline_content
from cbprof.trace import Trace


def timeline_html(
    trace: Trace, other: Trace | None = None, *, title: str | None = None, labels: Sequence[str] = ()
) -> str:
    """The page as text. ``other`` is drawn below ``trace`` on the same time axis. ``labels``: of each, its file.

    Raises :class:`DataError` where a time is too large to be exact in a browser (26 days).
    """
    scenes = scenes_of([each for each in (trace, other) if each is not None], labels)
    heading = title or " / ".join(f"{each.label}: {each.title}" if each.label else each.title for each in scenes)
    return page("timeline", title=heading, content=timeline_content(scenes, title))
