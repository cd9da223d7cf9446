"""Did it work, where one run says little? Several runs before a change against several after it, by their medians.

A noisy machine moves a single run by more than most changes do. So a limit is broken only where the median rose by more
than it allows *and* the runs are apart: where of all pairs, one run before and one after, the later is the worse one in
95 of 100. Of three runs each that means in all nine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import isfinite
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from cbprof.analysis.gate.compare import MEASURES, FailIf, comparable, workload_of
from cbprof.analysis.gate.limits import LimitResult
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import DataError, UsageError
from cbprof.meta import Evidence
from cbprof.trace import Trace

SCHEMA = 1
APART_PCT = 95
"""Of all pairs of runs, the share in which the later must be worse before that counts."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """How a run did, the lower the better: nanoseconds, and the idle share in per cent. None is unknown."""

    time_per_token_ns: float | None
    time_per_step_ns: float | None
    idle_pct: float | None
    longest_gap_ns: float | None
    p99_step_ns: float | None

    @classmethod
    def of(cls, summary: Summary) -> RunFigures:
        wall = summary.wall_ns
        return cls(
            time_per_token_ns=wall / summary.tokens if summary.tokens and wall else None,
            time_per_step_ns=wall / summary.n_steps if summary.n_steps and wall else None,
            idle_pct=summary.worst_idle_pct,
            longest_gap_ns=summary.longest_gap_ns,
            p99_step_ns=summary.step_percentile_ns(99),
        )

    @classmethod
    def parse(cls, said: object) -> RunFigures:
        """From the plain form. Raises ValueError where it is none."""
        names = cls.__slots__
        if not isinstance(said, dict) or set(said) != set(names):
            raise ValueError(f"a run has {', '.join(names)}")
        if not all(value is None or _is_figure(value) for value in said.values()):
            raise ValueError("a figure of a run is a number, or null")
        return cls(**said)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def time_of(run: RunFigures) -> float | None:
    """Per token, or per step where the tokens are not known."""
    return run.time_per_step_ns if run.time_per_token_ns is None else run.time_per_token_ns


FIGURES: Mapping[str, Callable[[RunFigures], float | None]] = MappingProxyType(
    {
        "slower": time_of,
        "idle": lambda run: run.idle_pct,
        "longest-gap": lambda run: run.longest_gap_ns,
        "p99-step": lambda run: run.p99_step_ns,
    }
)
"""By the names of MEASURES."""


class Change(NamedTuple):
    """Of one figure. ``rise``: of the median, in the unit of its measure; None where there is nothing to divide by.

    ``worse_pct``: of all pairs of runs, the share in which the later one has more of it.
    """

    before: float
    after: float
    rise: float | None
    worse_pct: float

    @property
    def apart(self) -> bool:
        return self.worse_pct >= APART_PCT


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of one workload, recorded in one way. ``workload``: the facts that say which, by dotted keys."""

    figures: tuple[RunFigures, ...]
    evidence: Evidence
    device: str | None
    workload: Mapping[str, Any]

    @classmethod
    def of(cls, traces: Sequence[Trace], *, steps: tuple[int | None, int | None] | None = None) -> Runs:
        """Of the traces, or their ``steps`` (first, last). Raises UsageError where they are not runs of one kind."""
        each = [
            cls(
                (RunFigures.of(summarize(trace, steps=steps)),),
                trace.evidence,
                trace.meta.device,
                workload_of(trace.meta),
            )
            for trace in traces
        ]
        for other in each[1:]:
            check_comparable(each[0], other)
            if other.workload != each[0].workload:
                raise UsageError("the runs are of different workloads: compare those of one at a time")
        return replace(each[0], figures=tuple(figures for runs in each for figures in runs.figures))

    def values(self, name: str) -> list[float] | None:
        """The figure of each run, smallest first; None where one run's is unknown."""
        found = [value for run in self.figures if (value := FIGURES[name](run)) is not None]
        return sorted(found) if len(found) == len(self.figures) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "evidence": self.evidence,
            "device": self.device,
            "workload": dict(self.workload),
            "runs": [asdict(run) for run in self.figures],
        }

    @classmethod
    def parse(cls, said: object, name: str) -> Runs:
        """The inverse of :meth:`to_json`, of the file ``name``. Raises DataError where it is no such thing."""
        wrong = f"{name}: not a baseline of this version; make it anew with `cbprof baseline save`"
        if not isinstance(said, dict) or said.get("schema") != SCHEMA:
            raise DataError(wrong)
        device, workload, runs = (said.get(key) for key in ("device", "workload", "runs"))
        known: tuple[Evidence, ...] = get_args(Evidence)
        evidence = next((each for each in known if each == said.get("evidence")), None)
        if not isinstance(runs, list) or not runs or not isinstance(workload, dict) or evidence is None:
            raise DataError(wrong)
        try:
            figures = tuple(RunFigures.parse(run) for run in runs)
        except ValueError as error:
            raise DataError(f"{wrong} ({error})") from None
        return cls(figures, evidence, device if isinstance(device, str) else None, workload)


def change_of(name: str, before: Runs, after: Runs) -> Change | None:
    """None where the figure is unknown in one of the runs."""
    old, new = before.values(name), after.values(name)
    if old is None or new is None:
        return None
    worse = sum(later > earlier for earlier, later in product(old, new))
    first, second = median(old), median(new)
    rise: float | None = second - first
    if MEASURES[name].unit == "%":
        rise = 100 * (second / first - 1) if first else None
    return Change(first, second, rise, 100 * worse / (len(old) * len(new)))


def check_comparable(before: Runs, after: Runs) -> None:
    """Raises UsageError where the two were measured in different ways."""
    if not comparable(before.evidence, after.evidence):
        told = f"the runs before were measured by {before.evidence}, those after by {after.evidence}"
        raise UsageError(f"{told}: their figures do not mean the same; record both in one way")


def judge(condition: FailIf, before: Runs, after: Runs) -> LimitResult:
    """Fails where the median rose above the limit and the runs are apart, and where it is unknown."""
    name, unit, meaning = condition.name, MEASURES[condition.name].unit, MEASURES[condition.name].meaning
    if not unit:
        if not before.workload or not after.workload:
            return LimitResult(name, False, f"{meaning}: unknown in one of the runs")
        same = before.workload == after.workload
        return LimitResult(name, same, f"{meaning} {'is the same' if same else 'differs'}")
    change = change_of(name, before, after)
    if change is None or change.rise is None:
        return LimitResult(name, False, f"{meaning}: unknown in one of the runs")
    rise = round(change.rise, 9)
    passed = rise <= condition.limit or not change.apart
    n_pairs = len(before.figures) * len(after.figures)
    n_worse = round(change.worse_pct * n_pairs / 100)
    text = (
        f"the median of {meaning} {rise:+.2f} {unit}, allowed +{condition.limit:g} {unit}; "
        f"worse in {n_worse} of {n_pairs} pairs of runs"
    )
    within = "" if rise <= condition.limit or not passed else ", which is within what the runs differ by"
    return LimitResult(name, passed, text + within)


def median_run(runs: Runs) -> int:
    """The index of the run whose time is the median, or the lower one of two; the first where a time is unknown."""
    if runs.values("slower") is None:
        return 0
    order = sorted(range(len(runs.figures)), key=lambda index: time_of(runs.figures[index]) or 0)
    return order[(len(order) - 1) // 2]
