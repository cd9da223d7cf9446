"""What the interactive timeline knows of a run: columns of spans, states and steps, packed for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cbprof.analysis.accounting.gaps import find_gaps
from cbprof.analysis.accounting.host import waiting_lanes
from cbprof.analysis.accounting.intervals import Intervals
from cbprof.analysis.accounting.states import GPU_ACTIVE, States
from cbprof.analysis.accounting.window import Window
from cbprof.names import short
from cbprof.render.picture.scene import Scene, StepBounds, lane_order
from cbprof.render.theme import STATES, UNTRACED, phase_colors
from cbprof.render.web.viewer_coarse import MOST_SPANS, Stretches, coarse_document, stretches
from cbprof.render.web.viewer_columns import PackedColumn, edges_of, pack, pack_instants
from cbprof.render.web.viewer_gaps import packed_blame, packed_gaps
from cbprof.trace import BATCH_PHASES, NONE, Int64, Kind, Trace, take_or

# For eyes without colour, of the states in which the GPU waits, and of those in which the host is not known.
PATTERNS = {**dict.fromkeys(UNTRACED, "crossed"), "cpu_only": "hatch", "neither": "dots"}


def enums() -> dict[str, Any]:
    """What the numbers in the columns of a run mean: the scripts hold no number of an enum and no name of a state.

    ``states``: by number; ``gpu`` says whether it is active, ``untraced`` that nothing is known of the host.
    ``kinds``: the number of a blocking wait, and the kinds of one step on a device in the order in which they wait for
    each other. ``phases``: of a batch, by number.
    """
    states = [
        {"key": key, "label": style.label, "pattern": PATTERNS.get(key)}
        | {"gpu": key in GPU_ACTIVE, "untraced": key in UNTRACED}
        for key, style in STATES.items()
    ]
    chain = [int(kind) for kind in (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H)]
    return {"states": states, "phases": list(BATCH_PHASES), "kinds": {"wait": int(Kind.CPU_WAIT), "chain": chain}}


def run_document(scene: Scene, *, most_spans: int = MOST_SPANS, opening_ns: int | None = None) -> dict[str, Any]:
    """One run as ``viewer/run.js`` reads it, with all spans up to ``most_spans``. Times: ns from the window's start.

    ``opening_ns``: where the page opens, if it is not where this run alone would be shown first.

    Raises :class:`DataError` where a time is too large to be exact in a browser (26 days).
    """
    trace, window = scene.trace, scene.window
    lanes = lane_order(trace)
    opening = sum(scene.first_view) // 2 if opening_ns is None else opening_ns
    where = stretches(scene, most_spans, opening) if len(trace) > most_spans else None
    rows = _by_lane(trace, lanes, _rows_in_view(trace, window) if where is None else where.rows(trace))
    start, dur = trace.start_ns[rows] - window.start_ns, trace.dur_ns[rows]
    edges = edges_of(start, dur, window.length_ns)
    count = np.bincount(trace.lane_id[rows], minlength=len(trace.lanes))
    shown = [lane for lane in lanes if count[lane]]
    waiting = set(waiting_lanes(trace, scene.host).tolist())
    if waiting.issuperset(lane for lane in shown if not trace.lanes[lane].on_device):
        waiting = set()  # there is no other thread to look at
    return {
        "label": scene.label,
        "title": scene.title,
        "subtitle": scene.subtitle,
        "evidence": scene.evidence,
        "length": window.length_ns,
        "names": list(trace.names),
        "short": {index: text for index, name in enumerate(trace.names) if (text := short(name)) != name},
        "colors": phase_colors(trace.names),
        "lanes": [
            {
                "name": trace.lanes[lane].name,
                "device": trace.lanes[lane].device,
                "count": int(count[lane]),
                "waits": lane in waiting,
            }
            for lane in shown
        ],
        "spans": {
            "start": pack(start, delta=True),
            "dur": pack(dur),
            "name": pack(trace.name_id[rows]),
            "kind": pack(trace.kind[rows]),
            "step": pack(trace.step[rows], delta=True),
            "slot": pack(trace.slot[rows]),
            "launch": pack(_launches(scene, rows), delta=True),
        },
        "devices": [_packed_device(scene, each, where, rows, edges) for each in scene.devices],
        "steps": _packed_steps(trace, scene.steps if where is None else _steps_within(scene, where), edges),
        "coarse": None if where is None else coarse_document(scene, where, shown),
    }


def _rows_in_view(trace: Trace, window: Window) -> Int64:
    """The spans that touch the window."""
    return np.flatnonzero((trace.start_ns <= window.end_ns) & (trace.end_ns >= window.start_ns))


def _by_lane(trace: Trace, lanes: Sequence[int], rows: Int64) -> Int64:
    """The rows lane by lane, each lane in the order of time."""
    place = np.empty(len(trace.lanes), dtype=np.int64)
    place[np.array(lanes, dtype=np.int64)] = np.arange(len(lanes))
    return rows[np.argsort(place[trace.lane_id[rows]], kind="stable")]


def _launches(scene: Scene, rows: Int64) -> Int64:
    """For each span of the page the place of the one that launched it, or -1."""
    place = np.full(len(scene.trace), NONE, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return take_or(place, scene.host.launch_of[rows], NONE)


def _packed_device(scene: Scene, found: States, where: Stretches | None, rows: Int64, edges: Int64) -> dict[str, Any]:
    gaps = find_gaps(scene.trace, found, scene.host, scene.activity)
    return {
        "device": found.device,
        "known": scene.totals_of(found) is not None,
        "untraced": len(found.untraced) > 0,
        "states": _packed_states(found, where, edges),
        "blame": packed_blame(scene, found, gaps, edges) if where is None else None,
        "gaps": packed_gaps(scene, found, gaps, where, rows, edges),
    }


def _packed_states(found: States, where: Stretches | None, edges: Int64) -> dict[str, PackedColumn]:
    """The window cut where the state changes: piece ``i`` begins at ``start[i]`` and is in state ``state[i]``.

    Of a long run only the stretches ``where``: what follows each is in a state of its own, about which nothing is said.
    """
    pieces = [getattr(found, key) for key in STATES]  # in the order that the page is told
    if where is not None:
        within = Intervals(where.start, where.end)
        pieces = [piece.intersect(within) for piece in pieces]
        pieces.append(Intervals(where.end, where.end))
    start = np.concatenate([piece.start for piece in pieces])
    state = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    order = np.argsort(start, kind="stable")
    return {"start": pack_instants(start[order] - found.window.start_ns, edges), "state": pack(state[order])}


def _steps_within(scene: Scene, where: Stretches) -> StepBounds:
    """The steps that lie in a stretch from their first span to their last."""
    steps, origin = scene.steps, scene.window.start_ns
    stretch = np.searchsorted(where.start, steps.start + origin, side="right") - 1
    kept = (stretch >= 0) & (steps.end + origin <= where.end[np.maximum(stretch, 0)])
    return StepBounds(steps.step[kept], steps.start[kept], steps.end[kept], steps.middle[kept])


def _packed_steps(trace: Trace, steps: StepBounds, edges: Int64) -> dict[str, PackedColumn]:
    """Bounds and batch facts of each step; a fact that the trace does not hold is -1."""
    row = np.searchsorted(trace.steps.step, steps.step)
    known = row < len(trace.steps)
    known[known] = trace.steps.step[row[known]] == steps.step[known]

    def fact(column: Any) -> PackedColumn:
        values = np.full(len(steps.step), NONE, dtype=np.int64)
        values[known] = column[row[known]]
        return pack(values, delta=True)

    return {
        "step": pack(steps.step, delta=True),
        "start": pack_instants(steps.start, edges),
        "end": pack_instants(steps.end, edges),
        "middle": pack(steps.middle, delta=True),
        "tokens": fact(trace.steps.tokens),
        "requests": fact(trace.steps.requests),
        "context": fact(trace.steps.context),
        "batchPhase": fact(trace.steps.phase),
    }
