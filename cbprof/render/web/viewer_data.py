"""What the interactive timeline knows of a run: columns of spans, states and steps, packed for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import blame_gaps, blame_pieces
from cbprof.analysis.accounting.cause_tree import causes
from cbprof.analysis.accounting.gaps import find_gaps
from cbprof.analysis.accounting.intervals import Intervals
from cbprof.analysis.accounting.states import GPU_ACTIVE, States
from cbprof.analysis.accounting.window import Window
from cbprof.render.picture.scene import Scene, StepBounds, lane_order
from cbprof.render.theme import STATES, UNTRACED, phase_colors
from cbprof.render.web.viewer_coarse import MOST_SPANS, PackedColumn, Stretches, coarse_document, pack, stretches
from cbprof.trace import BATCH_PHASES, NONE, Int64, Kind, Trace

MOST_CAUSES = 7  # that have a colour of their own
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
    count = np.bincount(trace.lane_id[rows], minlength=len(trace.lanes))
    shown = [lane for lane in lanes if count[lane]]
    return {
        "title": scene.title,
        "subtitle": scene.subtitle,
        "evidence": scene.evidence,
        "length": window.length_ns,
        "firstView": scene.first_view,
        "names": list(trace.names),
        "colors": phase_colors(trace.names),
        "lanes": [
            {"name": trace.lanes[lane].name, "device": trace.lanes[lane].device, "count": int(count[lane])}
            for lane in shown
        ],
        "spans": {
            "start": pack(trace.start_ns[rows] - window.start_ns, delta=True),
            "dur": pack(trace.dur_ns[rows]),
            "name": pack(trace.name_id[rows]),
            "kind": pack(trace.kind[rows]),
            "step": pack(trace.step[rows], delta=True),
            "slot": pack(trace.slot[rows]),
        },
        "devices": [
            {
                "device": each.device,
                "known": scene.totals_of(each) is not None,
                "untraced": len(each.untraced) > 0,
                "states": _packed_states(each, where),
                "blame": _packed_blame(scene, each) if where is None else None,
            }
            for each in scene.devices
        ],
        "steps": _packed_steps(trace, scene.steps if where is None else _steps_within(scene, where)),
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


def _packed_states(found: States, where: Stretches | None) -> dict[str, PackedColumn]:
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
    return {"start": pack(start[order] - found.window.start_ns, delta=True), "state": pack(state[order])}


def _packed_blame(scene: Scene, found: States) -> dict[str, Any]:
    """The gaps cut where their cause changes: piece ``i`` begins at ``start[i]``, because of ``causes[cause[i]]``.

    A piece ends where the next one, or the activity that ends the gap, begins. Causes go by their names in the report.
    """
    trace, host = scene.trace, scene.host
    gaps = find_gaps(trace, found, host, scene.activity)
    pieces = blame_pieces(trace, found.device, gaps, host)
    by_name = causes(trace, blame_gaps(trace, found.device, gaps, host), host)
    labels = [total.in_words for total in by_name.totals]
    shown = labels if len(labels) <= MOST_CAUSES + 1 else [*labels[:MOST_CAUSES], f"{len(labels) - MOST_CAUSES} others"]
    return {
        "causes": [{"label": label, "color": color} for label, color in zip(shown, phase_colors(shown), strict=True)],
        "start": pack(pieces.start - found.window.start_ns, delta=True),
        "cause": pack(np.minimum(by_name.places(pieces.cause, pieces.span), len(shown) - 1)),
    }


def _steps_within(scene: Scene, where: Stretches) -> StepBounds:
    """The steps that lie in a stretch from their first span to their last."""
    steps, origin = scene.steps, scene.window.start_ns
    stretch = np.searchsorted(where.start, steps.start + origin, side="right") - 1
    kept = (stretch >= 0) & (steps.end + origin <= where.end[np.maximum(stretch, 0)])
    return StepBounds(steps.step[kept], steps.start[kept], steps.end[kept], steps.middle[kept])


def _packed_steps(trace: Trace, steps: StepBounds) -> dict[str, PackedColumn]:
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
        "start": pack(steps.start, delta=True),
        "end": pack(steps.end, delta=True),
        "middle": pack(steps.middle, delta=True),
        "tokens": fact(trace.steps.tokens),
        "requests": fact(trace.steps.requests),
        "context": fact(trace.steps.context),
        "batchPhase": fact(trace.steps.phase),
    }
