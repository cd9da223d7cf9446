"""How well host and device overlap: what was hidden of what could be, and how early the next batch was queued.

::

    device  | compute N                       | compute N+1
    host    | wait N-1 | update | ... | launch N+1 |   wait N
              hidden:   =========================
                                                   <---------> launch lead of N+1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.device_time import graph_launches
from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.accounting.states import StateTotals
from cbprof.analysis.accounting.steps import StepTimes
from cbprof.analysis.accounting.window import ONE_OFF
from cbprof.trace import NONE, Trace

CAPTURE = ONE_OFF[0]


class LaunchLead(NamedTuple):
    """How long before compute N ended the launch of the next compute was over, over the steps where both are known.

    Negative where the device ran dry first. ``n_late`` counts the steps without any lead (<= 0). This is what answers
    "async is on, but nothing overlaps".
    """

    n_steps: int
    n_late: int
    p1_ns: int
    p50_ns: int

    @property
    def late_pct(self) -> float:
        return 100 * self.n_late / self.n_steps


@dataclass(frozen=True, slots=True)
class Overlap:
    """How well host and device overlap in a window.

    ``hidden_ns``: host work done while the device was active. ``hideable_ns``: the most that could have been, which is
    all the host's work or all the device's, whichever is less; both as far as the host was recorded. ``host_known``:
    whether that is enough to go by. ``n_steps``: of the device; ``without_graph``: those that replayed no graph, None
    where the trace does not say.
    """

    hidden_ns: int
    hideable_ns: int
    host_known: bool
    launch_lead: LaunchLead | None
    n_steps: int
    without_graph: tuple[int, ...] | None

    @property
    def graph_coverage_pct(self) -> float | None:
        """The share of steps that replayed a graph; None where the trace does not say."""
        if self.without_graph is None or not self.n_steps:
            return None
        return 100 * (self.n_steps - len(self.without_graph)) / self.n_steps

    @property
    def efficiency_pct(self) -> float | None:
        """100 x hidden / hideable; None where there was nothing to hide, or too little of the host is recorded."""
        return 100 * self.hidden_ns / self.hideable_ns if self.hideable_ns and self.host_known else None

    def to_json(self) -> dict[str, Any]:
        lead = self.launch_lead
        return {
            "hidden_ns": self.hidden_ns,
            "hideable_ns": self.hideable_ns,
            "efficiency_pct": self.efficiency_pct,
            "graph_coverage_pct": self.graph_coverage_pct,
            "steps_without_graph": None if self.without_graph is None else list(self.without_graph),
            "launch_lead_ns": {"p1": lead.p1_ns, "p50": lead.p50_ns} if lead else None,
            "launch_late_pct": lead.late_pct if lead else None,
        }


def overlap(trace: Trace, states: StateTotals, steps: StepTimes) -> Overlap:
    """The overlap of one device in a window, from its states and steps there."""
    return Overlap(
        hidden_ns=states.overlap,
        hideable_ns=min(states.cpu, states.gpu),
        host_known=states.host_known,
        launch_lead=launch_lead(steps),
        n_steps=len(steps),
        without_graph=_without_graph(trace, steps),
    )


def launch_lead(steps: StepTimes) -> LaunchLead | None:
    """The launch leads of all steps but the first, whose launch follows no compute; None if none is known."""
    in_time = np.argsort(steps.start_ns, kind="stable")
    launched = steps.launched_ns[in_time][1:]
    lead = np.sort((steps.end_ns[in_time][:-1] - launched)[launched != NONE])
    if not len(lead):
        return None
    return LaunchLead(len(lead), int((lead <= 0).sum()), nearest_rank(lead, 1), nearest_rank(lead, 50))


def _without_graph(trace: Trace, steps: StepTimes) -> tuple[int, ...] | None:
    """The steps that replayed no graph. A profiler records the launches of graphs, each within its step.

    Else a step with a ``capture`` span is not a replay, and what says that the others are is such a span, or the run
    itself.
    """
    if not len(steps):
        return None
    if trace.is_profile:
        return tuple(steps.step[~np.isin(steps.step, trace.step[graph_launches(trace)])].tolist())
    captures = ~trace.on_device & np.isin(trace.name_id, trace.ids_of(CAPTURE))
    uses_graphs = True if trace.meta.cuda_graphs is None and captures.any() else trace.meta.cuda_graphs
    if uses_graphs is None:
        return None
    without = np.isin(steps.step, trace.step[captures]) if uses_graphs else np.ones(len(steps), dtype=bool)
    return tuple(steps.step[without].tolist())
