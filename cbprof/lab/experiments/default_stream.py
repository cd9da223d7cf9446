"""What the default stream does, and to whom."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from cbprof.lab.finding import Finding, NamedTrace, Table, needs_cuda
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, host_spans
from cbprof.numbers import duration
from cbprof.trace import Kind, Trace

# Work on the first stream, then work on the second that has nothing to do with it.
ORDERS = (("default", "pool"), ("pool", "default"), ("default", "blocking"), ("blocking", "default"))


def default_stream(lab: Lab) -> Finding:
    """What really happens on the default stream: who waits for it, whom it holds up, and when a copy blocks the host.

    Work on the default stream is queued like any other: the host goes on. The (legacy) default stream and a stream of
    ``cudaStreamCreate`` wait for each other. PyTorch's pool streams are made non-blocking, and neither wait for it nor
    are waited for. What does hold up the host is a copy of pageable memory, ``non_blocking=True`` or not: it returns
    once it is done.
    """
    if not lab.on_cuda:
        return needs_cuda("default-stream", "a device without CUDA has no default stream, and no pageable copies")
    ordered, copies = _record_orders(lab), _record_copies(lab)

    gaps = {order: _begins_after_end_ns(ordered, step) for step, order in enumerate(ORDERS)}
    waits = {order: gap >= -(ordered.meta.device_error_ns or 0) for order, gap in gaps.items()}
    launch = {name: host_spans(ordered, f"launch on {name}").median_ns for name in ("default", "pool", "blocking")}
    held = {copy: _held_ns(copies, step) for step, copy in enumerate(_COPIES)}
    pageable, pinned = (held[_Copy("d2h", pinned=pinned, behind_work=True)] for pinned in (False, True))
    work_ns = device_spans(ordered, Kind.GPU_COMPUTE).median_ns
    return Finding(
        "default-stream",
        f"{duration(work_ns)} of work on the default stream held the host for {duration(launch['default'])}; a pool "
        f"stream began {_in_words(gaps['default', 'pool'])} of it, a blocking stream "
        f"{_in_words(gaps['default', 'blocking'])}; a copy back behind queued work held the host for "
        f"{duration(pinned)} with pinned memory and for {duration(pageable)} with pageable memory",
        ok=launch["default"] < work_ns / 2
        and not (waits["default", "pool"] or waits["pool", "default"])
        and waits["default", "blocking"]
        and waits["blocking", "default"]
        and pinned < pageable / 2,
        table=Table(
            ("", "", "figure"),
            [
                *((f"launch on {name}", "holds the host", duration(ns)) for name, ns in launch.items()),
                *((f"{second} after {first}", "begins", _in_words(gap)) for (first, second), gap in gaps.items()),
                *((copy.text, "holds the host", duration(ns)) for copy, ns in held.items()),
            ],
        ),
        figures={
            "work_ns": work_ns,
            **{f"launch_on_{name}_ns": ns for name, ns in launch.items()},
            **{f"{second}_after_{first}_ns": gap for (first, second), gap in gaps.items()},
            **{f"{second}_waits_for_{first}": waited for (first, second), waited in waits.items()},
            **{f"held_{copy.key}_ns": ns for copy, ns in held.items()},
        },
        traces=(NamedTrace("default, pool and blocking stream", ordered), NamedTrace("copies", copies)),
    )


def _record_orders(lab: Lab) -> Trace:
    """For each order, work on one stream and, without any event, on another."""
    import torch

    from cbprof.lab.cuda import CudaBench, blocking_stream

    assert isinstance(lab.bench, CudaBench)
    device = lab.bench.device
    with blocking_stream() as blocking:
        streams = {"default": torch.cuda.default_stream(), "pool": torch.cuda.Stream(), "blocking": blocking}
        recording = lab.recording_of_any_stream()
        with recording as tracer:
            for step, order in enumerate(ORDERS):
                for slot, name in enumerate(order):
                    with tracer.gpu(name, streams[name], launch=f"launch on {name}", step=step, slot=slot):
                        device.compute_on(slot, streams[name])
                with tracer.wait("wait", step=step):
                    device.synchronize()
    return recording.trace


def _begins_after_end_ns(trace: Trace, step: int) -> int:
    """How long after the end of the first operation of a step the second begins; negative where it did not wait."""
    first, second = (_device_row(trace, step, name) for name in ORDERS[step])
    return int(trace.start_ns[second] - trace.end_ns[first])


def _device_row(trace: Trace, step: int, name: str) -> int:
    named = trace.name_id == trace.names.index(name)
    return int(np.flatnonzero(trace.on_device & (trace.step == step) & named)[0])


def _in_words(gap_ns: int) -> str:
    return f"{duration(abs(gap_ns))} {'after' if gap_ns >= 0 else 'before'} the end"


class _Copy(NamedTuple):
    """A copy with ``non_blocking=True``, alone on its stream or behind some milliseconds of work."""

    direction: Literal["h2d", "d2h"]
    pinned: bool
    behind_work: bool

    @property
    def memory(self) -> str:
        return "pinned" if self.pinned else "pageable"

    @property
    def key(self) -> str:
        return f"{self.direction}_{self.memory}_{'behind_work' if self.behind_work else 'alone'}"

    @property
    def text(self) -> str:
        return f"{self.direction.upper()}, {self.memory}, {'behind work' if self.behind_work else 'alone'}"


_COPIES = (
    *(_Copy("h2d", pinned, behind_work) for behind_work in (False, True) for pinned in (True, False)),
    *(_Copy("d2h", pinned, behind_work) for behind_work in (False, True) for pinned in (True, False)),
)


def _record_copies(lab: Lab) -> Trace:
    """Each sort of copy once, after a first one that is not recorded."""
    import torch

    from cbprof.lab.cuda import INPUTS, CudaBench

    assert isinstance(lab.bench, CudaBench)
    device, stream = lab.bench.device, torch.cuda.Stream()
    on_device = torch.zeros(INPUTS, dtype=torch.int32, device="cuda")
    on_host = {pinned: torch.zeros(INPUTS, dtype=torch.int32, pin_memory=pinned) for pinned in (True, False)}
    device.synchronize()

    def queue(copy: _Copy) -> None:
        with torch.cuda.stream(stream):
            if copy.direction == "h2d":
                on_device.copy_(on_host[copy.pinned], non_blocking=True)
            else:
                on_host[copy.pinned].copy_(on_device, non_blocking=True)

    for copy in _COPIES:
        queue(copy)
    device.synchronize()
    recording = lab.recording_of_any_stream()
    with recording as tracer:
        for step, copy in enumerate(_COPIES):
            if copy.behind_work:
                with tracer.gpu("work", stream, launch="launch", step=step):
                    device.compute_on(0, stream)
            with tracer.gpu(copy.text, stream, use=copy.direction, launch="copy", step=step):
                queue(copy)
            with tracer.wait("wait", step=step):
                device.synchronize()
    return recording.trace


def _held_ns(trace: Trace, step: int) -> int:
    """How long the host was inside the call that queued the copy of a step."""
    named = trace.name_id == trace.names.index("copy")
    row = np.flatnonzero(~trace.on_device & (trace.step == step) & named)[0]
    return int(trace.dur_ns[row])
