"""What would it bring? From one trace, the async run that nobody has written yet, or what would be left of its waits.

The measured durations are replayed in the order of the async loop (:mod:`cbprof.analysis.predict.replay`). A sync trace
gives the async timeline; an async trace gives the same loop again, for what-ifs, and for what stays exposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cbprof.analysis.accounting.blame import NO_REQUESTS
from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.accounting.idle import idle_ns, idle_pct
from cbprof.analysis.accounting.intervals import union_of
from cbprof.analysis.accounting.states import gpu_active
from cbprof.analysis.accounting.window import GPU_SPAN, Window, device_windows, run_window
from cbprof.analysis.predict.durations import Measured, measure, order_of
from cbprof.analysis.predict.predicted_trace import Replayed, in_measured_batches, predicted_trace
from cbprof.analysis.predict.profile import Profile, measure_profile
from cbprof.analysis.predict.profile_replay import replay_profile, replayed_trace
from cbprof.analysis.predict.replay import replay
from cbprof.analysis.predict.serving import Served, serve, service_of
from cbprof.analysis.predict.uncertainty import Doubt, another_run, doubts, interval_of
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.meta import Meta
from cbprof.numbers import counted, percent
from cbprof.trace import NONE, Int64, Kind, Trace, one_of

SCHEMA = 1


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """A predicted run beside the measured one. Times in nanoseconds, windows as in every report.

    ``trace``: the predicted run, evidence ``predicted``. ``ceiling_ns``: the time left if the GPU never waited, as in
    the report of the measured run: its GPU active time, by the speed of the what-if, and what the GPU waited for
    requests, but no more than was predicted.
    ``one_off_ns``: graph captures within the predicted run, once per slot; the predicted time includes them.
    With requests that arrive, or end by stop tokens, it is the sync order without host and copies: a GPU that waits for
    requests still waits.
    ``n_steps``, ``predicted_steps``: batches of either run. ``dropped_tokens``: computed for requests that had ended;
    None where the batches are those that were measured.
    ``host_bound_steps``: the batches whose compute the device still waits for, apart from the first, from those that no
    request had come for, and from those whose own launch or the one before captures a graph.
    ``doubts``: what may make the run shorter or longer than predicted, the weightiest first.
    ``measured_step_ns``, ``predicted_step_ns``: medians from the begin of a step on the host to that of the next.
    ``notes``: what to keep in mind.
    """

    trace: Trace
    what_if: WhatIf
    measured_mode: str | None
    measured_wall_ns: int
    measured_idle_ns: int | None
    predicted_wall_ns: int
    predicted_idle_ns: int | None
    measured_step_ns: int | None
    predicted_step_ns: int | None
    ceiling_ns: int
    one_off_ns: int
    n_steps: int
    predicted_steps: int
    dropped_tokens: int | None
    host_bound_steps: tuple[int, ...]
    doubts: tuple[Doubt, ...]
    notes: tuple[str, ...]

    @property
    def interval_ns(self) -> tuple[int, int]:
        """From the shortest to the longest time that is likely."""
        return interval_of(self.predicted_wall_ns, self.doubts)

    @property
    def speedup(self) -> float:
        """Measured / predicted time."""
        return self.measured_wall_ns / self.predicted_wall_ns if self.predicted_wall_ns else 1.0

    @property
    def measured_idle_pct(self) -> float | None:
        return idle_pct(self.measured_idle_ns, self.measured_wall_ns)

    @property
    def predicted_idle_pct(self) -> float | None:
        return idle_pct(self.predicted_idle_ns, self.predicted_wall_ns)

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        return {
            "schema": SCHEMA,
            "what_if": self.what_if.to_json(),
            "measured_mode": self.measured_mode,
            "measured_wall_ns": self.measured_wall_ns,
            "measured_idle_pct": self.measured_idle_pct,
            "predicted_wall_ns": self.predicted_wall_ns,
            "interval_ns": list(self.interval_ns),
            "doubts": [doubt._asdict() for doubt in self.doubts],
            "predicted_idle_pct": self.predicted_idle_pct,
            "measured_step_p50_ns": self.measured_step_ns,
            "predicted_step_p50_ns": self.predicted_step_ns,
            "speedup": self.speedup,
            "ceiling_ns": self.ceiling_ns,
            "one_off_ns": self.one_off_ns,
            "n_steps": self.n_steps,
            "predicted_steps": self.predicted_steps,
            "dropped_tokens": self.dropped_tokens,
            "host_bound_steps": list(self.host_bound_steps),
            "notes": list(self.notes),
        }


def predict(
    trace: Trace,
    *,
    slots: int | None = None,
    steps_per_sync: int | None = None,
    gpu_speed: float = 1.0,
    scale: Mapping[str, float] | None = None,
    drop: Collection[str] = (),
) -> Prediction:
    """Replay ``trace`` in the async order, with changes (see :class:`WhatIf`; None is its default).

    ``steps_per_sync``: in the multi-step order instead, with a look at the tokens every so many steps.

    Raises UsageError for a phase that the trace does not have, a number that makes no sense, or a trace whose spans do
    not say which step they belong to. Follows the first device and the host lane that launches its work.

    The profile of a profiler is replayed block by block (:mod:`cbprof.analysis.predict.profile`); its windows are those
    of the device, from its first to its last span, and any device work counts as active.
    """
    trace = without_profiled_steps(trace)
    what_if = WhatIf.of(slots=slots, steps_per_sync=steps_per_sync, gpu_speed=gpu_speed, scale=scale, drop=drop)
    if trace.is_profile:
        return _of_profile(measure_profile(trace, what_if), what_if)
    measured = measure(trace, what_if)
    served = _served(measured, what_if)
    replayed = served.replayed if served else _in_measured_batches(measured, what_if)
    schedule = replayed.schedule
    predicted = predicted_trace(measured, replayed, what_if, _metadata(trace, measured.window, what_if))
    window = run_window(predicted) or measured.window
    return Prediction(
        trace=predicted,
        what_if=what_if,
        measured_mode=trace.mode,
        measured_wall_ns=measured.window.length_ns,
        measured_idle_ns=idle_ns(trace, measured.device, measured.window),
        predicted_wall_ns=window.length_ns,
        predicted_idle_ns=idle_ns(predicted, measured.device, window),
        measured_step_ns=_usual_step(measured.batches.launched),
        predicted_step_ns=_usual_step(schedule.before_start),
        ceiling_ns=min(served.ceiling_ns if served else _ceiling_ns(measured, what_if), window.length_ns),
        one_off_ns=int(measured.capture_ns.sum()),
        n_steps=len(measured.batches),
        predicted_steps=len(replayed.step),
        dropped_tokens=served.dropped if served else None,
        host_bound_steps=_host_bound(measured, replayed),
        doubts=doubts(measured, replayed),
        notes=tuple(_notes(measured, served, window)),
    )


def _in_measured_batches(measured: Measured, what_if: WhatIf) -> Replayed:
    start_ns = measured.window.start_ns
    schedule = replay(measured.steps, slots=what_if.slots, together=what_if.together, start_ns=start_ns)
    return in_measured_batches(measured, schedule)


def _served(measured: Measured, what_if: WhatIf) -> Served | None:
    """The run with batches formed again, where another loop would form others; None where none or nobody knows."""
    before = order_of(measured.trace)
    if what_if == before:
        return None
    service = service_of(measured)
    if service is None:
        return None
    late = service.stops_early and (what_if.slots, what_if.together) != (before.slots, before.together)
    bursts = (what_if.together or before.together) and what_if.slots != before.slots  # other requests are preempted
    return serve(measured, service, what_if) if late or service.arrives_later or bursts else None


def _of_profile(profile: Profile, what_if: WhatIf) -> Prediction:
    trace, device = profile.trace, profile.device
    window = device_windows(trace, GPU_SPAN)[device]
    schedule = replay_profile(profile, what_if, int(profile.begin[0]))
    predicted = replayed_trace(profile, schedule, what_if, _metadata(trace, window, what_if))
    afterwards = device_windows(predicted, GPU_SPAN)[device]
    idle = idle_ns(trace, device, window, "busy")
    return Prediction(
        trace=predicted,
        what_if=what_if,
        measured_mode="sync" if profile.slots == 1 else "async",
        measured_wall_ns=window.length_ns,
        measured_idle_ns=idle,
        predicted_wall_ns=afterwards.length_ns,
        predicted_idle_ns=idle_ns(predicted, device, afterwards, "busy"),
        measured_step_ns=_usual_step(profile.begin),
        predicted_step_ns=_usual_step(schedule.before_start),
        ceiling_ns=min(int(what_if.compute_ns(np.array(window.length_ns - (idle or 0)))), afterwards.length_ns),
        one_off_ns=0,
        n_steps=len(profile),
        predicted_steps=len(profile),
        dropped_tokens=None,
        host_bound_steps=schedule.held_up,
        doubts=(another_run(schedule.before_start, every=what_if.slots if what_if.together else 1),),
        notes=tuple(_notes_on_profile(profile)),
    )


def _usual_step(begin: Int64) -> int | None:
    """The median time from the begin of a step to that of the next."""
    return int(np.median(np.diff(begin))) if len(begin) > 1 else None


def _notes_on_profile(profile: Profile) -> Iterator[str]:
    if len(profile.trace.devices) > 1:
        yield f"{counted(len(profile.trace.devices), 'device')}: only device {profile.device} is replayed"
    yield "a profile: steps by their blocking waits; what the profiler itself costs is in both times"
    if not profile.waits.all():
        yield f"{counted(int((~profile.waits).sum()), 'step has', 'steps have')} no blocking wait: nothing waits there"


def _host_bound(measured: Measured, replayed: Replayed) -> tuple[int, ...]:
    schedule, compute = replayed.schedule, replayed.steps.compute
    bound = np.zeros(len(replayed.step), dtype=bool)
    bound[1:] = schedule.compute_ready[1:] > (schedule.compute_start + compute.length)[:-1]
    captures = (measured.capture_ns[replayed.donor] > 0) | (replayed.repeated_ns > 0)
    bound &= (schedule.starved_from == NONE) & ~captures
    bound[1:] &= ~captures[:-1]
    return tuple(replayed.step[bound].tolist())


def _notes(measured: Measured, served: Served | None, predicted: Window) -> Iterator[str]:
    trace = measured.trace
    if len(trace.devices) > 1:
        yield f"{counted(len(trace.devices), 'device')}: only device {measured.device} is replayed"
    if served is not None:
        yield from _notes_on_service(served, measured.window.length_ns, predicted.length_ns)
    elif (measured.steps.not_before_ns != NONE).any():
        yield "requests arrive when they did: batches keep their requests, although a faster engine may form others"
    if (measured.batches.wait == NONE).all():
        yield "no wait spans: the host counts as waiting from its last launch until the device is done"


def _notes_on_service(served: Served, measured_ns: int, predicted_ns: int) -> Iterator[str]:
    service = served.service
    if service.arrives_later:
        yield "requests arrive when they did, and batches are formed again from those that are there"
    if served.dropped:
        requests = len(service.demands)
        output = sum(each.output for each in service.demands) / requests
        change = predicted_ns / measured_ns - 1 if measured_ns else 0.0
        yield (
            f"{output:.1f} tokens a request, and {service.stops_early} of {requests} end by a stop token, seen late: "
            f"{served.dropped / requests:.1f} more are computed for each; "
            f"{'slower' if change > 0 else 'faster'} by {percent(100 * abs(change))}"
        )


def _ceiling_ns(measured: Measured, what_if: WhatIf) -> int:
    """The ceiling of the report on the same file, on a GPU of the what-if's speed: it still waits for requests."""
    window = measured.window
    active = gpu_active(measured.trace, measured.device).clip(window.start_ns, window.end_ns)
    trace = measured.trace
    no_requests = (trace.kind == Kind.CPU_WAIT) & one_of(trace.name_id, trace.ids_of(NO_REQUESTS))
    starved = union_of(trace, no_requests & (trace.lane_id == measured.lane)).clip(window.start_ns, window.end_ns)
    return int(what_if.compute_ns(np.array(active.total_ns))) + starved.subtract(active).total_ns


def _metadata(source: Trace, window: Window, what_if: WhatIf) -> Meta:
    meta = source.meta.changed(
        mode=what_if.mode,
        evidence="predicted",
        clock_error_ns=None,
        device_error_ns=None,
        edges=(),
        health={},
        other_data=None,
    )
    predicted_from = {
        "mode": source.mode,
        "evidence": source.evidence,
        "wall_ns": window.length_ns,
        "what_if": what_if.to_json(),
    }
    return replace(meta, extra={**meta.extra, "predicted_from": predicted_from})
