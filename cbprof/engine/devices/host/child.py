"""The child process that plays the GPU: three in-order queues, a thread each, over one model.

::

    parent                               child
    control  --- Setup --------------->  load the model          (main thread)
             <-- facts, or an error ---
             ... end of file --------->  exit at once            (watch thread)
    pipe 0   --- commands ------------>  queue h2d               (a thread)
    pipe 1   --- commands ------------>  queue compute           (a thread)
    pipe 2   --- commands ------------>  queue d2h               (a thread)
    wake     <-- a byte a command -----

The parent holds the only other end of ``control``, so it cannot end, by whatever means, without ending this process.
Started by :mod:`cbprof.engine.devices.host.device` as ``python -m cbprof.engine.devices.host.child DESCRIPTOR``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from time import perf_counter_ns
from typing import Any, NoReturn, Protocol

import numpy as np

from cbprof.engine.devices.base import IntArray, Program
from cbprof.engine.devices.host.wire import COMMAND, PROGRAMS, QUEUES, WAIT, Cores, Setup, SharedMemory
from cbprof.errors import CbprofError, EngineError


class DeviceModel(Protocol):
    """What a factory builds from a :class:`Setup`: the model with its private slot buffers, flat int32 on the CPU."""

    @property
    def facts(self) -> object:
        """What the parent wants to know of the model; pickled."""

    @property
    def inputs(self) -> Sequence[Any]:
        """The device input buffer of each slot: anything that numpy can view, such as a CPU tensor."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The device output buffer of each slot."""

    def step(self, slot: int, bucket: int) -> None:
        """Run the model on a slot, padded to ``bucket`` tokens."""


WARM_UPS = 3
"""The first steps of a model take longer: torch sets itself up."""


def torch_model(setup: Setup) -> DeviceModel:
    """The default factory: the reference model on one CPU thread."""
    import torch

    from cbprof.engine.model.runner import Runner

    torch.set_num_threads(1)  # the other cores belong to the parent
    runner = Runner(
        setup.spec, setup.layout, num_blocks=setup.num_blocks, slots=setup.slots, device=torch.device("cpu")
    )
    for _ in range(WARM_UPS):
        runner.step(0, setup.layout.max_requests)  # a new runner's inputs are padding, which touches nothing
    return runner


Programs = Mapping[Program, Callable[[int, int], None]]


def program_table(model: DeviceModel, memory: SharedMemory) -> Programs:
    """The functions of (slot, bucket) that a command can name. Copies read and write only when they run."""
    inputs: list[IntArray] = [np.asarray(buffer) for buffer in model.inputs]
    outputs: list[IntArray] = [np.asarray(buffer) for buffer in model.outputs]
    return {
        "h2d": lambda slot, _: np.copyto(inputs[slot], memory.inputs[slot]),
        "step": model.step,
        "d2h": lambda slot, _: np.copyto(memory.outputs[slot], outputs[slot]),
    }


class Progress:
    """How many commands each queue has finished; the other queues and the parent wait for these counts."""

    def __init__(self, memory: SharedMemory, wake: int) -> None:
        self._memory = memory
        self._wake = wake
        self._moved = threading.Condition()
        os.set_blocking(wake, False)

    def wait(self, queue: int, count: int) -> None:
        """Block until ``count`` commands of ``queue`` are done."""
        with self._moved:
            self._moved.wait_for(lambda: self._memory.done[queue] >= count)

    def stamp(self, queue: int, start_ns: int, end_ns: int) -> None:
        """Note when an operation of ``queue`` was executed; the count moves last, so that what it covers is there."""
        executed, ring = self._memory.executed, self._memory.stamps[queue]
        ring[executed[queue] % len(ring)] = start_ns, end_ns
        executed[queue] += 1

    def advance(self, queue: int) -> None:
        """Count one command of ``queue`` as done. Never blocks: the byte only says that ``done`` is worth a look."""
        with self._moved:
            self._memory.done[queue] += 1
            self._moved.notify_all()
        with suppress(BlockingIOError):  # the pipe is full of bytes not yet read, so the parent will look
            os.write(self._wake, b".")


class Reports:
    """The child's side of the control channel: the facts of the model first, then at most one error."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._lock = threading.Lock()

    def ready(self, facts: object) -> None:
        self._control.send(facts)

    def fail(self, doing: str, error: BaseException) -> NoReturn:
        """Tell the parent, and end this process; what fails in another thread meanwhile is dropped."""
        with self._lock:
            if os.environ.get("CBPROF_DEBUG"):
                traceback.print_exception(error)
            if not isinstance(error, CbprofError):
                text = " ".join(str(error).split())[:500]
                error = EngineError(f"the device process failed to {doing}: {type(error).__name__}: {text}")
            try:
                self._control.send(error)
            finally:
                os._exit(1)


def serve(queue: int, pipe: int, programs: Programs, progress: Progress, reports: Reports) -> None:
    """Execute the commands of one queue in order. An operation starts once the waits before it are over."""
    doing = "read a command"
    cores = Cores()
    if QUEUES[queue] == "compute":
        cores.take_last()
    else:
        cores.leave_last()
    try:
        while command := os.read(pipe, COMMAND.size):
            code, target, number = COMMAND.unpack(command)
            if code == WAIT:
                progress.wait(target, number)
            else:
                program = PROGRAMS[code]
                doing = f"run {program} on slot {target}"
                start_ns = perf_counter_ns()
                programs[program](target, number)
                progress.stamp(queue, start_ns, perf_counter_ns())
            progress.advance(queue)
    except BaseException as error:
        reports.fail(doing, error)


def exit_with_parent(control: Connection) -> None:
    """Block until the parent closes the control channel or dies, then leave, whatever is still queued or running."""
    try:
        control.recv()
    except (EOFError, OSError):
        os._exit(0)


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it may still want results
    control = Connection(descriptor)
    setup: Setup = control.recv()
    reports = Reports(control)
    threading.Thread(target=exit_with_parent, args=(control,), daemon=True).start()
    try:
        memory = SharedMemory.map(setup.memory, setup.layout, slots=setup.slots, ring=setup.ring)
        module, _, function = setup.factory.partition(":")
        model: DeviceModel = getattr(import_module(module), function)(setup)
        programs = program_table(model, memory)
        reports.ready(model.facts)
    except BaseException as error:
        reports.fail("load the model", error)
    progress = Progress(memory, setup.wake)
    for queue, pipe in enumerate(setup.pipes):
        arguments = (queue, pipe, programs, progress, reports)
        threading.Thread(target=serve, args=arguments, name=QUEUES[queue]).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
