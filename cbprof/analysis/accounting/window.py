"""The stretch of a trace that figures refer to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.errors import UsageError
from cbprof.trace import Int64, Kind, Trace, one_of

# Host spans of these names happen once, before or between the steps, and are reported apart from them.
ONE_OFF = ("capture", "warmup")


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
    ids = [index for index, text in enumerate(trace.names) if text == name]
    if not ids:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(one_of(trace.name_id, ids) & ~trace.on_device)


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
        raise UsageError(f"skipping {count} steps leaves none: the trace has {len(step)}")
    return int(step[np.argsort(start, kind="stable")[count]]), None


def _compute_starts(trace: Trace) -> tuple[Int64, Int64]:
    """The steps that have a compute span, ascending, and the earliest start of each."""
    rows = np.flatnonzero((trace.kind == Kind.GPU_COMPUTE) & (trace.step >= 0))
    step, first = np.unique(trace.step[rows], return_index=True)  # rows are in the order of time
    return step.astype(np.int64), trace.start_ns[rows[first]]


def _start_of(step: Int64, start: Int64, wanted: int) -> int | None:
    position = int(np.searchsorted(step, wanted))
    return int(start[position]) if position < len(step) else None
