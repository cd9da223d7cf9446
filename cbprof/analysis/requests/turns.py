"""Whose turn the device had at each instant: pieces that partition the window, each of one step and one state.

::

    device  | gap | compute N | gap | compute N+1, with a chunk of prefill |
    pieces  | idle, N | active, N | idle, N+1 | as if alone | beside prefill |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.analysis.accounting.blame import blame_gaps, blame_pieces
from cbprof.analysis.accounting.cause_tree import causes
from cbprof.analysis.accounting.gaps import find_gaps
from cbprof.analysis.accounting.host import host_timeline
from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.accounting.states import states
from cbprof.analysis.accounting.window import Window
from cbprof.trace import NONE, Int64, Kind, Trace

NEIGHBOURS = 15
"""A decode step alone is the median of so many steps of the same size on either side, in the order of context."""

ALONE, BESIDE_PREFILL = -1, -2
"""States of a piece in which the device computes; an idle piece has the index of its cause."""


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """``state``: of each piece, :data:`ALONE`, :data:`BESIDE_PREFILL`, or an index of ``causes``: why it was idle,
    by the names of the report.

    ``ends_ns``: when the compute of each of ``steps`` (ascending) was over.
    """

    start: Int64
    end: Int64
    step: Int64
    state: Int64
    causes: tuple[str, ...]
    steps: Int64
    ends_ns: Int64


def turns(trace: Trace, device: int, window: Window) -> Turns:
    """The pieces of one device in a window, in the order of time. Their lengths sum to the window."""
    start, end, step = _computes(trace, device, window)
    steps, of_step = np.unique(step, return_inverse=True)
    ends = np.full(len(steps), np.iinfo(np.int64).min)
    np.maximum.at(ends, of_step, end)
    length = end - start
    alone = _alone_ns(trace, steps, sum_by(of_step, length, len(steps)))[of_step]
    order = np.argsort(of_step, kind="stable")
    before = np.zeros(len(step), dtype=np.int64)  # computed in this step before each piece
    running = np.cumsum(length[order]) - length[order]
    first = np.searchsorted(of_step[order], np.arange(len(steps)))
    before[order] = running - running[first][of_step[order]]
    cut = start + np.clip(alone - before, 0, length)

    host = host_timeline(trace)
    gaps = find_gaps(trace, states(trace, window, device, "compute", host), host)
    idle = blame_pieces(trace, device, gaps, host)
    why = causes(trace, blame_gaps(trace, device, gaps, host), host)
    cause = why.places(idle.cause, idle.span)
    labels = tuple(total.in_words for total in why.totals)
    of_gap = np.searchsorted(gaps.start, idle.start, side="right") - 1
    columns = (
        (start, cut, step, np.full(len(step), ALONE)),
        (cut, end, step, np.full(len(step), BESIDE_PREFILL)),
        (idle.start, idle.end, gaps.step[of_gap].astype(np.int64), cause),
    )
    begin, until, whose, state = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    rows = np.flatnonzero(until > begin)
    rows = rows[np.argsort(begin[rows], kind="stable")]
    known = steps != NONE
    return Turns(begin[rows], until[rows], whose[rows], state[rows], labels, steps[known], ends[known])


def _computes(trace: Trace, device: int, window: Window) -> tuple[Int64, Int64, Int64]:
    """(start, end, step) of the computes, made disjoint: where two overlap, the first keeps the time."""
    rows = np.flatnonzero(trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device))
    start = np.clip(trace.start_ns[rows], window.start_ns, window.end_ns)
    end = np.clip(trace.end_of(rows), window.start_ns, window.end_ns)
    covered = np.maximum.accumulate(np.concatenate(([window.start_ns], end)))[:-1]
    start = np.maximum(start, covered)
    kept = end > start
    return start[kept], end[kept], trace.step[rows][kept].astype(np.int64)


def _alone_ns(trace: Trace, steps: Int64, compute_ns: Int64) -> Int64:
    """How long each step would compute without its rows of prefill; without limit where it has none, or none can tell.

    The median of the decode steps of the nearest size with the nearest contexts.
    """
    riders, table = trace.riders, trace.steps
    row = np.minimum(np.searchsorted(steps, riders.step), max(len(steps) - 1, 0))
    held = steps[row] == riders.step if len(steps) else np.zeros(len(riders), dtype=bool)
    row, decode = row[held], riders.decode[held] == 1
    n_decodes = sum_by(row[decode], np.ones(int(decode.sum()), dtype=np.int64), len(steps))
    n_prefills = sum_by(row[~decode], np.ones(int((~decode).sum()), dtype=np.int64), len(steps))
    reach = (riders.start + riders.tokens)[held]
    context = np.zeros(len(steps), dtype=np.int64)
    told = np.isin(steps, table.step)
    context[told] = table.context[np.searchsorted(table.step, steps[told])]
    context -= sum_by(row[~decode], reach[~decode], len(steps))

    alone = np.full(len(steps), np.iinfo(np.int64).max)
    only = np.flatnonzero((n_decodes > 0) & (n_prefills == 0))
    mixed = np.flatnonzero((n_decodes > 0) & (n_prefills > 0))
    if not len(only):
        return alone
    sizes = np.unique(n_decodes[only])
    for size in np.unique(n_decodes[mixed]).tolist():
        nearest = int(sizes[np.argmin(np.abs(sizes - size))])
        peers = only[n_decodes[only] == nearest]
        peers = peers[np.argsort(context[peers], kind="stable")]
        for each in mixed[n_decodes[mixed] == size].tolist():
            at = int(np.searchsorted(context[peers], context[each]))
            around = np.sort(compute_ns[peers[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]])
            alone[each] = around[(len(around) - 1) // 2]
    return alone
