"""All steps aligned at the start of their compute and laid side by side, so that drift over a run is seen.

::

    time in        . . . # #      # the GPU waits for the next compute
    the step     . . # # # #
       ^         = = = = = #      = the GPU computes
       |         = = = = = =
                 step 0 ... N
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.intervals import Intervals, overlaps
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.steps import work_ends_ns
from cbprof.analysis.accounting.window import Window
from cbprof.render.picture.coverage import bin_edges
from cbprof.trace import NONE, Int64, Kind, Trace


@dataclass(frozen=True, slots=True, eq=False)
class StepRaster:
    """``shares``: of shape (states, columns, bins), the mean share of each state (as in ``theme.STATES``) in a bin of
    time since the start of compute, over the steps of a column. Less than 1 in all where some steps are over by then.

    ``step``: the first step of each column, and one past the last; ``context``: tokens of context a request at each
    of these, -1 where unknown. ``length_ns``: the height of the raster; ``longest_ns``: the longest step, which may be
    higher than that (a pause, a graph capture).
    """

    step: Int64
    context: Int64
    length_ns: int
    longest_ns: int
    shares: npt.NDArray[np.float64]


def step_raster(trace: Trace, states: States, columns: int, bins: int, length_ns: int) -> StepRaster:
    """Every step of the device, in at most ``columns`` columns of equally many steps, in the order of time.

    A step lasts until the next compute starts, the last one until its own work ends. ``length_ns``: the height of the
    raster, such as :func:`usual_length`. A trace without steps gives no columns.
    """
    step, start = _compute_starts(trace, states.device, states.window)
    if not len(step):
        nothing = np.zeros(0, dtype=np.int64)
        return StepRaster(nothing, nothing, length_ns, 0, np.zeros((len(states.parts), 0, bins)))
    end = np.append(start[1:], work_ends_ns(trace, states.device, int(step[-1]), states.window))
    groups = bin_edges(0, len(step), min(columns, len(step)))
    offsets = bin_edges(0, length_ns, bins)
    column = np.repeat(np.arange(len(groups) - 1), np.diff(groups))
    shares = [_covered(piece, start, end, column, offsets) for piece in states.parts]
    whole = np.diff(groups)[:, np.newaxis] * np.diff(offsets)
    return StepRaster(
        step=np.append(step, step[-1] + 1)[groups],
        context=_context(trace, np.append(step, step[-1])[groups]),
        length_ns=length_ns,
        longest_ns=int((end - start).max()),
        shares=np.divide(np.stack(shares), whole, out=np.zeros((len(shares), *whole.shape)), where=whole > 0),
    )


def usual_length(trace: Trace, states: States) -> int:
    """A height that all but the longest one percent of the steps fit into, in ns; 0 where there are no steps."""
    step, start = _compute_starts(trace, states.device, states.window)
    if not len(step):
        return 0
    period = np.diff(start, append=work_ends_ns(trace, states.device, int(step[-1]), states.window))
    return max(1, int(np.percentile(period, 99) * 1.04))


def _covered(piece: Intervals, start: Int64, end: Int64, column: Int64, offsets: Int64) -> Int64:
    """Time in a state in each bin of time since the start of its step, summed over the steps of a column.

    What [a, b) covers before an offset is max(offset - a, 0) - max(offset - b, 0), so that two sums of ramps do it in
    time proportional to the pieces, whatever the number of bins.
    """
    met = overlaps(start, end, piece.start, piece.end)
    columns, of_piece, origin = int(column[-1]) + 1, column[met.a], start[met.a]
    before = _ramps(of_piece, met.start - origin, offsets, columns)
    before -= _ramps(of_piece, met.end - origin, offsets, columns)
    return np.diff(before, axis=1)


def _ramps(column: Int64, begin: Int64, offsets: Int64, columns: int) -> Int64:
    """The sum of max(offset - begin, 0) over the rows of each column, at each offset; shape (columns, offsets)."""
    place = np.searchsorted(offsets, begin)
    kept = place < len(offsets)  # what begins past the last offset adds nothing
    column, place, begin = column[kept], place[kept], begin[kept]
    shape = (columns, len(offsets))
    count, total = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(count, (column, place), 1)
    np.add.at(total, (column, place), begin)
    return np.cumsum(count, axis=1) * offsets - np.cumsum(total, axis=1)


def _compute_starts(trace: Trace, device: int, window: Window) -> tuple[Int64, Int64]:
    """The steps with a compute on the device, and when the first of each starts, in the order of time."""
    rows = np.flatnonzero(trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device) & (trace.step != NONE))
    step, first = np.unique(trace.step[rows], return_index=True)
    start = trace.start_ns[rows[first]]
    order = np.argsort(start, kind="stable")
    kept = order[(start[order] >= window.start_ns) & (start[order] <= window.end_ns)]
    return step[kept].astype(np.int64), start[kept]


def _context(trace: Trace, step: Int64) -> Int64:
    """Tokens of context per request at each step, rounded down; -1 where the trace does not say."""
    table = trace.steps
    row = np.minimum(np.searchsorted(table.step, step), max(0, len(table) - 1))
    if not len(table):
        return np.full(len(step), NONE, dtype=np.int64)
    known = (table.step[row] == step) & (table.context[row] >= 0) & (table.requests[row] > 0)
    return np.where(known, table.context[row] // np.maximum(1, table.requests[row]), NONE)
