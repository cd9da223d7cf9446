"""A run too long to ship every span: exact coverage in a few thousand bins, and all spans of a few stretches.

Zoomed out nothing is lost: a pixel is wider than a bin, and a bin is exact. Zoomed in, the stretches show every span
with its name; between them the viewer shows the bins, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.render.picture.coverage import bin_edges
from cbprof.render.picture.scene import Scene
from cbprof.render.theme import STATES, phase_colors
from cbprof.render.web.viewer_columns import pack
from cbprof.trace import Int64, Kind, Trace

MOST_SPANS = 500_000  # of a run whose spans are all shipped
BINS = 8192
STRETCHES = 5  # the beginning, the end, what the page shows first, and between them
SPANS_IN_STRETCHES = 200_000  # of one run, if it is not told to be smaller
MOST_LAYERS = 10  # names of one lane that have a colour of their own


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """[start, end) on the trace's own axis, apart, in the order of time: where all spans are shipped."""

    start: Int64
    end: Int64

    def rows(self, trace: Trace) -> Int64:
        """The spans that touch a stretch."""
        touched = np.zeros(len(trace), dtype=bool)
        for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True):
            touched |= (trace.start_ns <= end) & (trace.end_ns >= start)
        return np.flatnonzero(touched)

    def enclosed(self, gaps: Gaps) -> Int64:
        """The gaps that lie in a stretch from begin to end."""
        stretch = np.searchsorted(self.start, gaps.start, side="right") - 1
        return np.flatnonzero((stretch >= 0) & (gaps.end <= self.end[np.maximum(stretch, 0)]))


def stretches(scene: Scene, most_spans: int, opening_ns: int) -> Stretches:
    """Stretches of equally many spans, spread over the run; one of them is where the page opens.

    ``most_spans``: of a run that ships all of them. ``opening_ns``: from the start of the window.
    """
    window, start = scene.window, scene.trace.start_ns
    first, last = np.searchsorted(start, (window.start_ns, window.end_ns))
    opening = int(np.searchsorted(start, min(window.start_ns + opening_ns, window.end_ns)))
    half = min(SPANS_IN_STRETCHES, most_spans // 2) // STRETCHES // 2
    middles = {int(first) + half, opening, int(last) - half}
    middles |= {int(first + (last - first) * part // (STRETCHES - 1)) for part in (1, 3)}
    rows = np.array(sorted(middles))
    begin = np.where(rows - half <= first, window.start_ns, start[np.maximum(rows - half, 0)])
    end = np.where(rows + half >= last, window.end_ns, start[np.minimum(rows + half, len(start) - 1)])
    apart = union(begin, end)
    return Stretches(apart.start, apart.end)


def coarse_document(scene: Scene, where: Stretches, lanes: Sequence[int]) -> dict[str, Any]:
    """What ``viewer/coarse.js`` reads: coverage of each state of each device, and of each lane by name, in bins."""
    edges = bin_edges(scene.window.start_ns, scene.window.end_ns, min(BINS, max(1, scene.window.length_ns)))
    origin = scene.window.start_ns
    return {
        "edges": pack(edges - origin, delta=True),
        "stretches": [
            (start - origin, end - origin) for start, end in zip(where.start.tolist(), where.end.tolist(), strict=True)
        ],
        "devices": [[_packed(getattr(each, key), edges) for key in STATES] for each in scene.devices],
        "lanes": [list(_layers(scene, lane, edges)) for lane in lanes],
    }


def _layers(scene: Scene, lane: int, edges: Int64) -> Iterator[dict[str, Any]]:
    """The innermost spans of a host lane, or the spans of a stream, by name: what takes most time, and the rest."""
    trace = scene.trace
    if trace.lanes[lane].on_device:
        rows = np.flatnonzero(trace.lane_id == lane)
        start, end, kind, name = trace.start_ns[rows], trace.end_of(rows), trace.kind[rows], trace.name_id[rows]
    else:
        did = scene.host.select(scene.host.lane == lane)
        start, end, kind, name = did.start, did.end, did.kind, trace.name_id[did.span]
    group = name.astype(np.int64) * 2 + (kind == Kind.CPU_WAIT)
    time = np.bincount(group, weights=end - start, minlength=1)
    largest = np.argsort(-time, kind="stable")[:MOST_LAYERS]
    colors = phase_colors(trace.names)
    for key in largest[time[largest] > 0].tolist():
        mine = group == key
        layer = {"name": trace.names[key // 2], "color": colors[key // 2], "wait": bool(key % 2)}
        yield layer | {"time": _packed(union(start[mine], end[mine]), edges)}
    others = ~np.isin(group, largest)
    if others.any():
        yield {"name": "others", "color": "#b7bcc4", "wait": False, "time": _packed(_rest(start, end, others), edges)}


def _rest(start: Int64, end: Int64, mask: npt.NDArray[np.bool_]) -> Intervals:
    return union(start[mask], end[mask])


def _packed(piece: Intervals, edges: Int64) -> Any:
    return pack(np.diff(piece.before(edges)))
