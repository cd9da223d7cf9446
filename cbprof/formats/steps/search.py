"""Steps in a profiler's trace without annotations: each ends where the copy of its sampled tokens is issued.

::

    host    |graph launch| sampling |copy||graph launch| sampling |copy|
    device        | graph          | ... |copy|  | graph          | ...
    step     <---------- 0 ------------><----------- 1 ------------>

Every engine copies the tokens of a step back to the host, and most steps launch the same work: one graph of one shape,
or about as many kernels. The confidence is the share of such steps. Where it is low, the trace gets no steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.trace import CALL_KINDS, NONE, Int32, Int64, Kind, Trace, one_of, take_or

LEAST_STEPS = 8
LEAST_CONFIDENCE = 0.9
TOLERANCE = 0.1
"""How far the number of kernels of a regular step may be from the median."""

FEWEST_KERNELS = 10
"""Of a step. Fewer kernels between two copies are no forward pass."""

GRAPHS, COPIES = "graph launches", "sampling copies"


class _Found(NamedTuple):
    """A way to cut the time of a host lane into steps: at ``cuts``, n of them; ``regular``: mask of the n + 1 parts."""

    confidence: float
    lane: int
    cuts: Int64
    regular: npt.NDArray[np.bool_]
    source: str


def with_searched_steps(trace: Trace) -> Trace:
    """The same trace with the step of each span, where it has none yet and the search finds them.

    ``meta.steps_from`` says how they were found: ``graph launches`` or ``sampling copies``. ``meta.steps_confidence``
    is the share of the steps that look like the others. A span of the launching thread belongs to the step in which it
    starts; a span of a device belongs to the step of its launch. Launches before the first whole step, or after the
    last, have none.
    """
    if not trace.is_profile or (trace.step != NONE).any():
        return trace
    launch_of = _launch_of(trace)
    found = max(_candidates(trace, launch_of), key=lambda each: (each.confidence, len(each.cuts)), default=None)
    if found is None or found.confidence < LEAST_CONFIDENCE:
        return trace
    number = np.arange(len(found.cuts) + 1, dtype=np.int32)
    number[[0, -1]] = np.where(found.regular[[0, -1]], number[[0, -1]], NONE)  # may have been cut by the recording
    if number[0] == NONE:
        number[1:] -= number[1:] != NONE
    meta = trace.meta.changed(steps_from=found.source, steps_confidence=found.confidence)
    return replace(trace, step=_step_of(trace, found, number, launch_of), meta=meta)


def _candidates(trace: Trace, launch_of: Int64) -> Iterator[_Found]:
    """Copies to the host of one name, on one stream, issued by one thread: each sort may be that of sampled tokens."""
    copies = np.flatnonzero((trace.kind == Kind.GPU_D2H) & (launch_of != NONE))
    calls = launch_of[copies]
    table = np.stack((trace.name_id[copies], trace.lane_id[copies], trace.lane_id[calls]), axis=1)
    sorts, sort_of = np.unique(table, axis=0, return_inverse=True)
    for each, (_, _, lane) in enumerate(sorts.tolist()):
        issued = np.unique(calls[sort_of.ravel() == each])
        if len(issued) > LEAST_STEPS and _waited_share(trace, issued) >= LEAST_CONFIDENCE:
            yield from _judge(trace, lane, np.sort(trace.end_of(issued)), launch_of)


def _waited_share(trace: Trace, issued: Int64) -> float:
    """The share of these calls after which a wait of any thread returns before the next of them does.

    1 where the trace has no wait at all: who polls leaves no record of it.
    """
    waits = np.sort(trace.end_of(trace.kind == Kind.CPU_WAIT))
    if not len(waits):
        return 1.0
    until = np.sort(trace.end_of(issued))
    n_returned = np.searchsorted(waits, until, side="left")
    return float((np.diff(n_returned) > 0).mean())


def _judge(trace: Trace, lane: int, cuts: Int64, launch_of: Int64) -> Iterator[_Found]:
    """The parts between these cuts, by the graphs and by the kernels that each launched."""
    kernels = np.flatnonzero((trace.kind == Kind.GPU_COMPUTE) & (launch_of != NONE))
    kernels = kernels[trace.lane_id[launch_of[kernels]] == lane]
    part = np.searchsorted(cuts, trace.start_ns[launch_of[kernels]], side="right")
    n_kernels = np.bincount(part, minlength=len(cuts) + 1)

    ids = trace.ids_where(lambda name: "graphlaunch" in name.lower(), CALL_KINDS)
    graphs = np.flatnonzero((trace.lane_id == lane) & one_of(trace.kind, CALL_KINDS) & np.isin(trace.name_id, ids))
    n_graphs = np.bincount(np.searchsorted(cuts, trace.start_ns[graphs], side="right"), minlength=len(cuts) + 1)
    usual = np.median(n_kernels[1:-1])
    alike = np.abs(n_kernels - usual) <= TOLERANCE * usual
    if (n_graphs == 1).any():
        regular = (n_graphs == 1) & alike
        yield _Found(float(regular[1:-1].mean()), lane, cuts, regular, GRAPHS)
    if usual >= FEWEST_KERNELS:
        yield _Found(float(alike[1:-1].mean()), lane, cuts, alike, COPIES)


def _launch_of(trace: Trace) -> Int64:
    """For each span on a device the row of the call that launched it, by their link, or -1."""
    found = np.full(len(trace), NONE, dtype=np.int64)
    linked = np.flatnonzero(trace.link != NONE)
    calls, spans = linked[~trace.on_device[linked]], linked[trace.on_device[linked]]
    calls = calls[np.argsort(trace.link[calls], kind="stable")]
    if len(calls):
        place = np.searchsorted(trace.link[calls], trace.link[spans], side="right") - 1
        launch = calls[np.maximum(place, 0)]
        found[spans] = np.where(trace.link[launch] == trace.link[spans], launch, NONE)
    return found


def _step_of(trace: Trace, found: _Found, number: Int32, launch_of: Int64) -> Int32:
    step = np.full(len(trace), NONE, dtype=np.int32)
    rows = np.flatnonzero(trace.lane_id == found.lane)
    step[rows] = number[np.searchsorted(found.cuts, trace.start_ns[rows], side="right")]
    launched = np.flatnonzero(launch_of != NONE)
    step[launched] = take_or(step, launch_of[launched], NONE)
    return step
