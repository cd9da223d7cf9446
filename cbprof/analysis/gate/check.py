"""Will it stay so? A trace against limits, for CI. Every device has to keep them: the worst one decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cbprof.analysis.gate.limits import LimitResult, parse_duration, parse_number, parse_percent
from cbprof.analysis.hazards.hazards import Verdict as HazardVerdict
from cbprof.analysis.hazards.hazards import find_hazards
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import UsageError
from cbprof.numbers import counted, percent
from cbprof.trace import Trace

LimitText = str | int | float | bool
NO_HAZARDS = "no-hazards"


@dataclass(frozen=True, slots=True)
class _Limit:
    """A figure that a limit bounds from above, or with ``at_least`` from below; None where it is unknown."""

    meaning: str
    figure: Callable[[Summary], float | None]
    parse: Callable[[str, str], float]
    write: Callable[[float], str]
    at_least: bool = False

    def judge(self, name: str, summary: Summary, limit: float) -> LimitResult:
        """An unknown figure fails: what cannot be seen cannot be promised."""
        found = self.figure(summary)
        if found is None:
            return LimitResult(name, False, f"{self.meaning} is unknown, limit {self.write(limit)}")
        passed = found >= limit if self.at_least else found <= limit
        written, allowed = self.write(found), self.write(limit)
        if written == allowed and found != limit:
            written, allowed = f"{written} ({found:.9g})", f"{allowed} ({limit:.9g})"
        return LimitResult(name, passed, f"{self.meaning} is {written}, limit {allowed}")


def _ttft_p99_ns(summary: Summary) -> float | None:
    return summary.latency.ttft_p99_ns if summary.latency else None


def _itl_p99_ns(summary: Summary) -> float | None:
    return summary.latency.itl_p99_ns if summary.latency else None


def _milliseconds(value: float) -> str:
    return f"{value / 1e6:,.3f} ms"


LIMITS: Mapping[str, _Limit] = MappingProxyType(
    {
        "max-idle": _Limit("the idle share of the GPU", lambda summary: summary.worst_idle_pct, parse_percent, percent),
        "max-gap": _Limit("the longest gap", lambda summary: summary.longest_gap_ns, parse_duration, _milliseconds),
        "max-step-p99": _Limit(
            "the 99th percentile of the time per step",
            lambda summary: summary.step_percentile_ns(99),
            parse_duration,
            _milliseconds,
        ),
        "max-ttft-p99": _Limit(
            "the 99th percentile of the time to the first token", _ttft_p99_ns, parse_duration, _milliseconds
        ),
        "max-itl-p99": _Limit(
            "the 99th percentile of the time between tokens", _itl_p99_ns, parse_duration, _milliseconds
        ),
        "min-tokens-per-s": _Limit(
            "the rate in tokens/s", lambda summary: summary.tokens_per_s, parse_number, "{:,.1f}".format, at_least=True
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a trace must keep. ``values``: by the names of LIMITS; the idle share in per cent, times in nanoseconds.

    ``no_hazards``: no violation of the orderings that batching one ahead rests on may be found.
    """

    values: Mapping[str, float]
    no_hazards: bool = False

    @classmethod
    def parse(cls, texts: Mapping[str, LimitText], where: str) -> Limits:
        """From names and what was written beside them, such as ``{"max-idle": "1%", "no-hazards": True}``.

        ``where`` says in an error where that was. Raises UsageError for an unknown name, or a text that is no limit.
        """
        values: dict[str, float] = {}
        no_hazards = False
        for written, text in texts.items():
            name = written.replace("_", "-")
            if name == NO_HAZARDS and isinstance(text, bool):
                no_hazards = text
            elif name in LIMITS and not isinstance(text, bool):
                values[name] = LIMITS[name].parse(str(text), f"{where} {written}")
            else:
                names = ", ".join((*LIMITS, f"{NO_HAZARDS} (true or false)"))
                raise UsageError(f"{where} {written} = {text}: not a limit; the limits are {names}")
        return cls(values, no_hazards)

    def __bool__(self) -> bool:
        return bool(self.values) or self.no_hazards


def check(
    trace: Trace, limits: Limits, *, steps: tuple[int | None, int | None] | None = None
) -> tuple[LimitResult, ...]:
    """First whether the trace can be relied on, then one result a limit.

    A trace that is not reliable or whose idle time is unknown fails, whatever else it shows. Raises UsageError where
    the trace has no such steps.
    """
    summary = summarize(trace, steps=steps)
    return (_reliable(summary), *_results(trace, summary, limits))


def _reliable(summary: Summary) -> LimitResult:
    if summary.reliable and summary.worst_idle_pct is not None:
        return LimitResult("reliable", True, "the trace is whole and its idle time is known")
    return LimitResult("reliable", False, "; ".join(summary.warnings) or "the trace does not call itself complete")


def _results(trace: Trace, summary: Summary, limits: Limits) -> Iterator[LimitResult]:
    for name, limit in limits.values.items():
        yield LIMITS[name].judge(name, summary, limit)
    if limits.no_hazards:
        yield _hazards(trace)


def _hazards(trace: Trace) -> LimitResult:
    """Of the whole trace. Fails where none of the orderings could be checked, as well as where one was violated."""
    try:
        rules = find_hazards(trace).rules
    except UsageError as error:
        return LimitResult(NO_HAZARDS, False, str(error))
    found = [result.rule.text for result in rules if result.verdict is HazardVerdict.FOUND]
    checked = [result for result in rules if result.verdict is not HazardVerdict.NOT_CHECKED]
    orderings = counted(len(rules), "ordering was", "orderings were")
    text = f"{len(checked)} of {orderings} checked, violated: {', '.join(found) or 'none'}"
    return LimitResult(NO_HAZARDS, bool(checked) and not found, text)
