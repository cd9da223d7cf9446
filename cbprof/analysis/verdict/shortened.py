"""What a tenth less work of the GPU, or of the host, could take off a window at most."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.intervals import Intervals
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.steps import StepTimes

SHORTENED_BY = 10
"""Per cent by which the what-ifs shorten one side."""


class Shortened(NamedTuple):
    """How many nanoseconds a tenth less device work, or a tenth less host work, could take off the window.

    ``host_ns``: None where too little of the host was recorded to tell.
    """

    device_ns: int
    host_ns: int | None


def shortened(states: States, steps: StepTimes, collectives: Intervals) -> Shortened:
    """A bound, step by step: a tenth of a side's work, but no more than the time in which that side works alone.

    Once that time is gone the other side is what the step waits for. All work of the window counts: device work lies in
    the step whose compute began last, host work in the step that it is for, and what is for none counts as one more.
    ``collectives``: while no compute runs; time that may pass waiting for other ranks is not the device's own work.
    """
    totals = states.totals()
    work = states.gpu.subtract(collectives)
    begins = np.unique(steps.start_ns)[1:]
    start = np.concatenate(([states.window.start_ns], begins))
    end = np.concatenate((begins, [states.window.end_ns]))
    in_step = work.within(start, end)
    alone = in_step - states.overlap.subtract(collectives).within(start, end)
    host_ns = None
    if totals.host_known:
        rest = max(0, totals.cpu - int(steps.cpu_work_ns.sum()))
        exposed_rest = max(0, totals.cpu_only - int(steps.cpu_exposed_ns.sum()))
        of_steps = np.minimum(_share(steps.cpu_work_ns), steps.cpu_exposed_ns)
        host_ns = int(of_steps.sum()) + min(_share(rest), exposed_rest)
    return Shortened(int(np.minimum(_share(in_step), alone).sum()), host_ns)


def _share(ns: Any) -> Any:
    """The part of a number of nanoseconds, or of a column of them, by which the what-ifs shorten it."""
    return ns * SHORTENED_BY // 100
