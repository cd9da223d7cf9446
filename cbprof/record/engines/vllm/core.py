"""What the engine core and the front end of vLLM do, as phases: one hook for each method that is a phase.

::

    sync    iteration [ schedule N   | prepare N, launch N, sample N, wait N      | update N ]
    async   iteration [ schedule N+1 | prepare N+1, launch N+1, sample N+1, fetch | wait N | update N ]

The part in the middle is :mod:`cbprof.record.engines.vllm.runner`'s, in the same thread or in processes of workers;
then ``ipc`` stands here for sending, and ``wait`` for the answer.

A hook is a wrapper where it runs in every step, and a generator (:func:`cbprof.record.wrapping.guarded`) elsewhere.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from cbprof.record.engines.vllm.batches import Requests, facts, rare_facts, tokens_of
from cbprof.record.engines.vllm.loop import STEP, Guard, Loop, Method, Process, step_of
from cbprof.record.recorder import Recorder
from cbprof.record.spans import WAIT, WORK
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

    @property
    def accepted_drafts(self) -> int:
        """How many tokens of speculative decoding were accepted."""
        return self._requests.accepted_drafts

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
            self._ends(not isinstance(sys.exc_info()[1], Exception))
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

    def poll(self, original: Method) -> Method:
        """``_process_input_queue``: without a batch to work on, it waits in it for the first request."""
        process, now = self._process, self._process.tracer.now

        def process_input_queue(*args: Any, **kwargs: Any) -> Any:
            loop = process.lane(CORE)
            loop.polled_ns = now()
            return original(*args, **kwargs)

        return process_input_queue

    def receive(self, core: Any, *args: Any, **kwargs: Any) -> Body:
        process, loop = self._process, self._process.lane(CORE)
        if loop.polled_ns and not core.has_work():
            process.note(loop, WAIT, "no_requests", loop.turn, loop.polled_ns, process.tracer.now())
        loop.polled_ns = 0
        with process.tracer.cpu("ipc", step=loop.turn):
            yield

    def iteration(self, original: Method) -> Method:
        """One turn, of the busy loop or of whoever drives the engine core himself."""
        process, now = self._process, self._process.tracer.now

        def iteration(*args: Any, **kwargs: Any) -> Any:
            loop = process.lane(CORE)
            loop.depth += 1
            start_ns = now()
            try:
                return original(*args, **kwargs)
            finally:
                process.note(loop, WORK, "iteration", loop.turn, start_ns, now())
                loop.depth -= 1

        return iteration

    def arrive(self, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Body:
        recorder = self._process.tracer.recorder
        name = getattr(request, "request_id", None)
        if recorder is not None and isinstance(name, str):
            recorder.note_later(partial(self._requests.arrived, recorder, name, recorder.now()))
        yield

    def schedule(self, original: Method) -> Method:
        guard, now = Guard(self._process, original), self._process.tracer.now

        def schedule(*args: Any, **kwargs: Any) -> Any:
            start_ns = now()
            output = original(*args, **kwargs)
            if guard.armed:
                try:
                    self._scheduled(output, start_ns)
                except Exception as error:
                    guard.failed(error)
            return output

        return schedule

    def _scheduled(self, output: Any, start_ns: int) -> None:
        process, loop = self._process, self._process.loop
        step = NONE
        if tokens_of(output):
            step, process.steps = process.steps, process.steps + 1
            loop.turn = step
            setattr(output, STEP, step)
            process.step_begins(step)
        recorder = process.tracer.recorder
        if recorder is not None:
            if step != NONE:
                recorder.note_later(partial(self._write_facts, recorder, output, step))
            rare = rare_facts(output)
            process.totals.update(rare)
            process.note(loop, WORK, "schedule", step, start_ns, recorder.now(), rare)

    @staticmethod
    def _write_facts(recorder: Recorder, output: Any, step: int) -> None:
        if (batch := facts(output)) is not None:
            recorder.write_batch(step, batch.tokens, batch.requests, batch.context, batch.phase)

    def update(self, original: Method) -> Method:
        guard, now = Guard(self._process, original), self._process.tracer.now

        def update(*args: Any, **kwargs: Any) -> Any:
            start_ns = now()
            outputs = original(*args, **kwargs)
            if guard.armed:
                try:
                    self._updated(args[1], outputs, start_ns)
                except Exception as error:
                    guard.failed(error)
            return outputs

        return update

    def _updated(self, output: Any, outputs: Any, start_ns: int) -> None:
        process = self._process
        recorder = process.tracer.recorder
        if recorder is not None:
            end_ns = recorder.now()
            process.note(process.loop, WORK, "update", step_of(output), start_ns, end_ns)
            recorder.note_later(partial(self._requests.updated, recorder, outputs, end_ns))

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
        loop: Loop = self._process.loop
        if loop.awaiting or not loop.depth:
            return
        loop.awaiting = True
        try:
            with self._process.tracer.wait("wait", step=step_of(future)):
                yield
        finally:
            loop.awaiting = False
