"""What the engine core and the front end of vLLM do, as phases: one hook for each method that is a phase.

::

    sync    iteration [ schedule N   | prepare N, launch N, sample N, wait N      | update N ]
    async   iteration [ schedule N+1 | prepare N+1, launch N+1, sample N+1, fetch | wait N | update N ]

The part in the middle is :mod:`cbprof.record.engines.vllm.runner`'s, in the same thread or in processes of workers;
then ``ipc`` stands here for sending, and ``wait`` for the answer.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Generator
from typing import Any

from cbprof.record.engines.vllm.batches import Requests, facts, rare_facts, tokens_of
from cbprof.record.engines.vllm.loop import STEP, Process, step_of
from cbprof.trace import NONE

Body = Generator[None, Any, None]

CORE, FRONT_END = "engine core", "front end"


class CorePhases:
    """Hooks for the engine core and the front end. ``begins`` is called when a process turns out to be vLLM's, and
    ``ends`` when that is over, with whether it came to its end or failed."""

    def __init__(self, process: Process, begins: Callable[[], None], ends: Callable[[bool], None]) -> None:
        self._process = process
        self._begins = begins
        self._ends = ends
        self._requests = Requests()

    # Which process is this? -------------------------------------------------------------------------------------------

    def begins_as_core(self, core: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> Body:
        self._process.role = CORE
        self._process.config = vllm_config
        self._begins()
        yield

    def begins_as_front_end(self, processor: Any, *args: Any, **kwargs: Any) -> Body:
        self._process.role = self._process.role or FRONT_END
        self._begins()
        yield

    def ends(self, theirs: Any, *args: Any, **kwargs: Any) -> Body:
        """A process that vLLM has made shuts down. It may be killed before it comes to its own end."""
        if multiprocessing.parent_process() is not None:
            failed = isinstance(sys.exc_info()[1], Exception)
            self._process.loop.close_starved()
            self._ends(not failed)
        yield

    # The front end ----------------------------------------------------------------------------------------------------

    def deliver(self, processor: Any, *args: Any, **kwargs: Any) -> Body:
        self._process.lane(FRONT_END)
        with self._process.tracer.cpu("deliver", step=NONE):
            yield

    def await_core(self, client: Any, *args: Any, **kwargs: Any) -> Body:
        self._process.lane(FRONT_END)
        with self._process.tracer.wait("ipc", step=NONE):
            yield

    # The engine core's loop -------------------------------------------------------------------------------------------

    def await_requests(self, core: Any, *args: Any, **kwargs: Any) -> Body:
        """Nothing to do until the first request has come, if there is none; then what has come is taken in."""
        process, loop = self._process, self._process.lane(CORE)
        if core.has_work():
            return
        loop.starved = process.tracer.wait("no_requests", step=loop.turn)
        loop.starved.__enter__()
        try:
            yield
        finally:
            loop.close_starved()

    def receive(self, core: Any, *args: Any, **kwargs: Any) -> Body:
        loop = self._process.lane(CORE)
        loop.close_starved()
        with self._process.tracer.cpu("ipc", step=loop.turn):
            yield

    def iteration(self, core: Any, *args: Any, **kwargs: Any) -> Body:
        """One turn. The method that takes a turn calls one that is a turn where nobody else does."""
        process, loop = self._process, self._process.lane(CORE)
        if loop.iterating:
            return
        loop.iterating = True
        loop.depth += 1
        try:
            with process.tracer.cpu("iteration", step=NONE) as span:
                yield
                span.step = loop.turn
        finally:
            loop.iterating = False
            loop.depth -= 1

    def arrive(self, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Body:
        self._requests.arrived(self._process.tracer, request)
        yield

    def schedule(self, scheduler: Any, *args: Any, **kwargs: Any) -> Body:
        process, loop = self._process, self._process.loop
        with process.tracer.cpu("schedule", step=NONE) as span:
            output = yield
            if not tokens_of(output):
                return
            step, process.steps = process.steps, process.steps + 1
            loop.turn = step
            setattr(output, STEP, step)
            process.step_begins(step)
            span.step = step
            if process.tracer.on:
                if (batch := facts(output)) is not None:
                    process.tracer.batch(step=step, **batch._asdict())
                if rare := rare_facts(output):
                    span.facts = rare
                    process.totals.update(rare)

    def update(self, scheduler: Any, output: Any, *args: Any, **kwargs: Any) -> Body:
        process = self._process
        with process.tracer.cpu("update", step=step_of(output)) as span:
            outputs = yield
            if accepted := self._requests.updated(process.tracer, outputs):
                span.facts = {"accepted_drafts": accepted}
                process.totals["accepted_drafts"] += accepted

    def encode(self, encoder: Any, *args: Any, **kwargs: Any) -> Body:
        """On the thread that sends outputs to the front end, or requests to the engine core."""
        self._process.lane(f"{self._process.role} sender")
        with self._process.tracer.cpu("ipc", step=NONE):
            yield

    # Workers in processes of their own --------------------------------------------------------------------------------

    def send_batch(self, executor: Any, output: Any, *args: Any, **kwargs: Any) -> Body:
        loop = self._process.loop
        loop.sent = step_of(output)
        with self._process.tracer.cpu("ipc", step=loop.sent):
            yield

    def send(self, executor: Any, *args: Any, **kwargs: Any) -> Body:
        with self._process.tracer.cpu("ipc", step=self._process.loop.sent):
            yield

    def expect(self, future: Any, *args: Any, **kwargs: Any) -> Body:
        """An answer belongs to the batch that was sent last."""
        yield
        setattr(future, STEP, self._process.loop.sent)

    def await_worker(self, future: Any, *args: Any, **kwargs: Any) -> Body:
        loop = self._process.loop
        if loop.awaiting or not loop.iterating:
            return
        loop.awaiting = True
        try:
            with self._process.tracer.wait("wait", step=step_of(future)):
                yield
        finally:
            loop.awaiting = False
