"""All figures of a trace at once: what a report, a table and a check are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import Cause
from cbprof.analysis.accounting.cores import short_of_cores
from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.accounting.gaps import WhichGaps
from cbprof.analysis.accounting.host import host_timeline
from cbprof.analysis.accounting.idle import most_idle
from cbprof.analysis.accounting.phases import PhaseTime, nearest_rank, phase_times
from cbprof.analysis.accounting.states import Activity
from cbprof.analysis.accounting.steps import StepSource, how_steps_are_known, step_source
from cbprof.analysis.accounting.window import (
    Window,
    default_mode,
    device_windows,
    extent,
    hull,
    run_window,
    steps_window,
)
from cbprof.analysis.device import DeviceSummary, summarize_device
from cbprof.analysis.profiles.health import Health, examine
from cbprof.analysis.requests.lost import LostWork, lost_work
from cbprof.analysis.verdict.advice import Advice, Case, about, advise, engine_of, records_stacks
from cbprof.analysis.verdict.latency import Latency, latency
from cbprof.analysis.verdict.one_off import OneOff, one_offs
from cbprof.analysis.verdict.verdict import Bound, Verdict, judge, much_exposed
from cbprof.errors import UsageError
from cbprof.meta import Evidence
from cbprof.numbers import counted, duration, percent
from cbprof.trace import RequestEvent, Trace

SCHEMA = 1


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The figures of a trace. ``window`` is None, and ``devices`` empty, where nothing ran on a device."""

    mode: str | None
    engine: str | None
    device_name: str | None
    evidence: Evidence
    activity: Activity
    complete: bool
    reliable: bool
    warnings: tuple[str, ...]
    health: Mapping[str, Any]
    window: Window | None
    devices: tuple[DeviceSummary, ...]
    phases: tuple[PhaseTime, ...]
    one_offs: tuple[OneOff, ...]
    tokens: int | None
    latency: Latency | None
    lost: LostWork | None = None
    format: str = "chrome"
    examination: Health | None = None
    step_source: StepSource | None = None
    advice: tuple[Advice, ...] = ()

    @property
    def most_idle(self) -> DeviceSummary | None:
        """The device that waited longest: the one that tables show. A device of unknown idle time comes last."""
        return self.devices[most_idle([device.idle_ns for device in self.devices])] if self.devices else None

    @property
    def worst_idle_pct(self) -> float | None:
        """The largest idle share of a device, for gates: None where that of any device is unknown."""
        shares = [device.idle_pct for device in self.devices]
        known = [share for share in shares if share is not None]
        return max(known) if known and len(known) == len(shares) else None

    @property
    def longest_gap_ns(self) -> int | None:
        """The longest gap of any device, for gates: None where the idle time of any device is unknown."""
        if any(device.idle_ns is None for device in self.devices):
            return None
        return max((device.gaps.longest_ns for device in self.devices), default=None)

    @property
    def verdict(self) -> Verdict:
        """What bounds the run, judged by the device that waited longest."""
        return self.most_idle.verdict if self.most_idle else judge(None)

    @property
    def wall_ns(self) -> int:
        return self.window.length_ns if self.window else 0

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / (self.wall_ns / 1e9) if self.tokens is not None and self.wall_ns else None

    @property
    def n_steps(self) -> int:
        """Steps of the device that ran most of them."""
        return max((len(device.steps) for device in self.devices), default=0)

    def step_percentile_ns(self, percent: int) -> int | None:
        """Nearest-rank percentile of the time from one compute's start to the next, on the device where it is largest.

        None where no step ran on a device.
        """
        periods = (np.sort(device.steps.period_ns) for device in self.devices if len(device.steps))
        return max((nearest_rank(period, percent) for period in periods), default=None)

    def to_json(self, file: str | None = None, gaps: WhichGaps = "longest") -> dict[str, Any]:
        """Plain data with stable keys: ``cbprof report --json``. Times are integer nanoseconds; undefined is None."""
        return {
            "schema": SCHEMA,
            "file": file,
            "format": self.format,
            "evidence": self.evidence,
            "mode": self.mode,
            "complete": self.complete,
            "reliable": self.reliable,
            "warnings": list(self.warnings),
            "health": dict(self.health) | (self._details() if gaps == "all" else {}),
            "window": self.window.name if self.window else None,
            "devices": [device.to_json(gaps) for device in self.devices],
            "phases": [phase.to_json() for phase in self.phases],
            "steps": {
                "count": self.n_steps,
                "p50_ns": self.step_percentile_ns(50),
                "p99_ns": self.step_percentile_ns(99),
                **how_steps_are_known(self.step_source),
            },
            "verdict": self.verdict.to_json(),
            "advice": [each.to_json() for each in about(self.advice, file)],
            "tokens": self.tokens,
            "tokens_per_s": self.tokens_per_s,
            "latency": self.latency.to_json() if self.latency else None,
            "lost": self.lost.to_json() if self.lost is not None else None,
            "one_off": {once.name: once.to_json() for once in self.one_offs},
        }

    def _details(self) -> dict[str, Any]:
        """What a profile tells of each event and each gap; times in microseconds."""
        if self.examination is None:
            return {}
        causes = [
            {
                "gap": [gap["start_ns"] / 1000, gap["end_ns"] / 1000],
                **{f"{part}_us": _us(gap[f"{part}_ns"]) for part in ("host_late", "in_launch", "queue")},
                "host_exclusive_us": {name: ns / 1000 for name, ns in gap["blame_ns"].items()},
            }
            for device in self.devices
            for gap in device.gaps_to_json(np.arange(len(device.gaps)))
        ]
        return self.examination.details() | {"gap_causes": causes}


def summarize(
    trace: Trace,
    *,
    steps: tuple[int | None, int | None] | None = None,
    window: str | None = None,
    activity: Activity | None = None,
) -> Summary:
    """The figures of a whole run, of ``steps`` (first, last), last exclusive and None for an open end, or of a window.

    ``window``: see :func:`device_windows`; by default ``gpu_span`` for the trace of a profiler, and ``run`` for others.
    ``activity``: by default ``busy`` for the trace of a profiler, and ``compute`` for others.
    Raises UsageError where the trace has no such steps or window, or where both are given.
    """
    if steps is not None and window is not None:
        raise UsageError("steps and a window both choose a stretch of time: give one of them")
    trace = without_profiled_steps(trace)
    activity = activity or ("busy" if trace.is_profile else "compute")
    run = extent(trace) if trace.is_profile else run_window(trace)
    if steps is None:
        windows = device_windows(trace, window or default_mode(trace), None if trace.is_profile else run)
    else:
        windows = dict.fromkeys(trace.devices, steps_window(trace, *steps))
    whole = hull(windows)
    whole = run if whole == run else whole
    host = host_timeline(trace)
    health = examine(trace, host.known) if trace.is_profile else None
    devices: tuple[DeviceSummary, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    if run is not None and whole is not None:
        phases = phase_times(trace, whole, host, activity)
        devices = tuple(
            summarize_device(trace, device, host, run=run, window=run if each == run else each, activity=activity)
            for device, each in windows.items()
        )
    whole_run = steps is None and window is None
    reliable = health.reliable if health else trace.complete
    tokens = _tokens(trace, whole, whole_run=whole_run)
    return Summary(
        mode=trace.mode,
        engine=trace.meta.engine,
        device_name=trace.meta.device,
        evidence=trace.evidence,
        activity=activity,
        complete=trace.complete,
        reliable=reliable,
        warnings=(*_warnings(trace, devices, activity), *(health.warnings if health else ())),
        health=dict(health.counts if health else trace.meta.health) | _over_devices(devices),
        window=whole,
        devices=devices,
        phases=phases,
        one_offs=one_offs(trace),
        tokens=tokens,
        latency=latency(trace.requests, whole, tokens if whole_run else None) if whole else None,
        lost=lost_work(trace, whole, whole_run=whole_run) if whole else None,
        format=trace.meta.format,
        examination=health,
        step_source=step_source(trace),
        advice=advise(_case(trace, devices, reliable=reliable)),
    )


def _case(trace: Trace, devices: tuple[DeviceSummary, ...], *, reliable: bool) -> Case:
    """What advice rests on: the device that waited longest."""
    device = devices[most_idle([each.idle_ns for each in devices])] if devices else None
    known = device is not None and device.idle_ns is not None
    causes = (total for total in device.causes.totals if total.cause is not Cause.MISSING) if device and known else ()
    lead = device.overlap.launch_lead if device else None
    return Case(
        bound=device.verdict.bound if device else Bound.UNKNOWN,
        engine=engine_of(trace),
        mode=trace.mode,
        reliable=reliable,
        evidence=trace.evidence,
        stacks=records_stacks(trace),
        steps=len(device.steps) if device else 0,
        has_requests=bool(len(trace.requests)),
        largest=next(iter(causes), None),
        late_pct=lead.late_pct if lead else None,
        blocked_pct=100 * device.blocked_ns / device.states.gpu if device and device.states.gpu else 0.0,
        graph_pct=device.overlap.graph_coverage_pct if device else None,
        idle_pct=(device.idle_pct or 0.0) if device else 0.0,
        waits_for_ranks=device is not None and much_exposed(device.exposed_comm_ns, device.window.length_ns),
    )


def _us(ns: int | None) -> float | None:
    return None if ns is None else ns / 1000


def _over_devices(devices: tuple[DeviceSummary, ...]) -> dict[str, float]:
    """Figures of a profile that stand for all devices together."""
    known = [device for device in devices if device.profile and device.idle_pct is not None]
    if not known:
        return {}
    return {
        "mean_idle_pct": sum(device.idle_pct or 0 for device in known) / len(known),
        "not_computing_pct": sum(device.not_computing_pct or 0 for device in known) / len(known),
    }


def _tokens(trace: Trace, window: Window | None, *, whole_run: bool) -> int | None:
    """Tokens generated in the window: as the run itself says, else by the record of its requests."""
    workload = trace.meta.workload or {}
    told = workload.get("tokens") if trace.meta.tokens is None else trace.meta.tokens
    if whole_run and isinstance(told, int):
        return told
    table = trace.requests
    generated = np.isin(table.event, (RequestEvent.FIRST, RequestEvent.TOKEN))
    if window is None or not generated.any():
        return None
    within = (table.time_ns >= window.start_ns) & (table.time_ns <= window.end_ns)
    return int((generated & within).sum())


def _warnings(trace: Trace, devices: tuple[DeviceSummary, ...], activity: Activity) -> Iterator[str]:
    if not trace.complete and not trace.is_profile:
        yield "incomplete trace: the run was cut short or the file truncated; the figures cover what is there"
    lost = trace.meta.health.get("n_dropped", 0)
    if lost and not trace.is_profile:
        yield f"{counted(int(lost), 'event')} of the file could not be read: left out"
    if not trace.is_profile:
        yield from short_of_cores(trace.meta)
    profiled = trace.meta.cupti
    if profiled is not None and profiled.steps is not None:
        first, last = profiled.steps
        yield f"steps {first} to {last - 1} ran under a profiler ({profiled.file}) and are left out"
    if not devices and not trace.is_profile:  # of a profile its examination says so
        yield "no span on a device: idle time is unknown"
    elif devices and trace.on_device.all():
        yield "no span of the host: what the device waited for is unknown"
    for device in devices:
        if device.idle_ns is None:
            nothing = "no compute" if activity == "compute" else "nothing"
            yield f"device {device.device} ran {nothing} in the window: its idle time is unknown"
        elif not device.states.host_known and device.understood:
            share = 100 * device.states.untraced / device.window.length_ns
            yield f"the host is not recorded for {percent(share)} of the time: whether it worked then is unknown"
        if device.missing_ns:
            rest, idle = duration(device.window.length_ns - device.missing_ns), percent(device.idle_pct_excl_missing)
            yield f"records are missing; of the {rest} that are recorded whole the GPU was idle {idle}"
    if trace.evidence == "unknown" and devices:
        yield "the file does not say how it was measured: what counts as active, and how exactly, is unknown"
    if trace.evidence == "cuda_events" and devices and trace.meta.clock_error_ns is None:
        yield "no clock error stated: the edges of a gap may be off by microseconds"
