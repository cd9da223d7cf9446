"""How much host work can hide behind the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from cbprof.analysis.predict.predict import predict
from cbprof.analysis.summary import summarize
from cbprof.engine.batch import Batch
from cbprof.engine.run import Run
from cbprof.engine.slots import Slot
from cbprof.lab.finding import Chart, Finding, NamedTrace, Series, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, period_ns
from cbprof.lab.serving import serve, workload_of
from cbprof.numbers import percent, ratio
from cbprof.trace import Kind, Trace

EXTRA = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Host work that is added to each step, in device times."""

STEPS = 32

TOLERANCE_PCT, SHARED_TOLERANCE_PCT = 15.0, 100.0
"""How far the prediction may be off in the middle of the points: the host's speed changes from one run to the next. On
cores that are shared, a factor of 2 is all that can be asked for."""


def host_bound(lab: Lab) -> Finding:
    """Ever more host work a step, from none to three times the device's: overlap pays until the host takes longer.

    While the host is the faster one, its work vanishes behind the device's. Beyond that the device waits for the host
    in both loops, and only what the device does is hidden. The gain is greatest where both take equally long.
    """
    first = serve(lab, workload_of(lab, new_tokens=STEPS), "sync")
    device_ns = device_spans(first.trace, Kind.GPU_COMPUTE).median_ns
    points = [_measure(lab, device_ns, extra) for extra in EXTRA]

    best, most = max(points, key=lambda point: point.gain), points[-1]
    errors_pct = sorted(abs(point.error_pct) for point in points)
    middle_pct, worst_pct = errors_pct[len(errors_pct) // 2], errors_pct[-1]
    tolerance_pct = TOLERANCE_PCT if lab.times_are_its_own else SHARED_TOLERANCE_PCT
    return Finding(
        "host-bound",
        f"the gain is greatest, {ratio(best.gain)}, where the host works {ratio(best.host)} the device's time a step, "
        f"and {ratio(most.gain)} at {ratio(most.host)}; what was predicted from the sync runs is off by "
        f"{percent(middle_pct)} in the middle and {percent(worst_pct)} at worst",
        ok=middle_pct <= tolerance_pct and (best.gain > most.gain or not lab.times_are_its_own),
        unchecked=lab.unchecked(
            f"that predictions are off by {percent(TOLERANCE_PCT)} at most; {percent(tolerance_pct)} is asked for",
            "that the gain is not greatest where the host works most",
        ),
        table=Table(
            ("host work / device time", "sync step", "async step", "predicted", "gain"),
            [(ratio(p.host), ratio(p.sync), ratio(p.ahead), ratio(p.predicted), ratio(p.gain)) for p in points],
        ),
        figures={
            "best_gain": best.gain,
            "best_at_host": best.host,
            "middle_error_pct": middle_pct,
            "worst_error_pct": worst_pct,
            "device_ns": device_ns,
            **{
                f"{name}_at_{point.extra:g}": getattr(point, name)
                for point in points
                for name in ("host", "sync", "ahead", "predicted")
            },
        },
        traces=(NamedTrace("sync, at the greatest gain", best.sync_trace), NamedTrace("async", best.ahead_trace)),
        chart=Chart(
            "host work per step / device time",
            "step / device time",
            [
                Series("sync", [(p.host, p.sync) for p in points], measured=True),
                Series("async", [(p.host, p.ahead) for p in points], measured=True),
                Series("async, predicted", [(p.host, p.predicted) for p in points], measured=False),
            ],
        ),
    )


class _Point(NamedTuple):
    """One amount of host work. All but ``extra`` are of a median step, in device times; ``host`` is all of its work."""

    extra: float
    host: float
    sync: float
    ahead: float
    predicted: float
    sync_trace: Trace
    ahead_trace: Trace

    @property
    def gain(self) -> float:
        return self.sync / self.ahead

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted / self.ahead - 1)


def _measure(lab: Lab, device_ns: int, extra: float) -> _Point:
    """Serve in both loops with this much extra work, and predict the one from the other."""
    workload = workload_of(lab, new_tokens=STEPS)
    lines = round(extra * device_ns / _time_of_a_line())
    busy = partial(_BusyRun, partial(write_lines, lines))
    sync, ahead = serve(lab, workload, "sync", busy), serve(lab, workload, "async", busy)

    host_ns = sum(phase.p50_ns for phase in summarize(sync.trace).phases if not phase.waiting)
    return _Point(
        extra,
        host_ns / device_ns,
        period_ns(sync.trace) / device_ns,
        period_ns(ahead.trace) / device_ns,
        period_ns(predict(sync.trace).trace) / device_ns,
        sync.trace,
        ahead.trace,
    )


class _BusyRun(Run):
    """Has more to do with each batch that it reads back."""

    def __init__(self, extra_work: Callable[[], object], **run: Any) -> None:
        super().__init__(**run)
        self._extra_work = extra_work

    def update(self, batch: Batch, slot: Slot) -> None:
        super().update(batch, slot)
        self._extra_work()


def write_lines(count: int) -> int:
    """Plain Python work, as a detokenizer or a logger does it: format ``count`` lines, and say how long they are."""
    return sum(len(f"request {number % 32:>4} token {number * 2654435761 % 128256:>6}\n") for number in range(count))


def _time_of_a_line() -> float:
    """Nanoseconds that :func:`write_lines` takes for a line: the best of a few tries."""
    lines, tries = 1000, []
    for _ in range(7):
        start = time.perf_counter_ns()
        write_lines(lines)
        tries.append(time.perf_counter_ns() - start)
    return min(tries) / lines
