"""Orderings that the engine never asked for: found in every run, whatever the timing then was.

A recording notes how often each stream, or the host, waited for which event (``edges`` in the trace's metadata, see
``cbprof.record.drain``). What has to be there, in every step::

    h2d --inputs_ready--> compute --outputs_ready--> d2h --done--> host
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from cbprof.analysis.hazards.batch_times import UNKNOWN, BatchTimes
from cbprof.meta import Edge
from cbprof.numbers import counted
from cbprof.trace import Trace


@dataclass(frozen=True, slots=True)
class MissingEdge:
    """An ordering that ``steps`` steps lack, in words. ``rule`` is the key of the rule that rests on it."""

    rule: str
    steps: int
    text: str


class _Needed(NamedTuple):
    recorded_on: str
    waiter: str
    text: str


NEEDED: Mapping[str, _Needed] = MappingProxyType(
    {
        "h2d_before_compute": _Needed("h2d", "compute", "compute N does not wait for H2D N"),
        "compute_before_d2h": _Needed("compute", "d2h", "D2H N does not wait for compute N"),
        "d2h_before_update": _Needed("d2h", "host", "the host does not wait for D2H N before update N"),
    }
)


def missing_edges(trace: Trace, times: BatchTimes) -> tuple[MissingEdge, ...] | None:
    """What the steps of a device lack; None where the trace does not say which orderings there were."""
    edges = trace.meta.edges
    if not edges:
        return None
    uses = {
        "h2d_before_compute": (times.h2d_end != UNKNOWN) & (times.compute_start != UNKNOWN),
        "compute_before_d2h": (times.compute_end != UNKNOWN) & (times.d2h_start != UNKNOWN),
        "d2h_before_update": (times.compute_end != UNKNOWN) & (times.read != UNKNOWN),
    }
    # In sync everything is queued on one stream, whose order is enough; only the host has to wait.
    rules = ["d2h_before_update"] if trace.mode == "sync" else list(NEEDED)
    missing = [_missing(rule, int(uses[rule].sum()), edges) for rule in rules]
    missing.append(_reused_early(times, edges))
    return tuple(edge for edge in missing if edge is not None)


def _missing(rule: str, steps: int, edges: Sequence[Edge]) -> MissingEdge | None:
    """The steps that lack the edge of a rule. An edge of the right ends but another step does not count."""
    needed = NEEDED[rule]
    waits = [edge for edge in edges if edge.waiter == needed.waiter]
    right = sum(edge.count for edge in waits if edge.recorded_on == needed.recorded_on and edge.steps_before == 0)
    if right >= steps:
        return None
    if right:
        text = f"{needed.text}, in {steps - right} of {counted(steps, 'step')}"
    else:
        text = needed.text.replace("does not wait", "never waits")
    return MissingEdge(rule, steps - right, text + "".join(_instead(waits, needed)))


def _instead(waits: Sequence[Edge], needed: _Needed) -> Iterator[str]:
    """What was waited for in vain."""
    for edge in waits:
        if edge.recorded_on is None:
            yield f"; it waits for {edge.event}, which was never recorded"
        elif edge.recorded_on == needed.recorded_on and edge.steps_before:
            off, side = abs(edge.steps_before), "earlier" if edge.steps_before > 0 else "later"
            yield f"; it waits for {edge.event} as recorded {counted(off, 'step')} {side}"


def _reused_early(times: BatchTimes, edges: Sequence[Edge]) -> MissingEdge | None:
    """Slots prepared again before the host had waited for their last batch: host times alone, so no clock error.

    An engine may also make the host wait for the copy to the device itself before it rewrites the buffer; then there
    is an edge from h2d to the host, and this says nothing.
    """
    if any(edge.recorded_on == "h2d" and edge.waiter == "host" for edge in edges):
        return None
    earlier, later = times.next_in_slot()
    known = (times.h2d_end[earlier] != UNKNOWN) & (times.prepared[later] != UNKNOWN)
    earlier, later = earlier[known], later[known]
    early = times.prepared[later] < times.read[earlier]  # one that was never read is not read late
    if not early.any():
        return None
    first, then = times.step[earlier[early]][0], times.step[later[early]][0]
    return MissingEdge(
        "host_buffer_kept",
        int(early.sum()),
        f"a slot is prepared again before the host has waited for its last batch, {counted(int(early.sum()), 'time')}: "
        f"first batch {then} in the slot of batch {first}",
    )
