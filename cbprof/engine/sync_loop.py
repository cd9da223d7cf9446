"""Synchronous continuous batching: one batch after the other, host and device in turn.

::

    host    |schedule prepare h2d launch fetch| wait            |update|schedule prepare ...
    device                        |h2d| compute N          |d2h|       . idle .      |h2d| compute N+1

The host decides on batch N+1 only once it has seen the tokens of batch N, and the device has nothing to do meanwhile.
Lay this file beside ``async_loop.py``: the parts are the same, only the batch that is waited for differs.
"""

from __future__ import annotations

from cbprof.engine.run import Run
from cbprof.engine.slots import block, mark


def run_sync(run: Run) -> None:
    """Serve all requests of ``run``, one batch at a time, through one slot and one stream."""
    hooks, streams, slot = run.hooks, run.streams, run.slots[0]
    step = 0
    while run.scheduler.unfinished:
        with hooks.phase("schedule", step):
            batch = run.schedule(step)
        if batch is None:
            with hooks.wait("no_requests", step):
                run.sleep_until_arrival()
            continue

        with hooks.phase("prepare", step, slot=slot.index):
            slot.prepare(batch)
        with hooks.phase("h2d", step, slot=slot.index, stream=streams.h2d):
            slot.copy_in(streams.h2d)
        with hooks.phase("launch", step, slot=slot.index, stream=streams.compute):
            slot.launch(streams.compute)
        with hooks.phase("fetch", step, slot=slot.index, stream=streams.d2h):
            slot.copy_out(streams.d2h)
        mark(slot.done, streams.d2h, step, hooks)

        with hooks.wait("wait", step, slot=slot.index):
            block(slot.done, step, hooks)
        with hooks.phase("update", step, slot=slot.index):
            run.update(batch, slot)
        step += 1
