"""The interactive timeline: a trace, or two on one time axis, as one HTML file that needs no network.

The page draws on a canvas with a few hundred lines of its own (``viewer/``). A chart library such as plotly draws the
marks that it is given: bars of 100,000 spans are slow and wrong once they are thinner than a pixel, and bins that were
computed in advance are wrong after zooming. The viewer instead holds the spans themselves and computes the exact
coverage of every pixel column for whatever is in view, by the method of ``coverage.py``.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cbprof.analysis.host import host_timeline
from cbprof.analysis.states import States, states
from cbprof.analysis.window import Window, run_window
from cbprof.errors import CbprofError
from cbprof.render.columns import PackedColumn, pack
from cbprof.render.numbers import duration
from cbprof.render.phase_colors import phase_colors
from cbprof.render.theme import STATES
from cbprof.trace import BATCH_PHASES, NONE, Int64, Kind, Trace

# Concatenated in this order into one module script: each file uses only what stands before it.
SCRIPTS = (
    "columns.js",
    "geometry.js",
    "text.js",
    "run.js",
    "paint.js",
    "plot.js",
    "overview.js",
    "detail.js",
    "panel.js",
    "viewer.js",
    "controls.js",
)

EVIDENCE = {
    "cuda_events": "GPU activity is the time between CUDA events on a stream; holes inside such a span are not seen.",
    "cupti": "GPU activity is the union of the device's own activity records (CUPTI).",
    "emulated": "No GPU: another process plays the device; active means that it was running the operation.",
    "predicted": "Predicted from another trace, not measured.",
}

STEPS_AT_FIRST = 4
# The order of a device's streams from top to bottom, so that the arrows of a step run downwards.
STREAM_ORDER = (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H)


def write_timeline(trace: Trace, path: str | Path, *, title: str | None = None, other: Trace | None = None) -> None:
    """Write :func:`timeline_html` to ``path``, whole or not at all. Raises :class:`CbprofError` on a disk error."""
    page = timeline_html(trace, title=title, other=other)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise CbprofError(f"{target}: cannot write the timeline: {error.strerror or error}") from error


def timeline_html(trace: Trace, *, title: str | None = None, other: Trace | None = None) -> str:
    """The page as text. ``other`` is drawn below ``trace`` on the same time axis.

    Raises :class:`DataError` where a time is too large to be exact in a browser (26 days).
    """
    runs = [_run(each) for each in (trace, other) if each is not None]
    document = {
        "title": title,
        "states": [{"key": key, "label": style.label} for key, style in STATES.items()],
        "phases": list(BATCH_PHASES),
        "runs": runs,
    }
    heading = title or " / ".join(run["title"] for run in runs)
    parts = {
        # Numeric references keep any name, even half a surrogate pair, in a file that is valid UTF-8.
        "title": html.escape(heading).encode("ascii", "xmlcharrefreplace").decode("ascii"),
        "style": _state_colors() + _viewer_file("timeline.css"),
        # json escapes all but ASCII, and `<` is escaped here, so that no name can end the script element.
        "data": json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"),
        "script": "\n".join(_viewer_file(name) for name in SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _viewer_file("timeline.html"))


def _state_colors() -> str:
    return ":root {" + " ".join(f"--{key}: {style.color};" for key, style in STATES.items()) + "}\n"


def _viewer_file(name: str) -> str:
    return (files("cbprof.render") / "viewer" / name).read_text(encoding="utf-8")


def _run(trace: Trace) -> dict[str, Any]:
    """What the page knows about one trace. All times are ns from the start of the window."""
    window = _picture_window(trace)
    host = host_timeline(trace)
    per_device = [states(trace, window, device, host=host) for device in trace.devices]
    steps = _step_bounds(trace, window)
    lanes = _lane_order(trace)
    rows = _rows_in_view(trace, window, lanes)
    count = np.bincount(trace.lane_id[rows], minlength=len(trace.lanes))
    return {
        "title": idle_title(per_device, window, len(trace)),
        "subtitle": _subtitle(trace),
        "evidence": EVIDENCE.get(trace.evidence, f"Evidence: {trace.evidence}.") if per_device else "",
        "length": window.length_ns,
        "firstView": first_view(steps, window.length_ns),
        "names": list(trace.names),
        "colors": phase_colors(trace.names),
        "lanes": [
            {"name": trace.lanes[lane].name, "device": trace.lanes[lane].device, "count": int(count[lane])}
            for lane in lanes
            if count[lane]
        ],
        "spans": {
            "start": pack(trace.start_ns[rows] - window.start_ns, delta=True),
            "dur": pack(trace.dur_ns[rows]),
            "name": pack(trace.name_id[rows]),
            "kind": pack(trace.kind[rows]),
            "step": pack(trace.step[rows], delta=True),
            "slot": pack(trace.slot[rows]),
        },
        "devices": [{"device": each.device, "states": _packed_states(each)} for each in per_device],
        "steps": _packed_steps(trace, steps),
    }


def _picture_window(trace: Trace) -> Window:
    """The window of the run's figures; where no device has a span, all that the host did."""
    window = run_window(trace)
    if window is None:
        start = int(trace.start_ns.min(initial=np.iinfo(np.int64).max)) if len(trace) else 0
        window = Window(start, max(start + 1, int(trace.end_ns.max())) if len(trace) else 0)
    return window


def idle_title(per_device: Sequence[States], window: Window, spans: int) -> str:
    """The one sentence above a picture: ``GPU idle 24.3 % of 450.0 s``."""
    if not spans:
        return "Empty trace: no spans"
    length = duration(window.length_ns)
    if not per_device:
        return f"No GPU activity recorded in {length}"
    shares = [100 * (window.length_ns - each.gpu.total_ns) / window.length_ns for each in per_device]
    name = "GPU {device}" if len(per_device) > 1 else "GPU"
    idle = ", ".join(
        f"{name.format(device=each.device)} idle {share:.{1 if share >= 1 else 2}f} %"
        for each, share in zip(per_device, shares, strict=True)
    )
    return f"{idle} of {length}"


def _subtitle(trace: Trace) -> str:
    known = (trace.mode, trace.meta.get("device"), trace.meta.get("engine"), trace.meta.get("model"))
    parts = [str(each) for each in known if each]
    if trace.meta.get("complete") is False:
        parts.append("cut short")
    return " · ".join(parts)


def _lane_order(trace: Trace) -> list[int]:
    """Host lanes as they were declared, then the streams of each device in the order in which a step uses them."""
    first_kind = {
        int(lane): int(trace.kind[row]) for lane, row in zip(*np.unique(trace.lane_id, return_index=True), strict=True)
    }

    def key(lane: int) -> tuple[int, int, int]:
        kind = first_kind.get(lane)
        place = STREAM_ORDER.index(Kind(kind)) if kind in STREAM_ORDER else len(STREAM_ORDER)
        return (trace.lanes[lane].device, place if trace.lanes[lane].on_device else 0, lane)

    return sorted(range(len(trace.lanes)), key=key)


def _rows_in_view(trace: Trace, window: Window, lanes: Sequence[int]) -> Int64:
    """The spans that touch the window, lane by lane, each lane in the order of time."""
    rows = np.flatnonzero((trace.start_ns <= window.end_ns) & (trace.end_ns >= window.start_ns))
    place = np.empty(len(trace.lanes), dtype=np.int64)
    place[np.array(lanes, dtype=np.int64)] = np.arange(len(lanes))
    return rows[np.argsort(place[trace.lane_id[rows]], kind="stable")]


def _packed_states(found: States) -> dict[str, PackedColumn]:
    """The window cut where the state changes: piece ``i`` begins at ``start[i]`` and is in state ``state[i]``."""
    pieces = (found.overlap, found.gpu_only, found.cpu_only, found.neither)
    start = np.concatenate([piece.start for piece in pieces])
    state = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    order = np.argsort(start)
    return {"start": pack(start[order] - found.window.start_ns, delta=True), "state": pack(state[order])}


@dataclass(frozen=True, slots=True, eq=False)
class StepBounds:
    """The steps that have a span, ascending; ns from the start of the window of their first start and last end."""

    step: Int64
    start: Int64
    end: Int64


def _step_bounds(trace: Trace, window: Window) -> StepBounds:
    rows = np.flatnonzero(trace.step >= 0)
    step, position = np.unique(trace.step[rows], return_inverse=True)
    start = np.full(len(step), np.iinfo(np.int64).max)
    end = np.full(len(step), np.iinfo(np.int64).min)
    np.minimum.at(start, position, trace.start_ns[rows])
    np.maximum.at(end, position, trace.end_ns[rows])
    return StepBounds(step.astype(np.int64), start - window.start_ns, end - window.start_ns)


def first_view(steps: StepBounds, length_ns: int) -> tuple[int, int]:
    """What the page shows first: a few single steps of typical length in the middle of the run, at true scale.

    Near the middle, ``STEPS_AT_FIRST`` steps in a row that are all about as long as the median there, so that a graph
    capture or a pause does not pass for the rule. All of the run, where it has no more steps than that.
    """
    start = np.sort(steps.start)
    lengths = np.diff(start)
    if len(lengths) < STEPS_AT_FIRST:
        return (0, length_ns)
    stretches = np.lib.stride_tricks.sliding_window_view(lengths, STEPS_AT_FIRST)
    first, last = np.searchsorted(start[: len(stretches)], (length_ns * 2 // 5, length_ns * 3 // 5))
    first = min(int(first), len(stretches) - 1)
    near = stretches[first : max(first + 1, int(last))]
    off = np.abs(near - np.median(near)).max(axis=1)
    typical = first + np.flatnonzero(off <= off.min() + np.median(near) / 100)
    begin, end = start[typical], start[typical + STEPS_AT_FIRST]
    chosen = np.argmin(np.abs(begin + end - length_ns))
    margin = int(end[chosen] - begin[chosen]) // 50
    return (max(0, int(begin[chosen]) - margin), min(length_ns, int(end[chosen]) + margin))


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
        "tokens": fact(trace.steps.tokens),
        "requests": fact(trace.steps.requests),
        "context": fact(trace.steps.context),
        "batchPhase": fact(trace.steps.phase),
    }
