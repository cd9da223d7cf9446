"""Batch N+1 in the buffers of batch N, and the second slot that is the cure."""

from __future__ import annotations

from typing import NamedTuple

from cbprof.engine.slots import block, mark, order
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import BareSlot, Batch, Lab
from cbprof.lab.measure import hazards_found
from cbprof.numbers import counted, percent
from cbprof.trace import Trace

BATCHES = 10


def one_slot(lab: Lab) -> Finding:
    """Prepare batch N+1 while batch N runs: in the same buffers it corrupts batch N, in a second slot it does not.

    The events between the streams are all there. But the host, one batch ahead, rewrites the buffers of a batch that
    is still being copied and computed, and the copy of N+1 lands in the inputs that N is reading.
    """
    batches = lab.batches(BATCHES)
    one, two = _one_batch_ahead(lab, batches, slots=1), _one_batch_ahead(lab, batches, slots=2)

    hazards, hazards_of_two = hazards_found(one.trace), hazards_found(two.trace)
    figures = {
        f"{name}_{key}": value
        for name, run in (("one_slot", one), ("two_slots", two))
        for key, value in (("wrong_batches", run.wrong), ("wrong_values_pct", run.mean_pct))
    }
    return Finding(
        "one-slot",
        f"with one slot {one.wrong} of {BATCHES} batches came out wrong, in {percent(one.mean_pct)} of all values, and "
        f"the analyzer finds {counted(len(hazards), 'hazard')}; with two slots {two.wrong} were wrong",
        ok=one.wrong > 0 and "inputs_kept" in hazards and two.wrong == 0 and not hazards_of_two,
        table=Table(
            ("batch", "wrong values, one slot", "two slots"),
            [
                (str(step), percent(a), percent(b))
                for step, (a, b) in enumerate(zip(one.wrong_pct, two.wrong_pct, strict=True))
            ],
        ),
        figures={"batches": BATCHES, **figures, "hazards": ", ".join(hazards)},
        traces=(NamedTrace("one slot", one.trace), NamedTrace("two slots", two.trace)),
    )


class _Run(NamedTuple):
    trace: Trace
    wrong_pct: list[float]

    @property
    def wrong(self) -> int:
        return sum(share > 0 for share in self.wrong_pct)

    @property
    def mean_pct(self) -> float:
        return sum(self.wrong_pct) / len(self.wrong_pct)


def _one_batch_ahead(lab: Lab, batches: list[Batch], *, slots: int) -> _Run:
    """The async loop: queue batch N+1, then wait for batch N."""
    streams = lab.streams
    wrong_pct = []
    recording = lab.recording(mode="async")
    flying: tuple[int, Batch, BareSlot] | None = None
    with recording as hooks:
        for step, batch in enumerate([*batches, None]):
            landing, flying = flying, None
            if batch is not None:
                slot = BareSlot(step % slots, lab.device)  # its events are new: only the buffers are shared
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
                flying = step, batch, slot

            if landing is not None:
                before, landed, slot = landing
                with hooks.wait("wait", before, slot=slot.index):
                    block(slot.done, before, hooks)
                with hooks.phase("update", before, slot=slot.index):
                    wrong_pct.append(landed.wrong_pct(slot.output))
    return _Run(recording.trace, wrong_pct)
