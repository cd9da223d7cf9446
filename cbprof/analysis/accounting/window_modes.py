"""Windows by name, as ``--window`` takes them: of a whole device, of an annotation, or between two times."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import numpy as np

from cbprof.analysis.accounting.window import Window, run_window
from cbprof.errors import UsageError
from cbprof.trace import Kind, Trace

RUN, GPU_SPAN, ANNOTATION, EXPLICIT = "run", "gpu_span", "annotation", "explicit"
_NAMES_SHOWN = 5


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
    known = trace.meta.get("extent_ns")
    if isinstance(known, list | tuple) and len(known) == 2:
        return Window(int(known[0]), int(known[1]), "extent")
    return Window(int(trace.start_ns.min()), int(trace.end_ns.max()), "extent") if len(trace) else None


def _span_of(trace: Trace, device: int) -> Window:
    rows = trace.mask(device=device) & trace.on_device
    return Window(int(trace.start_ns[rows].min()), int(trace.end_ns[rows].max()), GPU_SPAN)


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
        raise UsageError(f"{ANNOTATION}:{wanted}: the trace has {len(rows)} annotations {name!r}, counted from 1")
    known = np.unique(trace.name_id[trace.kind == Kind.CPU_ANNOTATION])
    some = ", ".join(repr(trace.names[index]) for index in known[:_NAMES_SHOWN])
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    has = f"it has {some}{more}" if some else "it has no annotation at all"
    raise UsageError(f"{ANNOTATION}:{wanted}: the trace has no annotation of this name; {has}")


def _annotations(trace: Trace, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The annotations of a name, in the order of time."""
    ids = [index for index, text in enumerate(trace.names) if text == name]
    return np.flatnonzero((trace.kind == Kind.CPU_ANNOTATION) & np.isin(trace.name_id, ids))


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
