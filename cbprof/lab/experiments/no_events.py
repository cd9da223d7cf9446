"""Three streams without events: fast and wrong."""

from __future__ import annotations

from cbprof.engine.slots import block, mark
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, hazards_found, host_spans, median
from cbprof.numbers import counted, duration, percent
from cbprof.trace import Kind

BATCHES = 10


def no_events(lab: Lab) -> Finding:
    """Copy in, compute and copy out on three streams with nothing between them: the answer comes at once and is wrong.

    Streams do not wait for each other, not even where one needs what the other makes. The copy back takes whatever lies
    in the buffer, while the computation has hardly begun.
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
            # Nothing makes the compute stream wait for the copy ...
            with hooks.phase("launch", step, slot=slot.index, stream=streams.compute):
                slot.launch(streams.compute)
            # ... and nothing makes the copy back wait for the computation.
            with hooks.phase("fetch", step, slot=slot.index, stream=streams.d2h):
                slot.copy_out(streams.d2h)
            mark(slot.done, streams.d2h, step, hooks)

            with hooks.wait("wait", step, slot=slot.index):
                block(slot.done, step, hooks)
            with hooks.phase("update", step, slot=slot.index):
                wrong_pct.append(batch.wrong_pct(slot.output))
            lab.device.synchronize()  # what still runs must not spoil the next batch

    trace = recording.trace
    hazards = hazards_found(trace)
    answer_ns = median(host_spans(trace, "wait").end - host_spans(trace, "h2d").start)
    compute_ns = device_spans(trace, Kind.GPU_COMPUTE).median_ns
    wrong = sum(share > 0 for share in wrong_pct)
    return Finding(
        "no-events",
        f"the answer was there after {duration(answer_ns)}, although computing it takes {duration(compute_ns)}; "
        f"{wrong} of {len(batches)} batches were wrong, in {percent(sum(wrong_pct) / len(wrong_pct))} of their values, "
        f"and the analyzer finds {counted(len(hazards), 'hazard')}",
        ok=wrong == len(batches)
        and answer_ns < compute_ns
        and {"h2d_before_compute", "compute_before_d2h"} <= set(hazards),
        table=Table(("batch", "wrong values"), [(str(step), percent(share)) for step, share in enumerate(wrong_pct)]),
        figures={
            "batches": len(batches),
            "wrong_batches": wrong,
            "wrong_values_pct": sum(wrong_pct) / len(wrong_pct),
            "answer_ns": answer_ns,
            "compute_ns": compute_ns,
            "hazards": ", ".join(hazards),
        },
        traces=(NamedTrace("no events", trace),),
    )
