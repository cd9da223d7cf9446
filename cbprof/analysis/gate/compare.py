"""Did it work? Two traces of one workload, before and after a change.

Runs of different lengths are compared per token; where steps of the same number exist in both, also step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.phases import PhaseTime
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.gate.limits import LimitResult, parse_percent
from cbprof.analysis.profiles.kernel_times import KernelChange, PerStep, kernel_changes, per_step
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import UsageError
from cbprof.meta import Evidence, Meta
from cbprof.names import naming
from cbprof.trace import Int64, Trace

BLOCKS = 50
FEWEST_BLOCKS = 8
RESAMPLES = 2000
CONFIDENCE_PCT = 95


def comparable(before: Evidence, after: Evidence) -> bool:
    """Whether "GPU active" means the same in both: not where they are known to be measured in different ways.

    A prediction means what the trace means that it was computed from.
    """
    return before == after or not {before, after}.isdisjoint(("predicted", "unknown"))


class Ratio(NamedTuple):
    """after / before, and the interval that holds it in 95 of 100 cases; None where there are too few steps to say."""

    value: float
    low: float | None
    high: float | None


def ratio_of_sums(before: Int64, after: Int64, *, scale: float = 1.0, seed: int = 0) -> Ratio | None:
    """scale x sum(after) / sum(before) with a bootstrap interval. One value a block; the blocks correspond.

    The interval says how much the ratio varies within these two runs, not what a third run would bring. None where
    there is nothing to divide by.
    """
    if not before.sum():
        return None
    value = scale * int(after.sum()) / int(before.sum())
    if len(before) < FEWEST_BLOCKS:
        return Ratio(value, None, None)
    drawn = np.random.default_rng(seed).integers(len(before), size=(RESAMPLES, len(before)))
    below = before[drawn].sum(axis=1)
    ratios = scale * after[drawn].sum(axis=1)[below > 0] / below[below > 0]
    tail = (100 - CONFIDENCE_PCT) / 2
    low, high = np.percentile(ratios, (tail, 100 - tail))
    return Ratio(value, float(low), float(high))


def block_edges(count: int, blocks: int = BLOCKS) -> Int64:
    """The first index of each block of ``count`` steps, and ``count``; as many blocks as asked, or one a step."""
    blocks = min(blocks, count)
    return np.arange(blocks + 1, dtype=np.int64) * count // max(1, blocks)


SCHEMA = 1

WORKLOAD = ("workload", "model", "dtype")
"""Metadata that says what was served."""

CIRCUMSTANCES = ("device", "engine", "evidence", "torch", "transformers", "config")
"""Metadata that says with what. A difference here may be the change itself, or may explain it."""

_MEASURED_BY: Mapping[Evidence, str] = MappingProxyType(
    {
        "cuda_events": "event spans on a stream (cuda_events)",
        "cupti": "the device's own records (cupti)",
        "emulated": "a host that plays the device (emulated)",
    }
)

RESULTS = frozenset({"steps", "complete", "tokens", "wall_s"})
"""What some engines note in the workload after the run: outcomes, not a part of the question."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact on which the metadata of the two traces differ; None where one of them does not state it."""

    key: str
    before: Any
    after: Any
    of_workload: bool


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A host phase in nanoseconds per step, or in all (see :class:`Comparison`); None where a run does not have it.

    ``ratio`` is None where one is unknown, or before is 0.
    """

    name: str
    waiting: bool
    before_ns: float | None
    after_ns: float | None
    before_exposed_ns: float | None
    after_exposed_ns: float | None

    @property
    def ratio(self) -> float | None:
        return self.after_ns / self.before_ns if self.before_ns and self.after_ns is not None else None

    @property
    def larger_ns(self) -> float:
        """In the run that has more of it."""
        return max(self.before_ns or 0.0, self.after_ns or 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """``same_workload`` is None where a trace does not say what it served.

    ``per_token``: ratio of the time per token over the whole windows. ``per_step``: of the time of the ``n_aligned``
    steps that both have. Both are those of the device that became slowest by it. ``devices``: which of the two runs
    were compared, by their ids; where each run has one, these two. ``kernels``: what these ran. It and the
    ``phases`` are per step, or of the whole windows where a run has no steps. ``idle_pp``: change of the largest idle
    share of a device in percentage points. None is unknown.
    """

    before: Summary
    after: Summary
    same_workload: bool | None
    differences: tuple[Difference, ...]
    n_aligned: int
    per_step: Ratio | None
    per_token: Ratio | None
    phases: tuple[PhaseChange, ...]
    devices: tuple[tuple[int, int], ...]
    kernels: tuple[KernelChange, ...] = ()

    @property
    def by_step(self) -> bool:
        """Whether both runs have steps."""
        return bool(self.before.n_steps and self.after.n_steps)

    @property
    def slower(self) -> Ratio | None:
        """The ratio to judge by: per token, or per step where the tokens are not known."""
        return self.per_token or self.per_step

    @property
    def idle_pp(self) -> float | None:
        before, after = self.before.worst_idle_pct, self.after.worst_idle_pct
        return None if before is None or after is None else after - before

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys. Times are nanoseconds; what is unknown is None."""
        return {
            "schema": SCHEMA,
            "same_workload": self.same_workload,
            "differences": [asdict(each) for each in self.differences],
            "before": _figures(self.before),
            "after": _figures(self.after),
            "n_aligned_steps": self.n_aligned,
            "time_per_step_ratio": self.per_step._asdict() if self.per_step else None,
            "time_per_token_ratio": self.per_token._asdict() if self.per_token else None,
            "idle_pp": self.idle_pp,
            "devices": [{"before": before, "after": after} for before, after in self.devices],
            "per": "step" if self.by_step else "run",
            "phases": [asdict(change) | {"ratio": change.ratio} for change in self.phases],
            "device_work": [change.to_json() for change in self.kernels],
        }


def compare(
    before: Trace, after: Trace, *, steps: tuple[int | None, int | None] | None = None, seed: int = 0
) -> Comparison:
    """Compare two traces, or their ``steps`` (first, last). ``seed``: of the bootstrap.

    Raises UsageError where a trace has no such steps, or where the two were measured in different ways.
    """
    if not comparable(before.evidence, after.evidence):
        raise UsageError(
            f"the first trace was measured by {_MEASURED_BY[before.evidence]} and the second by "
            f"{_MEASURED_BY[after.evidence]}: their figures do not mean the same; record both in one way"
        )
    old, new = summarize(before, steps=steps), summarize(after, steps=steps)
    differences = tuple(_differences(before, after))
    known = None not in (before.meta.workload, after.meta.workload)
    different = any(each.of_workload and None not in (each.before, each.after) for each in differences)
    pairs = _pairs(old.devices, new.devices)
    common = max(
        (_per_step(*pair, seed) for pair in pairs), key=lambda each: _value(each.ratio), default=_Steps(0, None)
    )
    units = (old.n_steps, new.n_steps) if old.n_steps and new.n_steps else (1, 1)
    scale = old.tokens / new.tokens if old.tokens and new.tokens else None
    return Comparison(
        before=old,
        after=new,
        same_workload=False if different else True if known else None,
        differences=differences,
        n_aligned=common.n_aligned,
        per_step=common.ratio,
        per_token=max((_per_token(*pair, scale, seed) for pair in pairs), key=_value, default=None) if scale else None,
        phases=tuple(_phases(old, new, *units)),
        devices=tuple((first.device, second.device) for first, second in pairs),
        kernels=kernel_changes(
            _work((first for first, _ in pairs), units[0]), _work((second for _, second in pairs), units[1])
        ),
    )


def _pairs(
    before: Sequence[DeviceSummary], after: Sequence[DeviceSummary]
) -> tuple[tuple[DeviceSummary, DeviceSummary], ...]:
    """The devices of one id in both runs; where each run has a single one, these two whatever their ids."""
    if len(before) == len(after) == 1:
        return ((before[0], after[0]),)
    old = {device.device: device for device in before}
    return tuple((old[device.device], device) for device in after if device.device in old)


def _differences(before: Trace, after: Trace) -> Iterator[Difference]:
    old, new = _facts(before.meta.to_json()), _facts(after.meta.to_json())
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield Difference(key, old.get(key), new.get(key), of_workload=key.split(".")[0] in WORKLOAD)


def _facts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that the comparison looks at, with dotted keys for what is nested."""
    facts: dict[str, Any] = {}
    for key in (*WORKLOAD, *CIRCUMSTANCES):
        value = meta.get(key)
        if isinstance(value, Mapping):
            facts |= {f"{key}.{name}": each for name, each in value.items() if name not in RESULTS}
        elif value is not None:
            facts[key] = value
    return facts


def workload_of(meta: Meta) -> dict[str, Any]:
    """What was served, with dotted keys, as a comparison looks at it."""
    return {key: value for key, value in _facts(meta.to_json()).items() if key.split(".")[0] in WORKLOAD}


def _work(devices: Iterable[DeviceSummary], n_units: int) -> PerStep:
    """What they ran, where it was recorded."""
    return per_step((kernel for each in devices if each.profile for kernel in each.profile.kernels), n_units)


class _Steps(NamedTuple):
    """The ratio of the time of the steps that two devices have in common, and how many there are."""

    n_aligned: int
    ratio: Ratio | None


def _per_step(before: DeviceSummary, after: DeviceSummary, seed: int) -> _Steps:
    old, new = before.steps, after.steps
    _, of_old, of_new = np.intersect1d(old.step, new.step, assume_unique=True, return_indices=True)
    if not len(of_old):
        return _Steps(0, None)
    first = block_edges(len(of_old))[:-1]
    times = (np.add.reduceat(period, first) for period in (old.period_ns[of_old], new.period_ns[of_new]))
    return _Steps(len(of_old), ratio_of_sums(*times, seed=seed))


def _per_token(before: DeviceSummary, after: DeviceSummary, scale: float, seed: int) -> Ratio | None:
    """Blocks at the same share of either run's steps correspond, so that runs of different lengths can be compared."""
    blocks = min(BLOCKS, len(before.steps), len(after.steps))
    if not blocks:
        return None
    return ratio_of_sums(_block_times(before, blocks), _block_times(after, blocks), scale=scale, seed=seed)


def _block_times(device: DeviceSummary, blocks: int) -> Int64:
    """The window cut at the starts of steps into blocks of about as many steps each; their sum is the wall time."""
    starts = np.sort(device.steps.start_ns)[block_edges(len(device.steps), blocks)[1:-1]]
    return np.diff(np.concatenate(([device.window.start_ns], starts, [device.window.end_ns])))


def _value(found: Ratio | None) -> float:
    return -1 if found is None else found.value


def _phases(before: Summary, after: Summary, n_before: int, n_after: int) -> Iterator[PhaseChange]:
    """The phases of both per unit, the larger first. Names of one thing are one, in both runs."""
    names = naming([phase.name for each in (before, after) for phase in each.phases])
    label = iter([names.labels[index] for index in names.of])
    old, new = (_per_label(each.phases, label) for each in (before, after))

    changes = []
    for key in dict.fromkeys((*old, *new)):
        times = zip(old.get(key, (None, None)), new.get(key, (None, None)), strict=True)  # all, exposed
        units = (n_before, n_after)
        per_unit = [None if ns is None else ns / n for pair in times for ns, n in zip(pair, units, strict=True)]
        changes.append(PhaseChange(*key, *per_unit))
    yield from sorted(changes, key=lambda change: -change.larger_ns)


def _per_label(phases: Sequence[PhaseTime], labels: Iterator[str]) -> dict[tuple[str, bool], tuple[int, int]]:
    """(total, exposed) nanoseconds by label and by whether the host waits; takes one label a phase."""
    found: dict[tuple[str, bool], tuple[int, int]] = {}
    for phase in phases:
        key = next(labels), phase.waiting
        total, exposed = found.get(key, (0, 0))
        found[key] = total + phase.total_ns, exposed + phase.exposed_ns
    return found


def _figures(summary: Summary) -> dict[str, Any]:
    return {
        "mode": summary.mode,
        "wall_ns": summary.wall_ns or None,
        "tokens": summary.tokens,
        "tokens_per_s": summary.tokens_per_s,
        "steps": summary.n_steps,
        "idle_pct": summary.worst_idle_pct,
        "longest_gap_ns": summary.longest_gap_ns,
        "lost": summary.lost.to_json() if summary.lost is not None else None,
    }


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
