"""Three streams with events: as free, and right."""

from __future__ import annotations

from cbprof.engine.slots import block, mark, order
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, hazards_found, host_spans, median
from cbprof.numbers import duration
from cbprof.trace import Kind

BATCHES = 10


def events(lab: Lab) -> Finding:
    """The same three streams, with an event between each and the next: right, and the host is free at once.

    An event is a mark in one stream that another can wait for. It is the device that waits, not the host, which only
    queues the marks and the waits and goes on.
    """
    streams, slot = lab.streams, lab.slots[0]
    batches = lab.batches(BATCHES)
    wrong_pct = []
    recording = lab.recording(mode="async")
    with recording as hooks:
        for step, batch in enumerate(batches):
            with hooks.phase("prepare", step, slot=slot.index):
                slot.prepare(batch.inputs)
            with hooks.phase("h2d", step, slot=slot.index, stream=streams.h2d):
                slot.copy_in(streams.h2d)
            order(slot.inputs_ready, streams.h2d, streams.compute, step, hooks)
            with hooks.phase("launch", step, slot=slot.index, stream=streams.compute):
                slot.launch(streams.compute)
            order(slot.outputs_ready, streams.compute, streams.d2h, step, hooks)
            with hooks.phase("fetch", step, slot=slot.index, stream=streams.d2h):
                slot.copy_out(streams.d2h)
            mark(slot.done, streams.d2h, step, hooks)

            with hooks.wait("wait", step, slot=slot.index):
                block(slot.done, step, hooks)
            with hooks.phase("update", step, slot=slot.index):
                wrong_pct.append(batch.wrong_pct(slot.output))

    trace = recording.trace
    hazards = hazards_found(trace)
    queued = host_spans(trace, "h2d").start
    free_ns = median(host_spans(trace, "fetch").end - queued)
    answer_ns = median(host_spans(trace, "wait").end - queued)
    compute_ns = device_spans(trace, Kind.GPU_COMPUTE).median_ns
    queued_early = int((host_spans(trace, "fetch").end < device_spans(trace, Kind.GPU_COMPUTE).end).sum())
    right = sum(share == 0 for share in wrong_pct)
    return Finding(
        "events",
        f"{right} of {len(batches)} batches were right; the host had queued all of one in {duration(free_ns)} and was "
        f"free for the rest of the {duration(answer_ns)} until its answer came",
        # Something else on the machine may hold up the host, but not in most batches.
        ok=right == len(batches) and not hazards and queued_early > len(batches) / 2,
        table=Table(
            ("from the first copy queued until", "time"),
            [("the host is free", duration(free_ns)), ("the answer is there", duration(answer_ns))],
        ),
        figures={
            "batches": len(batches),
            "right_batches": right,
            "queued_before_computed": queued_early,
            "host_free_ns": free_ns,
            "answer_ns": answer_ns,
            "compute_ns": compute_ns,
        },
        traces=(NamedTrace("events", trace),),
    )
