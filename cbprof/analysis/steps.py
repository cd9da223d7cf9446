"""The step table: what each batch cost the host and the device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from cbprof.analysis.gaps import Gaps
from cbprof.analysis.host import HostTimeline, driving_lanes
from cbprof.analysis.intervals import sum_by, union_by
from cbprof.analysis.states import States
from cbprof.analysis.window import Window
from cbprof.trace import NONE, Int8, Int32, Int64, Kind, Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """One row for each step that ran on a device, in the order of the steps. Times in nanoseconds; -1 is unknown.

    ``start_ns``, ``end_ns``: of its compute. ``period_ns``: until the next step's compute starts (the last one: until
    the run ends). ``cpu_work_ns``, ``wait_ns``: of the host for this step, exclusive of what is nested;
    ``cpu_exposed_ns`` is the work done while the device was idle. ``compute_ns``, ``h2d_ns``, ``d2h_ns``: of the
    device. ``gap_ns``: idle time that its compute ended. ``tokens``, ``requests``, ``context``, ``phase``: of its
    batch (see :class:`cbprof.trace.StepTable`).
    """

    step: Int32
    start_ns: Int64
    end_ns: Int64
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

    def to_pandas(self) -> pd.DataFrame:
        """One row a step; for notebooks."""
        import pandas as pd

        return pd.DataFrame({field.name: getattr(self, field.name) for field in fields(self)})


def step_times(trace: Trace, run: States, gaps: Gaps, host: HostTimeline) -> StepTimes:
    """The step table of one device.

    ``run`` and ``gaps`` are those of the whole run, not of a shorter window, so that a step's row is the same however
    the trace is cut.
    """
    of_device = trace.mask(device=run.device) & (trace.step != NONE)
    computes = np.flatnonzero(of_device & (trace.kind == Kind.GPU_COMPUTE))
    step, first = np.unique(trace.step[computes], return_index=True)
    size = len(step)
    start = trace.start_ns[computes[first]]
    end = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(end, np.searchsorted(step, trace.step[computes]), trace.end_ns[computes])

    def on_device(kind: Kind) -> Int64:
        rows = np.flatnonzero(of_device & (trace.kind == kind) & np.isin(trace.step, step))
        return union_by(np.searchsorted(step, trace.step[rows]), trace.start_ns[rows], trace.end_ns[rows], size)

    segments = host.of_lanes(driving_lanes(trace, host, run.device))
    segments = segments.select(np.isin(trace.step[segments.span], step))
    row = np.searchsorted(step, trace.step[segments.span])
    working = segments.working
    exposed = segments.length_ns - run.gpu.within(segments.start, segments.end)

    ended = np.isin(gaps.step, step)
    in_time = np.argsort(start, kind="stable")
    period = np.empty(size, dtype=np.int64)
    period[in_time] = np.diff(start[in_time], append=run.window.end_ns)

    def fact(column: Int64 | Int8) -> Int64:
        values = np.full(size, NONE, dtype=np.int64)
        known = np.isin(step, trace.steps.step)
        values[known] = column[np.searchsorted(trace.steps.step, step[known])]
        return values

    return StepTimes(
        step=step,
        start_ns=start,
        end_ns=end,
        period_ns=period,
        cpu_work_ns=sum_by(row[working], segments.length_ns[working], size),
        cpu_exposed_ns=sum_by(row[working], exposed[working], size),
        wait_ns=sum_by(row[~working], segments.length_ns[~working], size),
        compute_ns=on_device(Kind.GPU_COMPUTE),
        h2d_ns=on_device(Kind.GPU_H2D),
        d2h_ns=on_device(Kind.GPU_D2H),
        gap_ns=sum_by(np.searchsorted(step, gaps.step[ended]), gaps.length_ns[ended], size),
        tokens=fact(trace.steps.tokens),
        requests=fact(trace.steps.requests),
        context=fact(trace.steps.context),
        phase=fact(trace.steps.phase).astype(np.int8),
        slot=trace.slot[computes[first]],
    )
