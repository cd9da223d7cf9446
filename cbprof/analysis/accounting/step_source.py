"""How the steps of a trace are known: from the engine, from annotations, or from what repeats in it."""

from __future__ import annotations

from typing import NamedTuple

from cbprof.trace import NONE, Trace

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


def step_source(trace: Trace) -> StepSource | None:
    """How the steps of this trace are known; None where it has none."""
    if trace.step.max(initial=NONE) == NONE:
        return None
    name, confidence = trace.meta.get("steps_from"), trace.meta.get("steps_confidence")
    if isinstance(name, str) and isinstance(confidence, int | float):
        return StepSource(name, float(confidence))
    return StepSource(ANNOTATED if "step_frames" in trace.meta else RECORDED)
