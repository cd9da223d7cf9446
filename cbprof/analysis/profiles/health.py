"""Whether a profiler's trace can be trusted: what is odd about it, counted, before any figure is believed.

All counts are over the whole trace, whatever window the figures are of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.cores import short_of_cores
from cbprof.analysis.accounting.host import launches
from cbprof.analysis.accounting.intervals import union_of
from cbprof.analysis.accounting.launched import LEAST_JOINED_PCT, ODD_FROM_PCT, Clocks, Known, joined, known
from cbprof.analysis.accounting.steps import how_steps_are_known, step_source
from cbprof.analysis.accounting.window import GPU_SPAN, device_windows
from cbprof.names import is_function
from cbprof.numbers import counted, duration, percent
from cbprof.trace import NONE, Int64, Kind, Trace

SCHEMA = 1
_LAUNCH = re.compile(r"(cuda|cu|hip)[A-Za-z]*Launch")
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)[A-Za-z]*GraphLaunch")
_OF_SEVERAL = re.compile(r"MultiDevice")  # cooperative launches on several devices


@dataclass(frozen=True, slots=True, eq=False)
class Health:
    """``counts`` under stable names, ``warnings`` in plain words. ``reliable``: no reason to distrust the figures.

    ``launch_of``: for each span of ``trace`` the call that launched it, or -1. ``twins``: mask of the device spans that
    repeat another one exactly. ``launches_known``: False where nobody knows, at least in part, what the device waited
    for.
    """

    trace: Trace
    counts: Mapping[str, float]
    warnings: tuple[str, ...]
    reliable: bool
    launch_of: Int64
    twins: npt.NDArray[np.bool_]
    launches_known: bool = True

    def to_json(self, file: str | None = None) -> dict[str, Any]:
        """Plain data with stable keys: ``cbprof doctor --json``."""
        return {
            "schema": SCHEMA,
            "file": file,
            "format": self.trace.meta.format,
            "reliable": self.reliable,
            "warnings": list(self.warnings),
            "health": dict(self.counts),
            "steps": how_steps_are_known(step_source(self.trace)),
        }

    def details(self) -> dict[str, Any]:
        """Lists with an entry for each event or launch: long, so only for those who ask. Times in microseconds.

        Launch delays come in the order of (start, end) of the device events.
        """
        trace = self.trace
        gpu = np.flatnonzero(trace.on_device & (self.launch_of != NONE))
        gpu = gpu[np.lexsort((trace.end_ns[gpu], trace.start_ns[gpu]))]
        delay = (trace.start_ns[gpu] - trace.start_ns[self.launch_of[gpu]]) / 1000
        link, count = np.unique(trace.link[trace.on_device & (trace.link != NONE)], return_counts=True)
        return {
            "launch_delay_us": delay.tolist(),
            "launch_delay_us_known": delay.tolist(),
            "launch_delay_us_dedup": delay[~self.twins[gpu]].tolist(),
            "gpu_events_per_correlation": dict(zip(map(str, link.tolist()), count.tolist(), strict=True)),
        }


@dataclass(slots=True)
class _Findings:
    counts: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    reliable: bool = True
    launches_known: bool = True

    def count(
        self, name: str, number: int, of: tuple[str, str] | None = None, rest: str = "", *, doubt: bool = False
    ) -> None:
        """Note a number; where it is not 0, with a warning that may cast doubt on figures.

        ``of``: what was counted, with its verb, for one and for many; ``rest``: of the sentence.
        """
        self.counts[name] = number
        if number and of:
            self.warnings.append(counted(number, *of) + rest)
        self.reliable &= not (number and doubt)

    def doubt(self, warning: str) -> None:
        self.warnings.append(warning)
        self.reliable = False


def examine(trace: Trace, what: Known | None = None) -> Health:
    """Examine the trace of a profiler. Pass what is known of its launches, if it is at hand."""
    what = known(trace, launches(trace)) if what is None else what
    launch_of = what.launch_of
    found = _Findings(reliable=trace.complete and trace.meta.reliable)
    found.counts |= trace.meta.health
    found.warnings += trace.meta.warnings
    gpu = np.flatnonzero(trace.on_device)
    twins = _twins(trace, gpu)
    single = gpu[~twins[gpu]]
    found.warnings += short_of_cores(trace.meta)
    found.counts["complete"] = trace.complete
    if not trace.complete:
        found.warnings.append("the file was cut or is damaged: the figures cover what is there")
    dropped, damaged = found.counts.get("n_dropped", 0), found.counts.get("n_damaged", 0)
    found.count("n_dropped", int(dropped), ("event has", "events have"), " no usable times, or no end: left out")
    found.count(
        "n_damaged", int(damaged), ("place", "places"), " cannot be read, and what stood there is lost", doubt=True
    )
    found.count("n_gpu_events", len(gpu))
    found.count("n_gpu_events_dedup", len(single))
    found.count(
        "n_duplicates",
        len(gpu) - len(single),
        ("device event occurs", "device events occur"),
        " twice, which adds no busy time",
    )
    found.count("n_devices", len(trace.devices))
    found.count("n_streams", len(np.unique(trace.lane_id[gpu])))
    found.count("n_zero_duration", int((trace.dur_ns[gpu] == 0).sum()))
    if not len(gpu) and trace.is_profile:
        found.doubt("no span on a device: idle time is unknown")
    _examine_streams(trace, single, found)
    if what.clocks is not None:
        _examine_clocks(trace, gpu, launch_of, what.clocks, found)
    _examine_missing(trace, what, found)
    _examine_joins(trace, launch_of, found)
    _examine_launches(trace, single, launch_of, found)
    _examine_stacks(trace, found)
    overhead = trace.mask(kinds=(Kind.CPU_OVERHEAD,))
    found.count("n_overhead", int(overhead.sum()))
    found.count("overhead_ns", union_of(trace, overhead).total_ns)
    return Health(trace, found.counts, tuple(found.warnings), found.reliable, launch_of, twins, found.launches_known)


def _examine_stacks(trace: Trace, found: _Findings) -> None:
    """Python stacks make every call of a function dearer, and with it all that the host does."""
    functions = np.array([is_function(name) for name in trace.names], dtype=bool)
    host = ~trace.on_device
    number = int(functions[trace.name_id[host]].sum())
    found.counts["n_functions"] = number
    if 2 * number > host.sum():
        said = counted(number, "span is a Python function", "spans are Python functions")
        found.warnings.append(f"{said}: recording each costs host time, so the GPU waits longer than without stacks")


def _twins(trace: Trace, gpu: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the device spans that have the same times, name, lane and link as one before them."""
    twins = np.zeros(len(trace), dtype=bool)
    start, dur = trace.start_ns[gpu], trace.dur_ns[gpu]
    # Sorted by (start, longest first): equal times stand together, and few spans have them.
    same = (start[1:] == start[:-1]) & (dur[1:] == dur[:-1])
    suspects = gpu[np.concatenate(([False], same)) | np.concatenate((same, [False]))] if len(gpu) else gpu
    if len(suspects):
        columns = (trace.start_ns, trace.dur_ns, trace.link, trace.name_id, trace.lane_id, trace.kind)
        table = np.stack([column[suspects].astype(np.int64) for column in columns], axis=1)
        _, first = np.unique(table, axis=0, return_index=True)
        twins[np.delete(suspects, first)] = True
    return twins


def _examine_streams(trace: Trace, gpu: Int64, found: _Findings) -> None:
    """Streams run one thing after another: what overlaps on one is worth a look, what swallows others is not true."""
    n_overlaps = n_runaway = 0
    for lane in np.unique(trace.lane_id[gpu]):
        rows = gpu[(trace.lane_id[gpu] == lane) & (trace.dur_ns[gpu] > 0)]
        start, end, link = trace.start_ns[rows], trace.end_ns[rows], trace.link[rows]
        reach = np.maximum.accumulate(end)
        n_overlaps += int((start[1:] < reach[:-1]).sum())
        # Branches of one graph may run at a time, and the next kernel may begin before the one before it ends; but
        # nothing that another launch brought runs from beginning to end within an event of the same stream.
        swallows = (end[1:] <= end[:-1]) & (start[1:] < end[:-1]) & ((link[1:] != link[:-1]) | (link[1:] == NONE))
        n_runaway += int((swallows & (2 * (start[1:] - start[:-1]) < end[:-1] - start[:-1])).sum())
    found.count("same_stream_overlaps", n_overlaps)
    found.count(
        "n_runaway",
        n_runaway,
        ("device event lasts", "device events last"),
        " until after the events that follow on the same stream: a duration that ran away; "
        "the figures without it are under clip_to_next_start",
        doubt=True,
    )


def _examine_clocks(trace: Trace, gpu: Int64, launch_of: Int64, clocks: Clocks, found: _Findings) -> None:
    launched = gpu[launch_of[gpu] != NONE]
    delay = trace.start_ns[launched] - trace.start_ns[launch_of[launched]]
    found.count(
        "n_negative_launch_delay",
        int((delay < 0).sum()),
        ("device event starts", "device events start"),
        f" before the call that launched it, by up to {-int(delay.min(initial=0)) / 1000:g} us: "
        "the clocks of host and device disagree; times are kept as recorded",
    )
    waits = f"{counted(clocks.n_waits, 'call that waits', 'calls that wait')} for a device"
    found.count(
        "n_early_returns",
        clocks.n_early_returns,
        (f"of {waits} returns", f"of {waits} return"),
        " before its work has ended",
    )
    if not clocks.agree:
        found.doubt(
            f"the clocks of host and device disagree by at least {clocks.error_ns / 1000:g} us: what the device "
            "waited for, and what was hidden, is unknown"
        )


def _examine_missing(trace: Trace, what: Known, found: _Findings) -> None:
    found.counts["n_missing_stretches"] = sum(len(each) for each in what.missing.values())
    found.counts["missing_ns"] = sum(each.total_ns for each in what.missing.values())
    for device, each in what.missing.items():
        window, on = device_windows(trace, GPU_SPAN)[device], _on(trace, device)
        share = percent(100 * each.total_ns / window.length_ns)
        longest = int(each.length_ns.argmax())
        where = f"{duration(int(each.length_ns[longest]))} from {int(each.start[longest]) / 1000:.0f} us on"
        found.warnings.append(
            f"records are missing{on}: for {share} of the time (the longest stretch is {where}) launched "
            "work stood at the head of its stream and did not begin, though nothing is recorded that ran"
        )
        found.reliable &= 100 * each.total_ns < ODD_FROM_PCT * window.length_ns


def _on(trace: Trace, device: int) -> str:
    """Which device, where there are several."""
    return f" on device {trace.meta.device_names.get(device, device)}" if len(trace.devices) > 1 else ""


def _examine_joins(trace: Trace, launch_of: Int64, found: _Findings) -> None:
    if not trace.is_profile:
        return  # launches are known by their step
    if trace.on_device.all():
        found.launches_known = False
        return
    orphan = _orphans(trace, launch_of)
    for device, each in joined(trace, launch_of).items():
        on = _on(trace, device)
        n_orphans = int((orphan & trace.mask(device=device)).sum()) if orphan.any() else 0
        if each.enough and n_orphans and 100 * n_orphans >= ODD_FROM_PCT * each.n_spans:
            found.launches_known = False
            found.warnings.append(
                f"of {counted(each.n_spans, 'device event')}{on} {n_orphans:,} have no launch in the file, though "
                "earlier ones on their stream have: what the GPU waited for there is unknown"
            )
        if not each.enough:
            found.doubt(
                f"{each.n_joined:,} of {counted(each.n_spans, 'device event')}{on} are joined to their launch, less "
                f"than {LEAST_JOINED_PCT} %: what the device waited for, and what was hidden, is unknown"
            )


def _orphans(trace: Trace, launch_of: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the device spans of unknown launch that were not launched before the recording began.

    A stream keeps its order, so that what it ran after the first span of known launch was launched later.
    """
    first = np.full(len(trace.lanes), np.iinfo(np.int64).max)
    rows = np.flatnonzero(launch_of != NONE)
    np.minimum.at(first, trace.lane_id[rows], trace.start_ns[rows])
    orphan: npt.NDArray[np.bool_] = trace.on_device & (launch_of == NONE) & (trace.start_ns >= first[trace.lane_id])
    return orphan


def _examine_launches(trace: Trace, gpu: Int64, launch_of: Int64, found: _Findings) -> None:
    """``gpu``: the device spans, each once."""
    launch = launch_of[gpu]
    known = launch != NONE
    n_launched = np.bincount(launch[known], minlength=len(trace))
    called = n_launched > 0
    found.count("n_gpu_without_launch", int((~known).sum()))
    found.counts["launch_api_us"] = int(trace.dur_ns[called].sum()) / 1000
    calls, of_graphs = _calls(trace, _LAUNCH), _calls(trace, GRAPH_LAUNCH)
    answered = np.isin(trace.link, trace.link[gpu]) & (trace.link != NONE)  # a wrapper shares the id of what it calls
    idle_calls = np.flatnonzero(calls & (of_graphs | (trace.link != NONE)) & ~answered)
    plain = np.flatnonzero(calls & ~of_graphs)
    found.count("n_graph_launches", int(of_graphs.sum()))
    found.count("n_launches_without_gpu_events", len(idle_calls))
    found.count(
        "n_graph_launches_without_gpu_events",
        int(of_graphs[idle_calls].sum()),
        ("graph launch has", "graph launches have"),
        " no device events: what they ran was launched, not recorded, and shows as idle",
        doubt=True,
    )
    last = trace.start_ns[launch[known]].max(initial=np.iinfo(np.int64).min)
    plain_launches = counted(len(plain), "plain launch", "plain launches")
    lost = int((~of_graphs[idle_calls] & (trace.start_ns[idle_calls] < last)).sum())
    found.count(
        "n_lost_launches",
        lost,
        (f"of {plain_launches} has", f"of {plain_launches} have"),
        " no device event, though later ones have: what was launched was not recorded, and shows as idle",
        doubt=100 * lost >= ODD_FROM_PCT * len(plain),
    )
    of_one = plain[~np.isin(trace.name_id[plain], trace.ids_where(_OF_SEVERAL.search, (Kind.CPU_WORK,)))]
    shared = int((n_launched[of_one] > 1).sum())
    found.count(
        "n_shared_launches",
        shared,
        (f"of {plain_launches} owns", f"of {plain_launches} own"),
        " several kernels, where one launches one: ids were used twice",
        doubt=100 * shared >= ODD_FROM_PCT * len(plain),
    )


def _calls(trace: Trace, name: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Mask of the host's calls whose name matches."""
    ids = trace.ids_where(name.match, (Kind.CPU_WORK,))
    mask: npt.NDArray[np.bool_] = (trace.kind == Kind.CPU_WORK) & np.isin(trace.name_id, ids)
    return mask
