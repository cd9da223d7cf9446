"""The lanes of a few steps: what the host did, innermost span by innermost span, and what each stream ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.host import main_lane
from cbprof.analysis.accounting.intervals import overlaps
from cbprof.analysis.accounting.states import States
from cbprof.names import plain
from cbprof.render.picture.coverage import bin_edges
from cbprof.render.picture.scene import Scene, lane_order
from cbprof.trace import NONE, Int64


@dataclass(frozen=True, slots=True, eq=False)
class LaneView:
    """Stretches of one lane in the order of time, disjoint, and the span of the trace that each belongs to."""

    name: str
    start: Int64
    end: Int64
    span: Int64

    def by_column(self, start: int, end: int, columns: int) -> tuple[Int64, Int64]:
        """For each column the span that covers most of it, or -1; and one that it holds a sliver of, or -1.

        A span that is too short for any column is shown as a sliver, so that a copy of 3 us is not lost.
        """
        edges = bin_edges(start, end, columns)
        met = overlaps(edges[:-1], edges[1:], self.start, np.maximum(self.end, self.start + 1))
        length = met.end - met.start
        order = np.lexsort((met.b, length))  # the longest piece of each column is written last
        longest, covered = np.full(columns, NONE, dtype=np.int64), np.zeros(columns, dtype=np.int64)
        longest[met.a[order]] = self.span[met.b[order]]
        np.add.at(covered, met.a, length)
        shown = np.where(2 * covered >= np.diff(edges), longest, NONE)
        return shown, np.where(np.isin(longest, shown), NONE, longest)


def lanes_between(scene: Scene, states: States, start: int, end: int) -> Iterator[LaneView]:
    """The host lane that drives the device, then its streams in the order in which a step uses them.

    ``start``, ``end``: on the trace's own axis. Lanes without a span there are left out.
    """
    trace, host = scene.trace, scene.host
    lane = main_lane(trace, host, states.device)
    mine = host.select((host.lane == lane) & (host.end > start) & (host.start < end))
    if len(mine):
        yield LaneView("CPU", mine.start, mine.end, mine.span)
    for stream in lane_order(trace):
        if trace.lanes[stream].device != states.device:
            continue
        rows = np.flatnonzero((trace.lane_id == stream) & (trace.end_ns > start) & (trace.start_ns < end))
        if len(rows):
            yield LaneView(plain(trace.lanes[stream].name), trace.start_ns[rows], trace.end_ns[rows], rows)
