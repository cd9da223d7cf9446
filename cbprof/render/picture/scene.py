"""What every picture of a run starts from: its window, the states of each device, its steps, its lanes, its title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.accounting.host import HostTimeline, host_timeline
from cbprof.analysis.accounting.idle import idle_ns, idle_pct, most_idle
from cbprof.analysis.accounting.intervals import EMPTY
from cbprof.analysis.accounting.states import Activity, States, StateTotals, states
from cbprof.analysis.accounting.window import Window, default_mode, device_windows, hull
from cbprof.names import plain
from cbprof.numbers import duration, percent
from cbprof.render.evidence import in_a_sentence
from cbprof.trace import NONE, Int64, Kind, Trace

STEPS_AT_FIRST = 4
MANY_SPANS, SPANS_AT_FIRST = 400, 40  # where there are no steps, and so many spans that all of them crowd
# The order of a device's streams from top to bottom, so that the arrows of a step run downwards.
STREAM_ORDER = (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One run as all pictures see it, by the rules of its report. ``steps`` are in ns from the start of the window.

    ``label``: what the user calls it, such as its file; "" where it has no name.

    ``idle_ns``, ``idle_pct``: of each device in its own window, which ``window`` encloses; None where it is unknown.
    """

    trace: Trace
    window: Window
    host: HostTimeline
    devices: tuple[States, ...]
    idle_ns: tuple[int | None, ...]
    idle_pct: tuple[float | None, ...]
    steps: StepBounds
    label: str = ""

    @property
    def title(self) -> str:
        """The one sentence above a picture: ``GPU idle 24.3 % of 450.0 s``."""
        if not len(self.trace):
            return "Empty trace: no spans"
        length = duration(self.window.length_ns)
        if not self.devices:
            return f"No GPU activity recorded in {length}"
        name = "GPU {device}" if len(self.devices) > 1 else "GPU"
        idle = ", ".join(
            f"{name.format(device=each.device)} idle {percent(share)}"
            for each, share in zip(self.devices, self.idle_pct, strict=True)
        )
        return f"{idle} of {length}"

    @property
    def most_idle(self) -> States:
        """The device that waited longest: the one that is shown where there is room for one. Needs a device."""
        return self.devices[most_idle(self.idle_ns)]

    @property
    def activity(self) -> Activity:
        """What counts as GPU active."""
        return activity_of(self.trace)

    @property
    def totals(self) -> StateTotals | None:
        """The states of all devices, added up; None where those of one are unknown."""
        known = [found for found in map(self.totals_of, self.devices) if found is not None]
        return StateTotals(*map(sum, zip(*known, strict=True))) if len(known) == len(self.devices) else None

    def totals_of(self, device: States) -> StateTotals | None:
        """The states of a device; None where its idle time is unknown."""
        return None if self.idle_ns[self.devices.index(device)] is None else device.totals()

    @property
    def name(self) -> str:
        """What to call the run beside others."""
        return plain(self.label or self.trace.mode or "")

    @property
    def first_view(self) -> tuple[int, int]:
        """What to show first at true scale; see :meth:`view_within`."""
        return self.view_within(self.window.length_ns)

    def view_within(self, length_ns: int) -> tuple[int, int]:
        """Typical steps near the middle of the first ``length_ns``, else some work there, else all; ns as ``steps``."""
        if len(self.steps.step) or len(self.trace) < MANY_SPANS:
            return first_view(self.steps, length_ns)
        start = self.trace.start_ns[self.trace.on_device | (not self.devices)] - self.window.start_ns
        start = start[: max(SPANS_AT_FIRST + 1, int(np.searchsorted(start, length_ns)))]
        if len(start) <= SPANS_AT_FIRST:
            return int(max(0, start[0])), self.window.length_ns
        middle = min(len(start) // 2, len(start) - SPANS_AT_FIRST - 1)
        return int(max(0, start[middle])), int(min(self.window.length_ns, start[middle + SPANS_AT_FIRST]))

    @property
    def subtitle(self) -> str:
        """What ran, where: ``sync · NVIDIA H200 · cbprof reference``."""
        meta = self.trace.meta
        known = (meta.mode, meta.device, meta.engine, meta.model)
        parts = [each for each in known if each]
        if not meta.complete:
            parts.append("cut short")
        for each in self.devices:
            if missing_ns := self.host.known.missing.get(each.device, EMPTY).intersect(each.gaps).total_ns:
                name = f"GPU {each.device}: " if len(self.devices) > 1 else ""
                parts.append(f"{name}records are missing for {duration(missing_ns)}")
        return " · ".join(parts)

    @property
    def evidence(self) -> str:
        """How the activity of the device was measured, in a sentence; nothing where there is none."""
        return in_a_sentence(self.trace.evidence, self.trace.meta.device) if self.devices else ""


def scene(trace: Trace, label: str = "") -> Scene:
    """Look at a trace once, for any number of pictures."""
    trace = without_profiled_steps(trace)
    windows = device_windows(trace, default_mode(trace))
    window = hull(windows) or _all_of(trace)
    host = host_timeline(trace)
    per_device = tuple(states(trace, window, device, activity_of(trace), host) for device in trace.devices)
    own = [windows.get(device) for device in trace.devices]
    idle = tuple(
        None if each is None else idle_ns(trace, device, each, activity_of(trace))
        for device, each in zip(trace.devices, own, strict=True)
    )
    shares = tuple(None if each is None else idle_pct(ns, each.length_ns) for ns, each in zip(idle, own, strict=True))
    return Scene(trace, window, host, per_device, idle, shares, _step_bounds(trace, window), label)


def scenes_of(traces: Sequence[Trace], labels: Sequence[str] = ()) -> list[Scene]:
    """The same of several traces; ``labels`` may be left out."""
    return [scene(trace, label) for trace, label in zip(traces, [*labels, *[""] * len(traces)], strict=False)]


def activity_of(trace: Trace) -> Activity:
    """What counts as GPU active by default: see :func:`summarize`."""
    return "busy" if trace.is_profile else "compute"


def _all_of(trace: Trace) -> Window:
    """All that the host did, where no device has a span."""
    start = int(trace.start_ns.min(initial=np.iinfo(np.int64).max)) if len(trace) else 0
    return Window(start, max(start + 1, int(trace.end_ns.max())) if len(trace) else 0)


def lane_order(trace: Trace) -> list[int]:
    """Host lanes as they were declared, then the streams of each device in the order in which a step uses them."""
    first_kind = np.full(len(trace.lanes), NONE, dtype=np.int64)
    first_kind[trace.lane_id[::-1]] = trace.kind[::-1]  # the last one written is the first span of a lane

    def key(lane: int) -> tuple[int, int, int]:
        kind = int(first_kind[lane])
        place = STREAM_ORDER.index(Kind(kind)) if kind in STREAM_ORDER else len(STREAM_ORDER)
        return (trace.lanes[lane].device, place if trace.lanes[lane].on_device else 0, lane)

    return sorted(range(len(trace.lanes)), key=key)


@dataclass(frozen=True, slots=True, eq=False)
class StepBounds:
    """The steps that have a span, ascending; ns from the start of the window of their first start and last end.

    ``middle``: of its compute, or of all of it where it has none. A picture names the steps whose middle it shows: one
    batch ahead, the host is at work for the next step while a step computes.
    """

    step: Int64
    start: Int64
    end: Int64
    middle: Int64

    def numbers_between(self, start: int, end: int) -> Int64:
        """The numbers of the steps that a picture of [start, end) shows, in the order of time."""
        shown = np.flatnonzero((self.middle >= start) & (self.middle < end))
        return self.step[shown[np.argsort(self.middle[shown], kind="stable")]]


def _step_bounds(trace: Trace, window: Window) -> StepBounds:
    if not (trace.step >= 0).any():
        nothing = np.zeros(0, dtype=np.int64)
        return StepBounds(nothing, nothing, nothing, nothing)
    rows = slice(None) if (trace.step >= 0).all() else np.flatnonzero(trace.step >= 0)
    number, start, end = trace.step[rows], trace.start_ns[rows], trace.end_ns[rows]
    if int(number.max()) < 4 * len(number):  # numbers that count up need no sorting
        present, position = np.arange(int(number.max()) + 1), number.astype(np.int64)
    else:
        present, position = np.unique(number, return_inverse=True)
    first, last = _bounds(position, start, end, len(present))
    computing = trace.kind[rows] == Kind.GPU_COMPUTE
    begin, finish = _bounds(position[computing], start[computing], end[computing], len(present))
    kept = last >= first
    first, last = first[kept] - window.start_ns, last[kept] - window.start_ns
    begin, finish = begin[kept] - window.start_ns, finish[kept] - window.start_ns
    computes = np.isin(present, number[computing])[kept]
    middle = (np.where(computes, begin, first) + np.where(computes, finish, last)) // 2
    return StepBounds(present[kept].astype(np.int64), first, last, middle)


def _bounds(group: Int64, start: Int64, end: Int64, size: int) -> tuple[Int64, Int64]:
    """The first start and the last end of each group 0..size-1; the end is before the start where it has none."""
    first = np.full(size, np.iinfo(np.int64).max)
    last = np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


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
