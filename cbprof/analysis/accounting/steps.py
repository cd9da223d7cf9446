"""The step table: what each batch cost the host and the device, and how it is known what a step is."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.host import HostTimeline, counted_on_host, driving_lanes
from cbprof.analysis.accounting.intervals import Intervals, sum_by, union_by
from cbprof.analysis.accounting.lookup import first_of_each, rows_of
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.window import Window
from cbprof.trace import NONE, Int8, Int32, Int64, Kind, Trace, take_or

if TYPE_CHECKING:
    import pandas as pd

RECORDED, ANNOTATED = "recorded", "annotations"


class StepSource(NamedTuple):
    """``name``: ``recorded`` (the engine noted the step of each span), ``annotations``, or what was searched for.

    That is ``graph launches`` or ``sampling copies`` (see :mod:`cbprof.formats.steps.search`). ``confidence``: the
    share of the steps so found that look like the others, 0 to 1; None where there was no need to search.
    """

    name: str
    confidence: float | None = None

    @property
    def searched(self) -> bool:
        """Whether the steps were found rather than told."""
        return self.confidence is not None


def how_steps_are_known(source: StepSource | None) -> dict[str, Any]:
    """The plain form of a source of steps: what a report, and ``cbprof doctor``, say of it."""
    return {"source": source.name if source else None, "confidence": source.confidence if source else None}


def step_source(trace: Trace) -> StepSource | None:
    """How the steps of this trace are known; None where it has none."""
    if trace.step.max(initial=NONE) == NONE:
        return None
    name, confidence = trace.meta.steps_from, trace.meta.steps_confidence
    if name is not None and confidence is not None:
        return StepSource(name, confidence)
    return StepSource(ANNOTATED if trace.meta.step_frames else RECORDED)


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """One row for each step that ran on a device, in the order of the steps. Times in nanoseconds; -1 is unknown.

    ``start_ns``, ``end_ns``: of its compute. ``launched_ns``: when the launch of its (first) compute was over.
    ``period_ns``: until the next step's compute starts (the last one: until its own work ends). ``cpu_work_ns``,
    ``wait_ns``: of the host for this step, exclusive of what is nested; ``cpu_exposed_ns`` is the work done while the
    device was idle; unknown where no launch tells which threads drive the device. ``compute_ns``, ``h2d_ns``,
    ``d2h_ns``: of the device. ``gap_ns``: idle time that its compute ended. ``tokens``, ``requests``, ``context``,
    ``phase``: of its batch (see :class:`cbprof.trace.StepTable`).
    """

    step: Int32
    start_ns: Int64
    end_ns: Int64
    launched_ns: Int64
    period_ns: Int64
    cpu_work_ns: Int64
    cpu_exposed_ns: Int64
    wait_ns: Int64
    compute_ns: Int64
    h2d_ns: Int64
    d2h_ns: Int64
    gap_ns: Int64
    tokens: Int64
    requests: Int64
    context: Int64
    phase: Int8
    slot: Int8

    def __len__(self) -> int:
        return len(self.step)

    def starting_in(self, window: Window) -> StepTimes:
        """The steps whose compute starts in a window, with their whole times."""
        mask = (self.start_ns >= window.start_ns) & (self.start_ns < window.end_ns)
        return StepTimes(**{field.name: getattr(self, field.name)[mask] for field in fields(self)})

    def to_json(self) -> dict[str, list[int | None]]:
        """Column by column; what is unknown is None."""
        columns = {field.name: getattr(self, field.name).tolist() for field in fields(self)}
        return {name: [None if value == NONE else value for value in column] for name, column in columns.items()}

    def to_pandas(self) -> pd.DataFrame:
        """One row a step, of integers that may be NA: what is unknown. For notebooks."""
        import pandas as pd

        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return pd.DataFrame({name: pd.arrays.IntegerArray(each, each == NONE) for name, each in columns.items()})


def step_times(trace: Trace, run: States, gaps: Gaps, host: HostTimeline) -> StepTimes:
    """The step table of one device.

    ``run`` and ``gaps`` are those of the whole run, not of a shorter window, so that a step's row is the same however
    the trace is cut.
    """
    computes = _spans_with_step(trace, run.device, Kind.GPU_COMPUTE)
    step, first = first_of_each(trace.step[computes])
    size = len(step)
    start = trace.start_ns[computes[first]]
    end = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(end, rows_of(step, trace.step[computes]), trace.start_ns[computes] + trace.dur_ns[computes])
    on_host = _on_host(trace, run, host, step)

    ended = rows_of(step, gaps.step)
    in_time = np.argsort(start, kind="stable")
    period = np.empty(size, dtype=np.int64)
    if size:
        ends = work_ends_ns(trace, run.device, int(step[in_time[-1]]), run.window)
        period[in_time] = np.diff(start[in_time], append=ends)

    def on_device(kind: Kind) -> Int64:
        spans = _spans_with_step(trace, run.device, kind)
        row = rows_of(step, trace.step[spans])
        spans, row = spans[row != NONE], row[row != NONE]
        return union_by(row, trace.start_ns[spans], trace.start_ns[spans] + trace.dur_ns[spans], size)

    def fact(column: Int64 | Int8) -> Int64:
        return take_or(column.astype(np.int64), rows_of(trace.steps.step, step), NONE)

    return StepTimes(
        step=step,
        start_ns=start,
        end_ns=end,
        launched_ns=_ends(trace, host.launch_of[computes[first]]),
        period_ns=period,
        cpu_work_ns=on_host.work,
        cpu_exposed_ns=on_host.exposed,
        wait_ns=on_host.wait,
        compute_ns=on_device(Kind.GPU_COMPUTE),
        h2d_ns=on_device(Kind.GPU_H2D),
        d2h_ns=on_device(Kind.GPU_D2H),
        gap_ns=sum_by(ended[ended != NONE], gaps.length_ns[ended != NONE], size),
        tokens=fact(trace.steps.tokens),
        requests=fact(trace.steps.requests),
        context=fact(trace.steps.context),
        phase=fact(trace.steps.phase).astype(np.int8),
        slot=trace.slot[computes[first]],
    )


def with_host_in(window: Window, steps: StepTimes, trace: Trace, run: States, host: HostTimeline) -> StepTimes:
    """The same steps with only that of the host's time which lies in a window; the rest is as it was."""
    here = Intervals(np.array([window.start_ns]), np.array([window.end_ns]))
    leaving = host.select((host.start < window.start_ns) | (host.end > window.end_ns))  # few: most lie in it whole
    whole, kept = (_on_host(trace, run, each, steps.step) for each in (leaving, leaving.within(here)))
    return replace(
        steps,
        cpu_work_ns=steps.cpu_work_ns - whole.work + kept.work,
        cpu_exposed_ns=steps.cpu_exposed_ns - whole.exposed + kept.exposed,
        wait_ns=steps.wait_ns - whole.wait + kept.wait,
    )


def work_ends_ns(trace: Trace, device: int, step: int, window: Window) -> int:
    """When the work of a step ends: the last of its spans on the device, or on the host, which may be reading results.

    Only device spans tell where a profiler recorded the run: what the host did when the recording stopped belongs to no
    step. Not after the window.
    """
    mine = trace.mask(device=device)
    if not trace.is_profile:
        mine |= counted_on_host(trace)
    return min(int(trace.end_ns[mine & (trace.step == step)].max()), window.end_ns)


class _HostTimes(NamedTuple):
    """What the host did for each step, in nanoseconds; -1 where that is unknown."""

    work: Int64
    exposed: Int64
    wait: Int64


def _on_host(trace: Trace, run: States, host: HostTimeline, step: Int32) -> _HostTimes:
    size = len(step)
    if run.device not in host.understood:
        return _HostTimes(*(np.full(size, NONE, dtype=np.int64) for _ in _HostTimes._fields))
    work, exposed, wait = (np.zeros(size + 1, dtype=np.int64) for _ in _HostTimes._fields)  # at -1: of no step
    for part in host.of_lanes(driving_lanes(trace, host, run.device)).in_parts():
        row, length, working = rows_of(step, trace.step[part.span]), part.length_ns, part.working
        np.add.at(wait, row[~working], length[~working])
        row, length = row[working], length[working]
        np.add.at(work, row, length)
        np.add.at(exposed, row, length - run.gpu.within(part.start[working], part.end[working]))
    return _HostTimes(work[:-1], exposed[:-1], wait[:-1])


def _spans_with_step(trace: Trace, device: int, kind: Kind) -> Int64:
    return np.flatnonzero(trace.mask(kinds=(kind,), device=device) & (trace.step != NONE))


def _ends(trace: Trace, spans: Int64) -> Int64:
    """When each span ended; -1 where there is none."""
    return np.where(spans == NONE, NONE, take_or(trace.start_ns, spans, 0) + take_or(trace.dur_ns, spans, 0))
