"""Multi-step batching: the host looks at the tokens every K batches, and queues K at once in between.

::

    host    |launch N|launch N+1|launch N+2| wait N, N+1, N+2               |update N, N+1, N+2|launch N+3 ...
    compute          | compute N     | compute N+1   | compute N+2   |   .   idle   .                  | compute N+3

Lay this file beside ``async_loop.py``: the batches of a burst are queued by the same function, and each
carries its tokens over to the next on the device. But the host goes on only after the last of them, and from burst to
burst the device stands still as it does from batch to batch in sync. A stop token is found, and any token delivered, up
to K - 1 batches late.
"""

from __future__ import annotations

from cbprof.engine.async_loop import queue
from cbprof.engine.batch import Batch
from cbprof.engine.run import Run
from cbprof.engine.slots import Slot, block


def run_multi(run: Run) -> None:
    """Serve all requests of ``run``, in bursts of as many batches as there are slots."""
    hooks = run.hooks
    step = 0
    while run.scheduler.unfinished:
        burst: list[tuple[Batch, Slot]] = []
        for slot in run.slots:
            with hooks.phase("schedule", step):
                batch = run.schedule(step)
            if batch is None:
                break
            queue(run, batch, slot)
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
