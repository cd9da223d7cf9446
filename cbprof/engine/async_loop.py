"""Asynchronous continuous batching: batch N+1 is queued while batch N runs, so that the device never waits.

::

    host    |schedule prepare h2d launch fetch N+1| wait N |update N|schedule prepare h2d launch fetch N+2| wait N+1 ...
    h2d                                |N+1|                                                   |N+2|
    compute | compute N                              | compute N+1                            | compute N+2
    d2h                                              |N|                                      |N+1|

Batch N+1 needs the tokens of batch N as inputs, before the host has seen them. Their *number* is all that scheduling
needs; their *values* are carried over on the device, from the output of one slot to the inputs of the other.

Three streams run side by side, and events order what depends on each other:

* ``inputs_ready``   compute N+1 reads its inputs after the copy to the device;
* ``outputs_ready``  the copy back of N+1 reads its output after compute N+1;
* ``done``           the host reads the tokens of N after the copy back of N. This is the only blocking call.

Two slots are enough: batch N+2 is prepared in the slot of batch N only after the wait for N, by when its copies and its
compute are over. Compute N+1 reads the output of N on the device, where only compute N+2 overwrites it, behind it on
the same stream. With more slots the host runs further ahead: through a hiccup of the host that is longer than a batch,
at the price of more tokens computed behind a stop token.
"""

from __future__ import annotations

from collections import deque

from cbprof.engine.batch import Batch
from cbprof.engine.run import Run
from cbprof.engine.slots import Slot, block, mark, order


def run_async(run: Run) -> None:
    """Serve all requests of ``run``, ahead of the tokens seen by one batch less than there are slots."""
    hooks = run.hooks
    step = 0
    flying: deque[tuple[Batch, Slot]] = deque()  # queued, not yet read back
    while run.scheduler.unfinished or flying:
        with hooks.phase("schedule", step):
            batch = run.schedule(step)
        if batch is None and not flying:
            with hooks.wait("no_requests", step):
                run.sleep_until_arrival()
            continue

        if batch is not None:
            slot = run.slots[step % len(run.slots)]
            queue(run, batch, slot)
            flying.append((batch, slot))
            step += 1

        if batch is None or len(flying) == len(run.slots):
            batch, slot = flying.popleft()
            with hooks.wait("wait", batch.step, slot=slot.index):
                block(slot.done, batch.step, hooks)
            with hooks.phase("update", batch.step, slot=slot.index):
                run.update(batch, slot)


def queue(run: Run, batch: Batch, slot: Slot) -> None:
    """Prepare a batch in its slot and queue what the device does for it: on three streams, in the order of events."""
    hooks, streams, step = run.hooks, run.streams, batch.step
    with hooks.phase("prepare", step, slot=slot.index):
        slot.prepare(batch)
    with hooks.phase("h2d", step, slot=slot.index, stream=streams.h2d):
        slot.copy_in(streams.h2d)
    order(slot.inputs_ready, streams.h2d, streams.compute, step, hooks)
    with hooks.phase("launch", step, slot=slot.index, stream=streams.compute):
        slot.launch(streams.compute)
    order(slot.outputs_ready, streams.compute, streams.d2h, step, hooks)
    with hooks.phase("fetch", step, slot=slot.index, stream=streams.d2h):
        slot.copy_out(streams.d2h)
    mark(slot.done, streams.d2h, step, hooks)
