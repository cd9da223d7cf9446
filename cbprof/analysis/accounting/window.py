"""The stretch of a trace that figures refer to: the run, some of its steps, or a window by name (``--window``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from cbprof.errors import UsageError
from cbprof.numbers import counted
from cbprof.trace import Int64, Kind, Trace, one_of

# Host spans of these names happen once, before or between the steps, and are reported apart from them.
ONE_OFF = ("capture", "warmup")

RUN, GPU_SPAN, ANNOTATION, EXPLICIT = "run", "gpu_span", "annotation", "explicit"
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Window:
    """[start_ns, end_ns) of a trace.

    ``name`` says how it was chosen: ``run``, ``steps a:b``, ``gpu_span``, ``annotation:NAME`` or ``explicit:A:B``.
    ``recorded`` is False where what was asked for lies outside what was recorded: the window is empty then.
    """

    start_ns: int
    end_ns: int
    name: str = "run"
    recorded: bool = True

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def spans_named(trace: Trace, name: str) -> Int64:
    """The rows of the host spans of this name, in the order of time."""
    return np.flatnonzero(one_of(trace.name_id, trace.ids_of(name)) & ~trace.on_device)


def run_window(trace: Trace) -> Window | None:
    """From the first host span of a step to the end of the last step that reached a device; None if none did.

    Warm-up, model load and graph captures before the first step carry no step, so they lie outside. The end is the
    latest among device spans and host spans of steps that have a device span: a step that was only prepared when the
    run stopped does not count.
    """
    on_device = trace.on_device
    if not on_device.any():
        return None
    host = one_of(trace.kind, (Kind.CPU_WORK, Kind.CPU_WAIT))
    of_a_step = host & (trace.step >= 0)
    opening = of_a_step if of_a_step.any() else host if host.any() else on_device
    start = int(trace.start_ns[np.argmax(opening)])  # spans are sorted by start
    end = int(trace.end_of(on_device).max())
    later = np.flatnonzero(of_a_step & (trace.end_ns > end))
    reached = later[np.isin(trace.step[later], trace.step[on_device])]
    end = int(trace.end_of(reached).max(initial=end))
    return Window(start, end) if end > start else None


def steps_window(trace: Trace, first: int | None, last: int | None) -> Window:
    """From the start of compute ``first`` to the start of compute ``last`` (exclusive, as in a slice).

    None stands for the start or the end of the run. A step without a compute of its own counts as the next that has
    one; past the last, the window ends with the run. Raises UsageError where the window would hold no compute.
    """
    run = run_window(trace)
    name = f"steps {'' if first is None else first}:{'' if last is None else last}"
    if run is None:
        raise UsageError(f"{name}: the trace has no span on a device, so no steps to choose from")
    step, start = _compute_starts(trace)
    begin = run.start_ns if first is None else _start_of(step, start, first)
    end = None if last is None else _start_of(step, start, last)
    end = run.end_ns if end is None else end
    if begin is None or end <= begin:
        known = f"the trace has steps {step[0]} to {step[-1]}" if len(step) else "no compute span carries a step"
        raise UsageError(f"{name} holds no step: {known}; give --steps first:last")
    return Window(begin, end, name)


def steps_after(trace: Trace, count: int) -> tuple[int, None]:
    """The range of steps without the first ``count`` that ran on a device. Raises UsageError where none is left."""
    step, start = _compute_starts(trace)
    if count >= len(step):
        raise UsageError(f"skipping {counted(count, 'step')} leaves none: the trace has {len(step)}")
    return int(step[np.argsort(start, kind="stable")[count]]), None


def default_mode(trace: Trace) -> str:
    """``gpu_span`` for the trace of a profiler, whose host may be recorded in part; ``run`` for an engine's own."""
    return GPU_SPAN if trace.is_profile else RUN


def device_windows(trace: Trace, mode: str, run: Window | None = None) -> Mapping[int, Window]:
    """The window of each device that ran something. Pass ``run``, if that window is at hand, to save finding it again.

    * ``run``: see :func:`run_window`, the same for all devices.
    * ``gpu_span``: from the first start to the last end of anything on that device.
    * ``annotation:NAME``: the first annotation of that name; ``annotation:NAME#k`` the k-th, from 1.
    * ``explicit:A:B``: microseconds on the file's axis, cut to what was recorded.

    Raises UsageError where the mode is none of these, or the trace has no such annotation.
    """
    kind, _, rest = mode.partition(":")
    if kind == GPU_SPAN and not rest:
        return {device: _span_of(trace, device) for device in trace.devices}
    if kind == RUN and not rest:
        window = run or run_window(trace)
    elif kind == ANNOTATION and rest:
        window = _annotation(trace, rest)
    elif kind == EXPLICIT and rest:
        window = _explicit(trace, rest)
    else:
        raise UsageError(
            f"{mode!r} is no window: give run, gpu_span, annotation:NAME, annotation:NAME#2, or explicit:FROM:TO in us"
        )
    return {} if window is None else dict.fromkeys(trace.devices, window)


def hull(windows: Mapping[int, Window]) -> Window | None:
    """The window that holds all of them; None if there is none."""
    if not windows:
        return None
    some = next(iter(windows.values()))
    start, end = min(each.start_ns for each in windows.values()), max(each.end_ns for each in windows.values())
    return Window(start, end, some.name, some.recorded)


def extent(trace: Trace) -> Window | None:
    """All that was recorded, of host and devices; None for an empty trace."""
    if trace.meta.extent_ns is not None:
        return Window(*trace.meta.extent_ns, "extent")
    return Window(int(trace.start_ns.min()), int(trace.end_ns.max()), "extent") if len(trace) else None


def _compute_starts(trace: Trace) -> tuple[Int64, Int64]:
    """The steps that have a compute span, ascending, and the earliest start of each."""
    rows = np.flatnonzero((trace.kind == Kind.GPU_COMPUTE) & (trace.step >= 0))
    step, first = np.unique(trace.step[rows], return_index=True)  # rows are in the order of time
    return step.astype(np.int64), trace.start_ns[rows[first]]


def _start_of(step: Int64, start: Int64, wanted: int) -> int | None:
    position = int(np.searchsorted(step, wanted))
    return int(start[position]) if position < len(step) else None


def _span_of(trace: Trace, device: int) -> Window:
    rows = trace.mask(device=device) & trace.on_device
    return Window(int(trace.start_ns[rows].min()), int(trace.end_of(rows).max()), GPU_SPAN)


def _annotation(trace: Trace, wanted: str) -> Window:
    name, number = wanted, 1
    rows = _annotations(trace, name)
    stem, sharp, tail = wanted.rpartition("#")
    if not len(rows) and sharp and tail.isdecimal():
        name, number = stem, int(tail)
        rows = _annotations(trace, name)
    if 1 <= number <= len(rows):
        row = rows[number - 1]
        return Window(int(trace.start_ns[row]), int(trace.end_ns[row]), f"{ANNOTATION}:{wanted}")
    if len(rows):
        raise UsageError(
            f"{ANNOTATION}:{wanted}: the trace has {counted(len(rows), 'annotation')} {name!r}, counted from 1"
        )
    known = np.unique(trace.name_id[trace.kind == Kind.CPU_ANNOTATION])
    some = ", ".join(repr(trace.names[index]) for index in known[:_NAMES_SHOWN])
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    has = f"it has {some}{more}" if some else "it has no annotation at all"
    raise UsageError(f"{ANNOTATION}:{wanted}: the trace has no annotation of this name; {has}")


def _annotations(trace: Trace, name: str) -> Int64:
    """The annotations of a name, in the order of time."""
    return np.flatnonzero((trace.kind == Kind.CPU_ANNOTATION) & one_of(trace.name_id, trace.ids_of(name)))


def _explicit(trace: Trace, bounds: str) -> Window | None:
    name = f"{EXPLICIT}:{bounds}"
    first, _, last = bounds.partition(":")
    try:
        start, end = (round(Decimal(text.strip()) * 1000) for text in (first, last))
    except (InvalidOperation, ValueError, OverflowError):
        raise UsageError(f"{name}: give two times in microseconds, such as {EXPLICIT}:1000:2500.5") from None
    whole = extent(trace)
    if whole is None:
        return None
    start, end = max(start, whole.start_ns), min(end, whole.end_ns)
    if end <= start:
        return Window(whole.start_ns, whole.start_ns, name, recorded=False)
    return Window(start, end, name)
