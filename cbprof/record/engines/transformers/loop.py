"""What the generation loop of transformers does, as phases: one wrapper for each method that is a phase.

::

    sync    iteration [ prepare [schedule|inputs] | dispatch [launch|wait]       | update [read|deliver] ]
    async   iteration [ prepare [schedule|inputs] | dispatch [h2d|launch|fetch]  | update [wait|read|deliver] ]
                        `------------ batch N ------------------------------'      `------ batch N - 1 ----'

All of it runs on the generation thread. A batch is counted when it has been dispatched, and updates come in the order
of the dispatches, in either mode; so the step of an update is that of the oldest batch in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, NamedTuple

from cbprof.record.clocks.choice import cuda_is_there
from cbprof.record.engines.transformers.batches import Requests, facts
from cbprof.record.recorder import Recorder
from cbprof.record.spans import OpenSpan
from cbprof.record.tracer import Tracer
from cbprof.trace import NONE

Method = Callable[..., Any]

LANE = "generation loop"


class InFlight(NamedTuple):
    """A batch that was dispatched and is not updated yet. ``slot``: the pair of buffers it goes through, in async."""

    step: int
    slot: int


NO_BATCH = InFlight(NONE, NONE)


class Loop(threading.local):
    """Where the loop of this thread stands.

    ``step``: the batch that is being prepared; NONE until there is one, so that the first polls of a loop that has
    nothing to do yet belong to no step. ``landing``: the batch that is being updated.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.step = NONE
        self.slot = NONE
        self.dispatched = False
        self.in_flight: deque[InFlight] = deque(maxlen=8)
        self.landing = NO_BATCH
        self.entered = False
        self.in_inputs = False
        self.warming_up = False
        self.producing: list[Any] = []
        self.launch: OpenSpan | None = None
        self.starved: AbstractContextManager[OpenSpan] | None = None  # opened by one method, closed by another
        self.waiting: AbstractContextManager[OpenSpan] | None = None

    def land(self, *, ahead: bool) -> InFlight:
        """The batch that an update is about. ``ahead``: it is not the one that was just dispatched."""
        unknown = 1 if ahead and self.dispatched else 0  # seen from the middle of a run
        return self.in_flight.popleft() if len(self.in_flight) > unknown else NO_BATCH

    def close_starved(self) -> None:
        """The wait for requests is over, if one was open."""
        if self.starved is not None:
            self.starved.__exit__(None, None, None)
            self.starved = None

    def close_wait(self) -> None:
        """The wait for the device is over, if one was open."""
        if self.waiting is not None:
            self.waiting.__exit__(None, None, None)
            self.waiting = None


class LoopPhases:
    """Wrappers for the methods of the loop. Each takes the original, and gives what to put in its place."""

    def __init__(self, tracer: Tracer, step_begins: Callable[[int], None] | None = None) -> None:
        self._tracer = tracer
        self._step_begins = step_begins or (lambda step: None)
        self._steps = count()
        self._requests = Requests(tracer)
        self._loop = Loop()
        self.processor: Any = None
        """The ``ContinuousBatchProcessor`` seen last."""

    def under_way_here(self) -> bool:
        """Whether the calling thread runs the loop, or its warm-up."""
        return self._loop.entered or self._loop.warming_up

    # The loop ---------------------------------------------------------------------------------------------------------

    def iteration(self, original: Method) -> Method:
        def generation_loop_body(manager: Any, processor: Any, *args: Any, **kwargs: Any) -> Any:
            self._enter(processor)
            with self._tracer.cpu("iteration") as span:
                again = original(manager, processor, *args, **kwargs)
                self._loop.close_starved()
                span.step = self._loop.step
            return again

        return generation_loop_body

    # Preparing batch N ------------------------------------------------------------------------------------------------

    def prepare(self, original: Method) -> Method:
        def prepare_next_batch(processor: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._go_on()
            self._enter(processor)
            loop.close_starved()  # where there is no iteration to do it
            loop.slot = getattr(getattr(processor, "inputs_and_outputs", None), "current_pair", NONE)
            with self._tracer.cpu("prepare") as span:
                ready = original(processor, *args, **kwargs)
                span.step, span.slot = loop.step, loop.slot if ready else NONE
            if not ready:
                loop.starved = _open(self._tracer.wait("no_requests", step=loop.step))
            return ready

        return prepare_next_batch

    def schedule(self, original: Method) -> Method:
        def schedule_batch(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._go_on()
            with self._tracer.cpu("schedule") as span:
                scheduled = original(scheduler, *args, **kwargs)
                futures = scheduled[0] if isinstance(scheduled, tuple) else scheduled
                if futures and loop.step == NONE:
                    loop.step = self._next_step()
                span.step = loop.step
                if futures and (batch := facts(futures)) is not None:
                    self._tracer.batch(step=loop.step, **batch._asdict())
                    self._requests.seen(futures)
            return scheduled

        return schedule_batch

    def inputs(self, original: Method) -> Method:
        def prepare_batch_tensors(ios: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            if loop.in_inputs or loop.warming_up:  # the async class calls the sync one
                return original(ios, *args, **kwargs)
            loop.in_inputs = True
            try:
                with self._tracer.cpu("inputs", step=loop.step, slot=loop.slot):
                    return original(ios, *args, **kwargs)
            finally:
                loop.in_inputs = False

        return prepare_batch_tensors

    def pause(self, original: Method) -> Method:
        def pause_and_wait(status: Any, *args: Any, **kwargs: Any) -> Any:
            """Somebody has paused the loop, so that there is nothing for it to do."""
            with self._tracer.wait("no_requests", step=self._loop.step):
                return original(status, *args, **kwargs)

        return pause_and_wait

    def offload(self, original: Method) -> Method:
        def offload_requests(manager: Any, *args: Any, **kwargs: Any) -> Any:
            with self._copying("offload", _copy_stream(manager)):
                return original(manager, *args, **kwargs)

        return offload_requests

    def restore(self, original: Method) -> Method:
        def restore_scheduled_requests(manager: Any, futures: Any, *args: Any, **kwargs: Any) -> Any:
            if not any(getattr(future.state, "is_cpu_offloaded", False) for future in futures):
                return original(manager, futures, *args, **kwargs)
            with self._copying("restore", _copy_stream(manager)):
                return original(manager, futures, *args, **kwargs)

        return restore_scheduled_requests

    def fork(self, original: Method) -> Method:
        def perform_cache_copy(cache: Any, *args: Any, **kwargs: Any) -> Any:
            with self._copying("fork", None):
                return original(cache, *args, **kwargs)

        return perform_cache_copy

    def _copying(self, name: str, stream: Any) -> AbstractContextManager[OpenSpan]:
        """Work of the host, and copies on the device: on ``stream``, or the current one."""
        if not cuda_is_there():
            return self._tracer.cpu(name, step=self._loop.step)
        return self._tracer.gpu(name, stream, use="copy", step=self._loop.step)

    # Dispatching batch N ----------------------------------------------------------------------------------------------

    def dispatch(self, original: Method) -> Method:
        def generation_step(processor: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._go_on()
            self.processor = processor
            if loop.step == NONE:  # schedule_batch was not seen
                loop.step = self._next_step()
            with self._tracer.cpu("dispatch", step=loop.step, slot=loop.slot):
                result = original(processor, *args, **kwargs)
            loop.in_flight.append(InFlight(loop.step, loop.slot))
            loop.dispatched = True
            return result

        return generation_step

    def h2d(self, original: Method) -> Method:
        def transfer_inputs(pair: Any, stream: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            if loop.warming_up:
                return original(pair, stream, *args, **kwargs)
            with self._tracer.gpu("h2d", stream, use="h2d", step=loop.step, slot=loop.slot):
                return original(pair, stream, *args, **kwargs)

        return transfer_inputs

    def compute(self, original: Method) -> Method:
        def compute_batch(runner: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            if loop.warming_up:
                return original(runner, *args, **kwargs)
            stream = _compute_stream(runner)
            if stream is None and cuda_is_there():  # a model on the CPU, though there is a GPU: the host's own work
                with self._tracer.cpu("compute", step=loop.step, slot=loop.slot):
                    return original(runner, *args, **kwargs)
            name = "launch" if stream is not None else "compute"
            with self._tracer.gpu("compute", stream, launch=name, step=loop.step, slot=loop.slot) as launch:
                loop.launch = launch
                try:
                    return original(runner, *args, **kwargs)
                finally:
                    loop.launch = None

        return compute_batch

    def capture(self, original: Method) -> Method:
        def capture_graph(runner: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            """Runs ``forward`` once, which computes the batch, and again to capture it, which computes nothing."""
            loop = self._loop

            def forward_once(*args: Any, **kwargs: Any) -> Any:
                result = forward(*args, **kwargs)
                if loop.launch is not None:
                    loop.launch.finish()
                return result

            with self._tracer.cpu("capture", step=NONE if loop.warming_up else loop.step, slot=loop.slot):
                return original(runner, forward_once if callable(forward) else forward, *args, **kwargs)

        return capture_graph

    def warmup(self, original: Method) -> Method:
        def warmup(runner: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            loop.warming_up = True
            try:
                with self._tracer.cpu("warmup"):
                    return original(runner, *args, **kwargs)
            finally:
                loop.warming_up = False

        return warmup

    def wait_in_dispatch(self, original: Method) -> Method:
        def retrieve_device_outputs(ios: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            with self._tracer.wait("wait", step=loop.step, slot=loop.slot):
                return original(ios, *args, **kwargs)

        return retrieve_device_outputs

    def d2h(self, original: Method) -> Method:
        def transfer_outputs(pair: Any, stream: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            with self._tracer.gpu("d2h", stream, use="d2h", launch="fetch", step=loop.step, slot=loop.slot):
                return original(pair, stream, *args, **kwargs)

        return transfer_outputs

    # Updating batch N or N - 1 ----------------------------------------------------------------------------------------

    def update(self, original: Method) -> Method:
        def update_batch(processor: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            loop.landing = loop.land(ahead=getattr(processor, "use_async_batching", False))
            try:
                with self._tracer.cpu("update", step=loop.landing.step, slot=loop.landing.slot):
                    result = original(processor, *args, **kwargs)
                self._requests.updated(loop.producing)
            finally:
                loop.landing, loop.producing = NO_BATCH, []
            return result

        return update_batch

    def wait_in_update(self, original: Method) -> Method:
        def prepare_batch_update(ios: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            loop.waiting = _open(self._tracer.wait("wait", step=loop.landing.step, slot=loop.landing.slot))
            try:
                return original(ios, *args, **kwargs)
            finally:
                loop.close_wait()

        return prepare_batch_update

    def read(self, original: Method) -> Method:
        def prepare_batch_update(ios: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._loop
            loop.close_wait()  # the async class has waited, and calls the sync one
            with self._tracer.cpu("read", step=loop.landing.step, slot=loop.landing.slot):
                output = original(ios, *args, **kwargs)
            loop.producing = self._requests.producing(output)
            return output

        return prepare_batch_update

    def deliver(self, original: Method) -> Method:
        def deliver_batch(router: Any, *args: Any, **kwargs: Any) -> Any:
            landing = self._loop.landing
            with self._tracer.cpu("deliver", step=landing.step, slot=landing.slot):
                return original(router, *args, **kwargs)

        return deliver_batch

    def _enter(self, processor: Any) -> None:
        """Once a recording, before its first span here: name the lane, and have the device's clock ready."""
        loop = self._loop
        if loop.recorder is not self._tracer.recorder:
            loop.recorder = self._tracer.recorder
            self._tracer.name_lane(LANE)
            if (stream := _compute_stream(processor)) is not None:
                self._tracer.warm_up(stream)

    def _go_on(self) -> Loop:
        """The loop of this thread, at the batch to come: a new one, once the last was dispatched."""
        loop = self._loop
        loop.entered = True
        if loop.dispatched:
            loop.step, loop.dispatched = self._next_step(), False
        return loop

    def _next_step(self) -> int:
        step = next(self._steps)
        self._step_begins(step)
        return step


def _open(span: AbstractContextManager[OpenSpan]) -> AbstractContextManager[OpenSpan]:
    span.__enter__()
    return span


def _compute_stream(owner: Any) -> Any:
    """The stream that the model runs on, None on a CPU. ``owner`` has the inputs and outputs of the batches."""
    return getattr(getattr(owner, "inputs_and_outputs", None), "compute_stream", None)


def _copy_stream(manager: Any) -> Any:
    """The stream on which an ``OffloadingManager`` copies, None for the current one."""
    return getattr(manager, "_compute_stream", getattr(manager, "compute_stream", None))
