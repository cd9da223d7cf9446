"""All figures of a trace at once: what a report, a table and a check are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbprof.analysis.blame import Blame, blame_gaps
from cbprof.analysis.gaps import Gaps, find_gaps
from cbprof.analysis.host import HostTimeline, host_timeline
from cbprof.analysis.intervals import Intervals, union
from cbprof.analysis.phases import PhaseTime, nearest_rank, phase_times
from cbprof.analysis.states import ACTIVITY_KINDS, Activity, StateTotals, states
from cbprof.analysis.steps import StepTimes, step_times
from cbprof.analysis.window import Window, run_window, steps_window
from cbprof.trace import Kind, RequestEvent, Trace

KERNELS = (Kind.GPU_COMPUTE, Kind.GPU_COMM)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSummary:
    """One device in one window. Times in nanoseconds.

    ``active_ns`` is its compute, ``busy_ns`` everything it ran, ``kernel_busy_ns`` compute and collectives,
    ``exposed_comm_ns`` collectives that no compute covered. ``idle_ns``, the states and the gaps follow the summary's
    activity. ``idle_ns`` is None where the window holds no span of that activity, since nothing is known then.
    ``n_graph_launches`` is None where the evidence cannot tell.
    """

    device: int
    rank: int
    window: Window
    active_ns: int
    busy_ns: int
    kernel_busy_ns: int
    comm_busy_ns: int
    exposed_comm_ns: int
    idle_ns: int | None
    n_gpu_events: int
    n_streams: int
    n_graph_launches: int | None
    states: StateTotals
    gaps: Gaps
    blame: Blame
    steps: StepTimes

    @property
    def idle_pct(self) -> float | None:
        """100 x idle / window."""
        return None if self.idle_ns is None else 100 * self.idle_ns / self.window.length_ns

    @property
    def ceiling_ns(self) -> int | None:
        """The time left if all exposed host time vanished: the device's active time, and nothing else."""
        return None if self.idle_ns is None else self.window.length_ns - self.idle_ns

    @property
    def speedup_bound(self) -> float | None:
        """Window / ceiling: what overlapping host and device perfectly could bring at most."""
        return self.window.length_ns / self.ceiling_ns if self.ceiling_ns else None


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The figures of a trace. ``window`` is None, and ``devices`` empty, where nothing ran on a device."""

    mode: str | None
    engine: str | None
    device_name: str | None
    evidence: str
    activity: Activity
    complete: bool
    reliable: bool
    warnings: tuple[str, ...]
    health: Mapping[str, Any]
    window: Window | None
    devices: tuple[DeviceSummary, ...]
    phases: tuple[PhaseTime, ...]
    tokens: int | None

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
        """Nearest-rank percentile of the time from one compute's start to the next, on the first device."""
        period = self.devices[0].steps.period_ns if self.devices else ()
        return nearest_rank(np.sort(period), percent) if len(period) else None


def summarize(
    trace: Trace, *, steps: tuple[int | None, int | None] | None = None, activity: Activity = "compute"
) -> Summary:
    """The figures of a whole run, or of ``steps`` (first, last), last exclusive and None for an open end.

    Raises UsageError where the trace has no such steps.
    """
    run = run_window(trace)
    window = run if steps is None else steps_window(trace, *steps)
    host = host_timeline(trace)
    devices: tuple[DeviceSummary, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    if run is not None and window is not None:
        devices = tuple(
            _device(trace, device, host, run=run, window=window, activity=activity) for device in trace.devices
        )
        phases = phase_times(trace, window, host, activity)
    return Summary(
        mode=trace.mode,
        engine=_text(trace, "engine"),
        device_name=_text(trace, "device"),
        evidence=trace.evidence,
        activity=activity,
        complete=trace.complete,
        reliable=trace.complete,
        warnings=tuple(_warnings(trace, devices, activity)),
        health=dict(trace.meta.get("health", {})),
        window=window,
        devices=devices,
        phases=phases,
        tokens=_tokens(trace, window, whole_run=steps is None),
    )


def _device(
    trace: Trace, device: int, host: HostTimeline, *, run: Window, window: Window, activity: Activity
) -> DeviceSummary:
    in_run = states(trace, run, device, activity, host)
    run_gaps = find_gaps(trace, in_run, host, activity)
    here = in_run.within(window)
    gaps = run_gaps if window is run else find_gaps(trace, here, host, activity)

    def ran(*kinds: Kind) -> Intervals:
        rows = trace.mask(kinds=kinds, device=device)
        return union(trace.start_ns[rows], trace.end_ns[rows]).clip(window.start_ns, window.end_ns)

    within = (trace.start_ns < window.end_ns) & ((trace.end_ns > window.start_ns) | (trace.start_ns >= window.start_ns))
    events = np.flatnonzero(within & trace.mask(device=device) & trace.on_device)
    counted = np.isin(trace.kind[events], ACTIVITY_KINDS[activity]).any()
    ranks = {lane.rank for lane in trace.lanes if lane.device == device}
    compute, kernels = ran(Kind.GPU_COMPUTE), ran(*KERNELS)
    return DeviceSummary(
        device=device,
        rank=max(*ranks, 0),
        window=window,
        active_ns=compute.total_ns,
        busy_ns=ran(*ACTIVITY_KINDS["busy"]).total_ns,
        kernel_busy_ns=kernels.total_ns,
        comm_busy_ns=ran(Kind.GPU_COMM).total_ns,
        exposed_comm_ns=kernels.subtract(compute).total_ns,
        idle_ns=gaps.total_ns if counted else None,
        n_gpu_events=len(events),
        n_streams=len(np.unique(trace.lane_id[events])),
        n_graph_launches=_graph_launches(trace, window),
        states=here.totals(),
        gaps=gaps,
        blame=blame_gaps(trace, device, gaps, host),
        steps=step_times(trace, in_run, run_gaps, host).starting_in(window),
    )


def _graph_launches(trace: Trace, window: Window) -> int | None:
    """Calls of cudaGraphLaunch and its kin; only records of the CUDA runtime tell."""
    if trace.evidence != "cupti":
        return None
    ids = [index for index, name in enumerate(trace.names) if "graphlaunch" in name.lower()]
    within = (trace.start_ns >= window.start_ns) & (trace.start_ns < window.end_ns)
    return int((within & ~trace.on_device & np.isin(trace.name_id, ids)).sum())


def _tokens(trace: Trace, window: Window | None, *, whole_run: bool) -> int | None:
    """Tokens generated in the window: as the run itself says, else by the record of its requests."""
    workload = trace.meta.get("workload")
    told = trace.meta.get("tokens", workload.get("tokens") if isinstance(workload, Mapping) else None)
    if whole_run and isinstance(told, int):
        return told
    table = trace.requests
    generated = np.isin(table.event, (RequestEvent.FIRST, RequestEvent.TOKEN))
    if window is None or not generated.any():
        return None
    within = (table.time_ns >= window.start_ns) & (table.time_ns <= window.end_ns)
    return int((generated & within).sum())


def _warnings(trace: Trace, devices: tuple[DeviceSummary, ...], activity: Activity) -> Iterator[str]:
    if not trace.complete:
        yield "incomplete trace: the run was cut short or the file truncated; the figures cover what is there"
    lost = trace.meta.get("health", {}).get("n_dropped", 0)
    if lost:
        yield f"{lost} events of the file could not be read and are left out"
    if not devices:
        yield "no span on a device: idle time is unknown"
    elif trace.on_device.all():
        yield "no span of the host: what the device waited for is unknown"
    for device in devices:
        if device.idle_ns is None:
            nothing = "no compute" if activity == "compute" else "nothing"
            yield f"device {device.device} ran {nothing} in the window: its idle time is unknown"
    if trace.evidence == "cuda_events" and devices and trace.meta.get("clock_error_ns") is None:
        yield "no clock error stated: the edges of a gap may be off by microseconds"


def _text(trace: Trace, key: str) -> str | None:
    value = trace.meta.get(key)
    return value if isinstance(value, str) else None
