"""The gaps of a device as the page needs them: when, what ended each, how it lay around its launch, and the causes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import blame_gaps, blame_pieces
from cbprof.analysis.accounting.cause_tree import causes
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.states import States
from cbprof.render.picture.scene import Scene
from cbprof.render.theme import phase_colors
from cbprof.render.web.viewer_coarse import Stretches
from cbprof.render.web.viewer_columns import PackedColumn, pack, pack_instants
from cbprof.trace import Int64, take_or

MOST_CAUSES = 7  # that have a colour of their own
LONGEST_ANYWHERE = 100  # gaps of a long run that are told outside its stretches, too


def packed_gaps(scene: Scene, found: States, gaps: Gaps, where: Stretches | None, rows: Int64, edges: Int64) -> Any:
    """Gap ``i`` lasts from ``start[i]`` to ``end[i]``, and span ``span[i]`` of the page ends it; -1 is none or unknown.

    ``launched``, ``queued``: when, within the gap, its launch began and ended; the gap is unknown where ``known`` is 0.
    ``rows``: of the trace, in the order of the page. Of a long run: the gaps in stretches, and the longest anywhere.
    """
    place = np.full(len(scene.trace), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    shown = np.arange(len(gaps)) if where is None else np.union1d(where.enclosed(gaps), gaps.longest(LONGEST_ANYWHERE))
    start, end = gaps.start[shown], gaps.end[shown]
    known = gaps.known[shown]
    launched = np.where(known, start + gaps.host_late_ns[shown], end)
    queued = np.where(known, end - gaps.queue_ns[shown], end)
    origin = found.window.start_ns
    times = {"start": start, "end": end, "launched": launched, "queued": queued}
    numbers: dict[str, PackedColumn] = {
        "span": pack(take_or(place, gaps.ends_with[shown], -1), delta=True),
        "launch": pack(take_or(place, gaps.launch[shown], -1), delta=True),
        "step": pack(gaps.step[shown], delta=True),
        "known": pack(known.astype(np.int64)),
    }
    return {key: pack_instants(time - origin, edges) for key, time in times.items()} | numbers


def packed_blame(scene: Scene, found: States, gaps: Gaps, edges: Int64) -> dict[str, Any]:
    """The gaps cut where their cause changes: piece ``i`` begins at ``start[i]``, because of ``causes[cause[i]]``.

    A piece ends where the next one, or the activity that ends the gap, begins. Causes go by their names in the report.
    """
    trace, host = scene.trace, scene.host
    pieces = blame_pieces(trace, found.device, gaps, host)
    by_name = causes(trace, blame_gaps(trace, found.device, gaps, host), host)
    labels = [total.in_words for total in by_name.totals]
    shown = labels if len(labels) <= MOST_CAUSES + 1 else [*labels[:MOST_CAUSES], f"{len(labels) - MOST_CAUSES} others"]
    return {
        "causes": [{"label": label, "color": color} for label, color in zip(shown, phase_colors(shown), strict=True)],
        "start": pack_instants(pieces.start - found.window.start_ns, edges),
        "cause": pack(np.minimum(by_name.places(pieces.cause, pieces.span), len(shown) - 1)),
    }
