"""What-ifs: a faster GPU, a cheaper phase, a phase that is gone, another loop. They compose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.intervals import union_of
from cbprof.analysis.accounting.window import ONE_OFF
from cbprof.errors import UsageError
from cbprof.numbers import counted
from cbprof.trace import Int64, Kind, Trace

SLOTS = 2


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would be different. The defaults change nothing but the order: async, through two slots.

    ``slots``: batches in flight; 1 is the sync order. ``together``: the host looks at the tokens of all of them at
    once, as in the multi-step loop. ``gpu_speed``: how many times as fast the device computes; copies keep their time,
    since they are bound by the bus. ``scale``: factors on the time of host phases by name; 0 drops a phase. A phase
    takes what is nested in it along, and factors of nested phases multiply.
    """

    slots: int = SLOTS
    gpu_speed: float = 1.0
    scale: Mapping[str, float] = field(default_factory=dict)
    together: bool = False

    @classmethod
    def of(
        cls,
        *,
        slots: int | None = None,
        steps_per_sync: int | None = None,
        gpu_speed: float = 1.0,
        scale: Mapping[str, float] | None = None,
        drop: Collection[str] = (),
    ) -> WhatIf:
        """The what-if of these changes; ``drop`` is a factor of 0, ``steps_per_sync`` a multi-step loop. Raises
        UsageError where a number makes no sense."""
        if steps_per_sync is not None:
            if slots is not None:
                raise UsageError("slots are of the async order, steps per sync of the multi-step one: give one of them")
            if steps_per_sync < 1:
                raise UsageError(f"{counted(steps_per_sync, 'step')} per sync: give 1 (the sync order), 2 or more")
            slots = steps_per_sync
        slots = SLOTS if slots is None else slots
        if isinstance(drop, str):
            raise UsageError(f"drop={drop!r} is one text: give a list of phases, such as [{drop!r}]")
        if slots < 1:
            raise UsageError(f"{counted(slots, 'slot')}: a batch needs one, so give 1 (the sync order), 2 or more")
        if not (isfinite(gpu_speed) and gpu_speed > 0):
            raise UsageError(f"a GPU {gpu_speed} times as fast: give a speed above 0, such as 2 or 0.5")
        for name, factor in (scale or {}).items():
            if not (isfinite(factor) and factor >= 0):
                raise UsageError(f"scale {name}={factor}: give a factor of 0 or more, such as 0.5")
        together = steps_per_sync is not None and slots > 1
        return cls(slots, gpu_speed, {**(scale or {}), **dict.fromkeys(drop, 0.0)}, together)

    @property
    def mode(self) -> Literal["sync", "async", "multi"]:
        """The loop whose order this is."""
        return "sync" if self.slots == 1 else "multi" if self.together else "async"

    @property
    def changes_nothing(self) -> bool:
        """Whether only the order of the host's work differs from what was measured."""
        return self == WhatIf()

    def to_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "slots": self.slots,
            "steps_per_sync": self.slots if self.together else 1,
            "gpu_speed": self.gpu_speed,
            "scale": dict(self.scale),
        }

    def check_phases(self, trace: Trace) -> None:
        """Raises UsageError for a phase that the host of this trace does not have."""
        work = np.unique(trace.name_id[trace.kind == Kind.CPU_WORK])
        known = sorted(trace.names[name] for name in work.tolist())
        for name in self.scale:
            if name not in known:
                raise UsageError(f"the host has no phase {name!r}: its phases are {', '.join(known) or '(none)'}")

    def compute_ns(self, measured_ns: Int64) -> Int64:
        """Compute times on a device of this speed, to the nearest nanosecond."""
        return measured_ns if self.gpu_speed == 1 else _nearest(measured_ns / self.gpu_speed)

    def host_ns(self, trace: Trace, lane: int, start: Int64, end: Int64, one_off: Int64) -> Int64:
        """How long these pieces of host work on ``lane`` would take; each lies wholly inside or outside of a phase.

        ``one_off``: rows of pieces of a capture or a warm-up, which only their own name scales.
        """
        length = end - start
        factor = np.ones(len(length))
        for name, times in self.scale.items():
            phase = (trace.lane_id == lane) & (trace.kind == Kind.CPU_WORK)
            phase &= trace.name_id == trace.names.index(name)
            inside = union_of(trace, phase).within(start, end) > 0
            if name not in ONE_OFF:
                inside[one_off] = False
            factor[inside] *= times
        return np.where(factor == 1, length, _nearest(length * factor))


def _nearest(ns: npt.NDArray[np.float64]) -> Int64:
    nearest: Int64 = np.rint(ns).astype(np.int64)
    return nearest
