"""All figures of one device in one window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import Blame, Cause, blame_gaps
from cbprof.analysis.accounting.cause_tree import Causes, causes, in_words
from cbprof.analysis.accounting.device_time import device_time, graph_launches
from cbprof.analysis.accounting.gaps import LONGEST_GAPS, GapEnds, Gaps, WhichGaps, find_gaps, gap_ends, gaps_within
from cbprof.analysis.accounting.host import HostTimeline
from cbprof.analysis.accounting.idle import idle_ns, idle_pct
from cbprof.analysis.accounting.intervals import EMPTY
from cbprof.analysis.accounting.segments import NO_SEGMENTS, Segments, over_context, over_time
from cbprof.analysis.accounting.states import Activity, StateTotals, states
from cbprof.analysis.accounting.steps import StepTimes, step_times, with_host_in
from cbprof.analysis.accounting.window import Window
from cbprof.analysis.profiles.device_work import Profile, profile
from cbprof.analysis.verdict.blocked import blocked
from cbprof.analysis.verdict.one_off import one_off_idle_ns
from cbprof.analysis.verdict.overlap import Overlap, overlap
from cbprof.analysis.verdict.shortened import shortened
from cbprof.analysis.verdict.verdict import Findings, Verdict, judge
from cbprof.trace import NONE, Int64, Trace


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSummary:
    """One device in one window. Times in nanoseconds.

    ``active_ns`` is its compute, ``busy_ns`` everything it ran, ``kernel_busy_ns`` compute and collectives (without
    graphs that were recorded as a whole), ``exposed_comm_ns`` collectives that no compute covered. ``idle_ns``, the
    states and the gaps follow the summary's activity.
    ``idle_ns`` is None where the window holds no span of that activity, since nothing is known then.
    ``blocked_ns``: of the active time, while the host sat in a blocking wait.
    ``n_graph_launches`` is None where the evidence cannot tell. ``one_off_idle_ns`` is the idle time that graph
    captures and warm-up cost. ``missing_ns`` is that in which records are missing: it is not known to be idle.
    ``device_name``: what the file calls the device, where that is not its number.
    ``understood``: False where nothing is said that rests on launches, such as the four states.
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
    ends: GapEnds
    blame: Blame
    causes: Causes
    steps: StepTimes
    overlap: Overlap
    one_off_idle_ns: int
    over_time: Segments
    over_context: Segments
    verdict: Verdict
    blocked_ns: int
    understood: bool = True
    missing_ns: int = 0
    profile: Profile | None = None
    device_name: str | None = None

    @property
    def idle_pct(self) -> float | None:
        """100 x idle / window."""
        return idle_pct(self.idle_ns, self.window.length_ns)

    @property
    def known_states(self) -> StateTotals | None:
        """The states; None where the idle time is unknown."""
        return None if self.idle_ns is None else self.states

    @property
    def not_computing_pct(self) -> float | None:
        """The share of the window in which no kernel but collectives ran; for the trace of a profiler."""
        if self.profile is None:
            return None
        return idle_pct(self.window.length_ns - self.profile.compute_busy_ns, self.window.length_ns)

    @property
    def idle_pct_excl_overhead(self) -> float | None:
        """The idle share without the profiler's own overhead, in the idle time as in the window; None without any."""
        if self.idle_ns is None or self.profile is None or not self.profile.overhead_ns:
            return None
        return idle_pct(self.profile.idle_outside_ns, self.window.length_ns - self.profile.overhead_ns)

    @property
    def idle_pct_excl_missing(self) -> float | None:
        """The idle share without the time in which records are missing; None where none are."""
        if self.idle_ns is None or not self.missing_ns:
            return None
        return idle_pct(self.idle_ns - self.missing_ns, self.window.length_ns - self.missing_ns)

    @property
    def idle_pct_excl_one_off(self) -> float | None:
        """The same without graph captures and warm-up, in the idle time as in the window."""
        if self.idle_ns is None:
            return None
        return idle_pct(self.idle_ns - self.one_off_idle_ns, self.window.length_ns - self.one_off_idle_ns)

    @property
    def starved_ns(self) -> int:
        """Idle time in which no request was there to be served."""
        return sum(total.ns for total in self.causes.totals if total.cause is Cause.STARVED)

    @property
    def ceiling_ns(self) -> int | None:
        """The time left if all exposed host time vanished: the device's active time, and what it waited for requests.

        Time in which records are missing is not known to be idle, and stays.
        """
        if self.idle_ns is None:
            return None
        return self.window.length_ns - self.idle_ns + self.missing_ns + self.starved_ns

    @property
    def speedup_bound(self) -> float | None:
        """Window / ceiling: what overlapping host and device perfectly could bring at most."""
        return self.window.length_ns / self.ceiling_ns if self.ceiling_ns else None

    def to_json(self, gaps: WhichGaps = "longest") -> dict[str, Any]:
        """Times are integer nanoseconds on the file's own time axis. What is undefined is None, never 0 or 100."""
        rows = np.arange(len(self.gaps)) if gaps == "all" else self.gaps.longest(LONGEST_GAPS)
        known = self.idle_ns is not None
        percentiles = {f"p{percent}": self.gaps.percentile_ns(percent) for percent in (50, 90, 99)}
        return {
            "device": self.device if self.device_name is None else self.device_name,
            "rank": self.rank,
            "window_ns": [self.window.start_ns, self.window.end_ns] if self.window.recorded else None,
            "active_ns": self.active_ns,
            "busy_ns": self.busy_ns,
            "kernel_busy_ns": self.kernel_busy_ns,
            "comm_busy_ns": self.comm_busy_ns,
            "exposed_comm_ns": self.exposed_comm_ns,
            "idle_ns": self.idle_ns,
            "idle_pct": self.idle_pct,
            "idle_pct_excl_overhead": self.idle_pct_excl_overhead,
            "missing_ns": self.missing_ns if known else None,
            "idle_pct_excl_missing": self.idle_pct_excl_missing,
            "n_gpu_events": self.n_gpu_events,
            "n_streams": self.n_streams,
            "n_graph_launches": self.n_graph_launches,
            "n_gaps": len(self.gaps) if known or not self.window.recorded else None,
            "longest_gap_ns": self.gaps.longest_ns if known else None,
            "causes": [{"name": part.in_words, "ns": part.ns} for part in self.causes.totals] if known else [],
            "cause_tree": [branch.to_json() for branch in self.causes.tree] if known else [],
            "gaps": [*self.gaps_to_json(rows)] if known else [],
            "states_ns": self.states.to_json(self.understood) if known else None,
            "untraced_ns": {"gpu_active": self.states.untraced_active, "gpu_idle": self.states.untraced_idle}
            if known
            else None,
            "ceiling_ns": self.ceiling_ns,
            "speedup_bound": self.speedup_bound,
            "gap_percentiles_ns": percentiles if known else None,
            "one_off_idle_ns": self.one_off_idle_ns if known else None,
            "idle_pct_excl_one_off": self.idle_pct_excl_one_off,
            "overlap": self.overlap.to_json() if known else None,
            "over_time": [segment.to_json() for segment in self.over_time] if known else [],
            "over_context": [segment.to_json() for segment in self.over_context] if known else [],
            "device_work": self.work_to_json(),
            "verdict": self.verdict.to_json(),
            **(self.profile.to_json(self.not_computing_pct, gaps) if self.profile else {}),
        }

    def work_to_json(self) -> list[dict[str, Any]]:
        """What it ran, kernel by kernel; empty where that was not recorded."""
        if self.profile is None:
            return []
        return [kernel.to_json(self.profile.sum_gpu_ns, len(self.steps)) for kernel in self.profile.kernels]

    def gaps_to_json(self, rows: Int64) -> Iterator[dict[str, Any]]:
        """Some gaps. ``host_late_ns``, ``in_launch_ns`` and ``queue_ns`` sum to one: where it lies around the launch.

        They are None where no launch is known. ``cause_ns`` sums to it, too: why, by the names of ``causes``.
        ``blame_ns`` has the innermost names of what else than launching and queueing passed the time (see
        :class:`Blame`). ``ended_by``: the device span that ended it and its launch, by name; ``step``: of it.
        """
        gaps = self.gaps
        parts = {"host_late_ns": gaps.host_late_ns, "in_launch_ns": gaps.in_launch_ns, "queue_ns": gaps.queue_ns}
        for row, why in zip(rows.tolist(), self.causes.in_gaps(rows), strict=True):
            yield {
                "start_ns": int(gaps.start[row]),
                "end_ns": int(gaps.end[row]),
                **{name: int(part[row]) if gaps.known[row] else None for name, part in parts.items()},
                "cause_ns": in_words(why),
                "blame_ns": self.blame.to_json(row),
                "step": int(gaps.step[row]) if gaps.step[row] != NONE else None,
                "ended_by": self.ends.of_gap(row)._asdict(),
            }


def summarize_device(
    trace: Trace,
    device: int,
    host: HostTimeline,
    *,
    run: Window,
    window: Window,
    activity: Activity,
) -> DeviceSummary:
    """The figures of a device in ``window``, which lies in ``run``."""
    time = device_time(trace, device, window)
    idle = idle_ns(trace, device, window, activity)
    in_run = states(trace, run, device, activity, host)
    here = in_run.within(window)
    recorded = profile(trace, here, host) if trace.is_profile else None
    gaps = find_gaps(trace, in_run, host, activity)
    steps = step_times(trace, in_run, gaps, host).starting_in(window)
    if window != run:
        gaps = gaps_within(trace, gaps, here, host, activity)
    ranks = {lane.rank for lane in trace.lanes if lane.device == device}
    totals = here.totals()
    blame = blame_gaps(trace, device, gaps, host)
    found = causes(trace, blame, host)
    once_ns = one_off_idle_ns(trace, device, host, gaps, blame)
    missing_ns = host.known.missing.get(device, EMPTY).intersect(here.gaps).total_ns
    waiting = blocked(trace, here, host)
    overlapped = overlap(trace, totals, steps)
    findings = Findings(
        evidence_level=trace.evidence,
        n_gpu_events=time.n_events,
        states=totals,
        gaps=gaps,
        causes=[total for total in found.totals if total.cause is not Cause.MISSING],
        one_off_idle_ns=once_ns,
        missing_ns=missing_ns,
        overlap=overlapped,
        blocked=waiting,
        shortened=shortened(
            here,
            steps if window == run else with_host_in(window, steps, trace, in_run, host),
            time.exposed_comm,
        )
        if device in host.understood
        else None,
        comm_ns=time.comm_busy_ns,
        exposed_comm_ns=time.exposed_comm.total_ns,
    )
    return DeviceSummary(
        device=device,
        rank=max(*ranks, 0),
        window=window,
        active_ns=time.active_ns,
        busy_ns=time.busy_ns,
        kernel_busy_ns=time.kernel_busy_ns,
        comm_busy_ns=time.comm_busy_ns,
        exposed_comm_ns=time.exposed_comm.total_ns,
        idle_ns=idle,
        n_gpu_events=time.n_events,
        n_streams=time.n_streams,
        n_graph_launches=_graph_launches(trace, window),
        states=totals,
        gaps=gaps,
        ends=gap_ends(trace, gaps),
        blame=blame,
        causes=found,
        steps=steps,
        overlap=overlapped,
        one_off_idle_ns=once_ns,
        over_time=NO_SEGMENTS if idle is None else over_time(here, steps),
        over_context=NO_SEGMENTS if idle is None else over_context(here, steps),
        verdict=judge(None if idle is None else findings),
        blocked_ns=waiting.ns,
        understood=device in host.understood,
        missing_ns=missing_ns,
        profile=recorded,
        device_name=trace.meta.device_names.get(device),
    )


def _graph_launches(trace: Trace, window: Window) -> int | None:
    """Calls of cudaGraphLaunch and its kin; only records of the CUDA runtime tell."""
    if trace.evidence != "cupti":
        return None
    within = (trace.start_ns >= window.start_ns) & (trace.start_ns < window.end_ns)
    return int((within & graph_launches(trace)).sum())
