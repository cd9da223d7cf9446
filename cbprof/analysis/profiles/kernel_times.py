"""What a device spent its time on: kernel by kernel, and by group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.accounting.states import ACTIVITY_KINDS
from cbprof.analysis.accounting.window import Window
from cbprof.analysis.profiles.kernels import Group, group_of, short_kernel
from cbprof.trace import Kind, Trace

PerStep = Mapping[tuple[str, Group], float]
"""By short name and group, the nanoseconds of a step."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Kernels, or copies, of one short name: how long they ran in all (ns), and how many."""

    name: str
    group: Group
    ns: int
    count: int

    @property
    def size(self) -> float:
        """What they are ordered by."""
        return self.ns

    def to_json(self, whole_ns: int, n_steps: int) -> dict[str, Any]:
        """``per_step_ns``: None without steps. ``share_pct``: of the time of all device work."""
        return {
            "name": self.name,
            "group": self.group.value,
            "total_ns": self.ns,
            "per_step_ns": self.ns / n_steps if n_steps else None,
            "count": self.count,
            "share_pct": 100 * self.ns / whole_ns if whole_ns else None,
        }


def kernel_times(trace: Trace, device: int, window: Window) -> tuple[KernelTime, ...]:
    """The work of a device in a window by short name, most time first. What overlaps counts twice."""
    rows = np.flatnonzero(trace.mask(kinds=ACTIVITY_KINDS["busy"], device=device))
    start, end = trace.start_ns[rows], trace.start_ns[rows] + trace.dur_ns[rows]
    within = (start < window.end_ns) & ((end > window.start_ns) | (start >= window.start_ns))
    rows = rows[within]
    length = np.minimum(end[within], window.end_ns) - np.maximum(start[within], window.start_ns)
    keys = trace.name_id[rows].astype(np.int64) * len(Kind) + trace.kind[rows]
    distinct, of_row = np.unique(keys, return_inverse=True)
    found: dict[tuple[str, Group], tuple[int, int]] = {}
    times, counts = sum_by(of_row, length, len(distinct)), np.bincount(of_row, minlength=len(distinct))
    for key, ns, count in zip(distinct.tolist(), times.tolist(), counts.tolist(), strict=True):
        name = short_kernel(trace.names[key // len(Kind)])
        group = group_of(name, Kind(key % len(Kind)))
        of_same = found.get((name, group), (0, 0))
        found[name, group] = (of_same[0] + ns, of_same[1] + count)
    kernels = (KernelTime(*key, *figures) for key, figures in found.items())
    return tuple(sorted(kernels, key=lambda each: (-each.ns, each.name)))


@dataclass(frozen=True, slots=True)
class KernelChange:
    """Kernels of one short name in two runs, in nanoseconds per step, or in all; None where a run has none."""

    name: str
    group: Group
    before_ns: float | None
    after_ns: float | None

    @property
    def ratio(self) -> float | None:
        return self.after_ns / self.before_ns if self.before_ns and self.after_ns is not None else None

    @property
    def size(self) -> float:
        """In the run that has more of it."""
        return max(self.before_ns or 0.0, self.after_ns or 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "group": self.group.value,
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
            "ratio": self.ratio,
        }


def kernel_changes(before: PerStep, after: PerStep) -> tuple[KernelChange, ...]:
    """Every kernel of either run, the largest first."""
    changes = (KernelChange(*key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after)))
    return tuple(sorted(changes, key=lambda change: (-change.size, change.name)))


def per_step(kernels: Iterable[KernelTime], n_steps: int) -> PerStep:
    """Of one device or of several, nanoseconds a step. ``n_steps``: 1 for those of the whole run."""
    found: dict[tuple[str, Group], float] = {}
    for each in kernels:
        found[each.name, each.group] = found.get((each.name, each.group), 0.0) + each.ns / n_steps
    return found
