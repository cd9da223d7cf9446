"""What the model runner of vLLM does, as phases; V1 and V2 alike, in the engine core or in a process of its own.

::

    execute_model    prepare [ inputs | launch ............ ]
    sample_tokens                                             sample [ fetch | (sync: wait, read) ]
    get_output                                                             async, later: wait, read
    main stream                          [ compute ............................ ]
    copy stream                                                             [ d2h ]

Compute lies between two events on the main stream, before the forward pass and behind the last that sampling queues.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, NamedTuple

from cbprof.record.clocks.choice import cuda_is_there
from cbprof.record.engines.vllm.batches import tokens_of
from cbprof.record.engines.vllm.core import CORE, CorePhases
from cbprof.record.engines.vllm.loop import STEP, step_of
from cbprof.trace import NONE

Body = Generator[None, Any, None]

COPY_EVENTS = ("copy_event", "async_copy_ready_event")
"""What an output waits for, in V2 and V1."""


class HostDevice(NamedTuple):
    """Stands for the stream of a worker without a GPU, which plays the device itself."""

    device_index: int


class RunnerPhases(CorePhases):
    """Hooks for the model runner."""

    _copied: Any = None
    """An event of ours that copies wait for; made once."""

    def begins_as_worker(self, wrapper: Any, *args: Any, **kwargs: Any) -> Body:
        yield
        process = self._process
        if process.role != CORE:
            process.role = f"worker {getattr(wrapper, 'global_rank', getattr(wrapper, 'rpc_rank', 0))}"
        self._begins()

    def await_message(self, queue: Any, *args: Any, **kwargs: Any) -> Body:
        """A worker waits for what the engine core sends. The engine core's own waits are told by what they are for."""
        process = self._process
        if not process.role.startswith("worker") or process.loop.awaiting:
            return
        loop = process.lane(process.role)
        with process.tracer.wait("ipc", step=loop.step):
            yield

    def send_output(self, worker: Any, output: Any, *args: Any, **kwargs: Any) -> Body:
        process = self._process
        loop = process.loop
        if loop.recorder is None:  # in async a thread of its own
            process.lane(f"{process.role} output")
        with process.tracer.cpu("ipc", step=step_of(output, loop.step)):
            yield

    # The batch is prepared and launched -------------------------------------------------------------------------------

    def prepare(self, runner: Any, output: Any, *args: Any, **kwargs: Any) -> Body:
        process = self._process
        if kwargs.get("dummy_run"):
            return
        loop = process.lane(process.role)
        if process.config is None:
            process.config = getattr(runner, "vllm_config", None)
        loop.step = step_of(output) if tokens_of(output) else NONE
        if process.role != CORE and loop.step != NONE:
            process.steps = loop.step + 1
            process.step_begins(loop.step)
        loop.compute = None  # of a batch that failed
        loop.executing = True
        loop.depth += 1
        try:
            with process.tracer.cpu("prepare", step=loop.step) as span:
                yield
                loop.close_launch()
                span.step = loop.step
        finally:
            loop.executing, loop.launch = False, None
            loop.depth -= 1

    def inputs(self, theirs: Any, *args: Any, **kwargs: Any) -> Body:
        loop = self._process.loop
        if not loop.executing:
            return
        with self._process.tracer.cpu("inputs", step=loop.step):
            yield

    def forward(self, *args: Any, **kwargs: Any) -> Body:
        """The forward pass begins; what follows in ``execute_model`` launches it."""
        mode = getattr(kwargs.get("cudagraph_runtime_mode"), "name", "NONE")
        self._launch(str(mode).lower())
        yield from ()

    def replay(self, manager: Any, *args: Any, **kwargs: Any) -> Body:
        self._launch("full")
        yield from ()

    def _launch(self, graph: str) -> None:
        process, loop = self._process, self._process.loop
        if not loop.executing or loop.launch is not None or loop.step == NONE or not process.tracer.on:
            return
        stream = _current_stream()
        name = "launch" if stream is not None else "compute"
        launch = process.tracer.gpu("compute", stream or self._host_device(), launch=name, step=loop.step)
        span = launch.__enter__()
        span.hold()
        span.facts = {"graph": graph}
        loop.launch, loop.compute = launch, span
        process.graphs[graph] += 1

    def _host_device(self) -> HostDevice:
        rank = self._process.role.removeprefix("worker ")
        return HostDevice(int(rank) if rank.isdigit() else 0)

    def sample(self, runner: Any, *args: Any, **kwargs: Any) -> Body:
        loop = self._process.loop
        loop.depth += 1
        try:
            with self._process.tracer.cpu("sample", step=loop.step):
                yield
                loop.end_compute()
        finally:
            loop.depth -= 1

    # The tokens come back ---------------------------------------------------------------------------------------------

    def fetch(self, output: Any, *args: Any, **kwargs: Any) -> Body:
        process, loop = self._process, self._process.loop
        stream = kwargs.get("copy_stream", kwargs.get("async_output_copy_stream"))
        setattr(output, STEP, loop.step)
        if not process.tracer.on or not hasattr(stream, "cuda_stream"):
            with process.tracer.cpu("fetch", step=loop.step):
                yield
            return
        self._wait_for_main(stream)
        with process.tracer.gpu("d2h", stream, use="d2h", launch="fetch", step=loop.step):
            yield

    def _wait_for_main(self, stream: Any) -> None:
        """Let the copy stream wait for the main stream, as the copy itself is about to: so that our start event, behind
        it, marks the start of the copy and not of the waiting."""
        if self._copied is None:
            self._copied = sys.modules["torch"].cuda.Event()
        self._copied.record(_current_stream())
        stream.wait_event(self._copied)

    def wait(self, output: Any, *args: Any, **kwargs: Any) -> Body:
        """``get_output`` blocks on an event first, and reads then."""
        process, loop = self._process, self._process.loop
        step = step_of(output, loop.step)
        loop.end_compute()  # in sync this is the end of sampling
        event = next((event for name in COPY_EVENTS if (event := getattr(output, name, None)) is not None), None)
        loop.depth += 1
        try:
            if event is None:
                with process.tracer.wait("wait", step=step):
                    yield
            else:
                with process.tracer.wait("wait", step=step):
                    event.synchronize()
                with process.tracer.cpu("read", step=step):
                    yield
        finally:
            loop.depth -= 1

    def wait_at_once(self, runner: Any, *args: Any, **kwargs: Any) -> Body:
        """V1 in sync copies and waits in one."""
        loop = self._process.loop
        loop.end_compute()
        with self._process.tracer.wait("wait", step=loop.step):
            yield

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


def _current_stream() -> Any:
    """The stream that torch queues on, None where there is no GPU."""
    return sys.modules["torch"].cuda.current_stream() if cuda_is_there() else None
