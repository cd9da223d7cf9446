"""When a comparison counts as a failure: ``slower:2%``, ``idle:1pp``, ``workload``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from cbprof.analysis.gate.compare import Comparison
from cbprof.analysis.gate.limits import LimitResult, parse_percent
from cbprof.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Measure:
    """How much worse ``after`` is, in ``unit``; None where it is unknown. ``unit`` "" means: no number to give."""

    unit: str
    rise: Callable[[Comparison], float | None]
    meaning: str


def _slower(found: Comparison) -> float | None:
    return None if found.slower is None else 100 * (found.slower.value - 1)


def _longest_gap(found: Comparison) -> float | None:
    return _rise_pct(found.before.longest_gap_ns, found.after.longest_gap_ns)


def _p99_step(found: Comparison) -> float | None:
    return _rise_pct(found.before.step_percentile_ns(99), found.after.step_percentile_ns(99))


def _rise_pct(before: int | None, after: int | None) -> float | None:
    return 100 * (after / before - 1) if before and after is not None else None


def _workload(found: Comparison) -> float | None:
    return None if found.same_workload is None else float(not found.same_workload)


MEASURES = MappingProxyType(
    {
        "slower": _Measure("%", _slower, "time per token"),
        "idle": _Measure("pp", lambda found: found.idle_pp, "idle share"),
        "longest-gap": _Measure("%", _longest_gap, "longest gap"),
        "p99-step": _Measure("%", _p99_step, "99th percentile of the time per step"),
        "workload": _Measure("", _workload, "the workload"),
    }
)


@dataclass(frozen=True, slots=True)
class FailIf:
    """``name`` (one of MEASURES) must not rise by more than ``limit``."""

    name: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> FailIf:
        """``"slower:2%"``. Raises UsageError where that is no condition."""
        name, colon, limit = text.partition(":")
        measure = MEASURES.get(name)
        if measure is None or bool(colon) != bool(measure.unit):
            known = ", ".join(f"{name}:1{each.unit}" if each.unit else name for name, each in MEASURES.items())
            raise UsageError(f"--fail-if {text!r} is not a condition: give one of {known}")
        return cls(name, parse_percent(limit, f"--fail-if {name}", unit=measure.unit) if colon else 0.0)

    def judge(self, found: Comparison) -> LimitResult:
        """Fails where the rise is above the limit, and where it is unknown."""
        measure = MEASURES[self.name]
        rise = measure.rise(found)
        if rise is None:
            return LimitResult(self.name, False, f"{measure.meaning}: unknown in one of the traces")
        if not measure.unit:
            return LimitResult(self.name, not rise, f"{measure.meaning} {'differs' if rise else 'is the same'}")
        rise = round(rise, 9)  # so that 110 / 100 is 10 % and no more
        text = f"{measure.meaning} {rise:+.2f} {measure.unit}, allowed +{self.limit:g} {measure.unit}"
        return LimitResult(self.name, rise <= self.limit, text)
