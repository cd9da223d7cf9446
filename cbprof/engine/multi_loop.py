"""Multi-step batching: the host looks at the tokens every K batches, and queues K at once in between.

::

    host    |launch N|launch N+1|launch N+2| wait N, N+1, N+2               |update N, N+1, N+2|launch N+3 ...
    compute          | compute N     | compute N+1   | compute N+2   |   .   idle   .                  | compute N+3

Lay this file beside ``async_loop.py``: the batches of a burst are queued as there, ordered by the same events, and each
carries its tokens over to the next on the device. But the host goes on only after the last of them, and from burst to
burst the device stands still as it does from batch to batch in sync. A stop token is found, and any token delivered, up
to K - 1 batches late.
"""

from __future__ import annotations

from cbprof.engine.batch import Batch
from cbprof.engine.run import Run
from cbprof.engine.slots import Slot, block, mark, order


def run_multi(run: Run) -> None:
    """Serve all requests of ``run``, in bursts of as many batches as there are slots."""
    hooks, streams = run.hooks, run.streams
    step = 0
    while run.scheduler.unfinished:
        burst: list[tuple[Batch, Slot]] = []
        for slot in run.slots:
            with hooks.phase("schedule", step):
                batch = run.schedule(step)
            if batch is None:
                break
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
            burst.append((batch, slot))
            step += 1

        if not burst:
            with hooks.wait("no_requests", step):
                run.sleep_until_arrival()
            continue
        for batch, slot in burst:
            with hooks.wait("wait", batch.step, slot=slot.index):
                block(slot.done, batch.step, hooks)
        for batch, slot in burst:
            with hooks.phase("update", batch.step, slot=slot.index):
                run.update(batch, slot)
