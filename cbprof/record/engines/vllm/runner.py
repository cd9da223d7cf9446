"""What the model runner of vLLM does, as phases; V1 and V2 alike, in the engine core or in a process of its own.

::

    execute_model    prepare [ inputs | launch ............ ]
    sample_tokens                                             sample [ fetch | (sync: wait, read) ]
    get_output                                                             async, later: wait, read
    main stream                          [ compute ............................ ]
    copy stream                                                             [ d2h ]

Compute lies between two events on the main stream, before the forward pass and behind the last that sampling queues.
The copy of the tokens begins when the main stream gets to where it is queued, and ends on the copy stream.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, NamedTuple

from cbprof.record.clocks.choice import cuda_is_there
from cbprof.record.devices import StreamUse
from cbprof.record.drain import DeviceLane
from cbprof.record.engines.vllm.batches import tokens_of
from cbprof.record.engines.vllm.core import CORE, CorePhases
from cbprof.record.engines.vllm.loop import STEP, Guard, Loop, Method, Process, step_of, timed
from cbprof.record.recorder import Recorder
from cbprof.record.spans import WAIT, WORK, DeviceSpan
from cbprof.trace import NONE

Body = Generator[None, Any, None]

COPY_EVENTS = ("copy_event", "async_copy_ready_event")
"""What an output waits for, in V2 and V1."""


class HostDevice(NamedTuple):
    """Stands for the stream of a worker without a GPU, which plays the device itself."""

    device_index: int


class Streams:
    """The streams of this process's device and the lanes of their spans, looked up once a recording."""

    def __init__(self, process: Process, recorder: Recorder) -> None:
        self.recorder = recorder
        self.on_cuda = cuda_is_there()
        rank = process.role.removeprefix("worker ")
        host = HostDevice(int(rank) if rank.isdigit() else 0)
        self.main: Any = sys.modules["torch"].cuda.current_stream() if self.on_cuda else host
        self._process = process
        self._copies: dict[Any, DeviceLane] = {}
        self.compute = self._place(self.main, "compute", "compute")

    def copy(self, stream: Any) -> DeviceLane:
        """The lane of copies on a stream."""
        return self._copies.get(stream) or self._copies.setdefault(stream, self._place(stream, "d2h", "d2h"))

    def _place(self, stream: Any, use: StreamUse, name: str) -> DeviceLane:
        return self.recorder.devices.place(stream, use, name, self._process.tracer.clock_of)


class RunnerPhases(CorePhases):
    """Hooks for the model runner."""

    _streams: Streams | None = None

    def begins_as_worker(self, wrapper: Any, *args: Any, **kwargs: Any) -> Body:
        yield
        process = self._process
        if process.role != CORE:
            process.role = f"worker {getattr(wrapper, 'global_rank', getattr(wrapper, 'rpc_rank', 0))}"
        self._begins()

    def await_message(self, queue: Any, *args: Any, **kwargs: Any) -> Body:
        """A worker waits for what the engine core sends. The engine core's own waits are told by what they are for."""
        process = self._process
        if not process.role.startswith("worker"):
            return
        loop = process.lane(process.role)
        with process.tracer.wait("ipc", step=loop.step):
            yield

    def send_output(self, worker: Any, output: Any, *args: Any, **kwargs: Any) -> Body:
        process = self._process
        loop = process.threads.loop
        if loop.recorder is None:  # in async a thread of its own
            process.lane(f"{process.role} output")
        with process.tracer.cpu("ipc", step=step_of(output, loop.step)):
            yield

    # The batch is prepared and launched -------------------------------------------------------------------------------

    def prepare(self, original: Method) -> Method:
        process, guard, now = self._process, Guard(self._process, original), self._process.tracer.now

        def prepare(*args: Any, **kwargs: Any) -> Any:
            if not guard.armed or kwargs.get("dummy_run"):
                return original(*args, **kwargs)
            try:
                loop = self._prepares(args[0], args[1])
            except Exception as error:
                guard.failed(error)
                return original(*args, **kwargs)
            start_ns = now()
            try:
                return original(*args, **kwargs)
            finally:
                loop.end_launch()
                loop.executing = False
                loop.depth -= 1
                process.note(loop, WORK, "prepare", loop.step, start_ns, now())

        return prepare

    def _prepares(self, runner: Any, output: Any) -> Loop:
        process = self._process
        loop = process.lane(process.role)
        if process.config is None:
            process.config = getattr(runner, "vllm_config", None)
        loop.tokens = tokens_of(output)
        loop.step = step_of(output) if loop.tokens else NONE
        if process.role != CORE and loop.step != NONE:
            process.steps = loop.step + 1
            process.step_begins(loop.step)
        recorder = process.tracer.recorder
        if (
            recorder is not None
            and loop.step != NONE
            and (self._streams is None or self._streams.recorder is not recorder)
        ):
            self._streams = Streams(process, recorder)
        loop.launch, loop.launching = None, False  # of a batch that failed
        loop.executing = True
        loop.depth += 1
        return loop

    def inputs(self, original: Method) -> Method:
        return timed(self._process, "inputs", original, while_executing=True)

    def forward(self, original: Method) -> Method:
        """The forward pass begins; what follows in ``execute_model`` launches it."""
        process, guard = self._process, Guard(self._process, original)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if process.threads.loop.executing and guard.armed:
                try:
                    mode = getattr(kwargs.get("cudagraph_runtime_mode"), "name", "NONE")
                    self._launch(str(mode).lower())
                except Exception as error:
                    guard.failed(error)
            return original(*args, **kwargs)

        return forward

    def replay(self, original: Method) -> Method:
        process, guard = self._process, Guard(self._process, original)

        def replay(*args: Any, **kwargs: Any) -> Any:
            if process.threads.loop.executing and guard.armed:
                try:
                    self._launch("full")
                except Exception as error:
                    guard.failed(error)
            return original(*args, **kwargs)

        return replay

    def _launch(self, graph: str) -> None:
        process, loop, streams = self._process, self._process.loop, self._streams
        recorder = process.tracer.recorder
        if loop.launch is not None or loop.step == NONE or streams is None or streams.recorder is not recorder:
            return
        name = "launch" if streams.on_cuda else "compute"
        span = DeviceSpan(streams.recorder, streams.compute, name, loop.step, NONE, streams.main)
        span.facts = GRAPHS.get(graph) or {"graph": graph}
        span.hold()
        span.__enter__()
        loop.launch, loop.launching = span, True
        process.graphs[graph] += 1
        if graph == "none":
            least, most = process.without_graph
            process.without_graph = (min(least or loop.tokens, loop.tokens), max(most, loop.tokens))

    def sample(self, original: Method) -> Method:
        process, guard, now = self._process, Guard(self._process, original), self._process.tracer.now

        def sample(*args: Any, **kwargs: Any) -> Any:
            loop = process.threads.loop
            loop.depth += 1
            start_ns = now()
            try:
                return original(*args, **kwargs)
            finally:
                self._end_compute(loop, guard)
                loop.depth -= 1
                process.note(loop, WORK, "sample", loop.step, start_ns, now())

        return sample

    def _end_compute(self, loop: Loop, guard: Guard) -> None:
        try:
            loop.end_compute()
        except Exception as error:
            guard.failed(error)

    # The tokens come back ---------------------------------------------------------------------------------------------

    def fetch(self, original: Method) -> Method:
        process, guard, now = self._process, Guard(self._process, original), self._process.tracer.now

        def fetch(*args: Any, **kwargs: Any) -> Any:
            if not guard.armed:
                return original(*args, **kwargs)
            span, start_ns = None, now()
            try:
                span = self._fetches(args[0], kwargs)
            except Exception as error:
                guard.failed(error)
            result = original(*args, **kwargs)
            if span is None:
                loop = process.loop
                process.note(loop, WORK, "fetch", loop.step, start_ns, now())
            else:
                try:
                    span.__exit__(None)
                except Exception as error:
                    guard.failed(error)
            return result

        return fetch

    def _fetches(self, output: Any, kwargs: dict[str, Any]) -> DeviceSpan | None:
        """The open span of a copy; None where there is no device to copy from."""
        process, loop, streams = self._process, self._process.loop, self._streams
        setattr(output, STEP, loop.step)
        copy = kwargs.get("copy_stream", kwargs.get("async_output_copy_stream"))
        if streams is None or not streams.on_cuda or process.tracer.recorder is not streams.recorder:
            return None
        if not hasattr(copy, "cuda_stream"):
            return None
        span = DeviceSpan(streams.recorder, streams.copy(copy), "fetch", loop.step, NONE, streams.main)
        span.__enter__()
        span.stream = copy
        return span

    def wait(self, original: Method) -> Method:
        """``get_output`` blocks on an event first, and reads then."""
        process, guard, now = self._process, Guard(self._process, original), self._process.tracer.now

        def wait(*args: Any, **kwargs: Any) -> Any:
            if not guard.armed or not process.tracer.on:
                return original(*args, **kwargs)
            loop = process.threads.loop
            loop.depth += 1
            start_ns = read_ns = now()
            step = NONE
            try:
                try:
                    step = step_of(args[0], loop.step)
                    self._end_compute(loop, guard)  # in sync this is the end of sampling
                    read_ns = self._waits(args[0])
                except Exception as error:
                    guard.failed(error)
                return original(*args, **kwargs)
            finally:
                end_ns = now()
                process.note(loop, WAIT, "wait", step, start_ns, read_ns or end_ns)
                if read_ns:
                    process.note(loop, WORK, "read", step, read_ns, end_ns)
                loop.depth -= 1

        return wait

    def _waits(self, output: Any) -> int:
        """Wait as ``get_output`` is about to; until when that took, 0 where it cannot be told from reading."""
        for name in COPY_EVENTS:
            if (event := getattr(output, name, None)) is not None:
                event.synchronize()
                return self._process.tracer.now()
        return 0

    def wait_at_once(self, original: Method) -> Method:
        """V1 in sync copies and waits in one."""
        process, guard, now = self._process, Guard(self._process, original), self._process.tracer.now

        def wait_at_once(*args: Any, **kwargs: Any) -> Any:
            loop = process.threads.loop
            self._end_compute(loop, guard)
            start_ns = now()
            try:
                return original(*args, **kwargs)
            finally:
                process.note(loop, WAIT, "wait", loop.step, start_ns, now())

        return wait_at_once

    # Once -------------------------------------------------------------------------------------------------------------

    def capture(self, runner: Any, *args: Any, **kwargs: Any) -> Body:
        with self._process.tracer.cpu("capture", step=NONE):
            yield

    def warmup(self, worker: Any, *args: Any, **kwargs: Any) -> Body:
        self._process.lane(self._process.role or CORE)
        if self._process.config is None:
            self._process.config = getattr(worker, "vllm_config", None)
        with self._process.tracer.cpu("warmup", step=NONE):
            yield


GRAPHS = {name: {"graph": name} for name in ("full", "piecewise", "none")}
