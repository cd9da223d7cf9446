"""The host device: a child process plays the GPU, so that the engine can run, and be watched, without one.

A thread would not do: it shares the interpreter lock with the engine's loop, which makes async *slower* than sync. The
child (:mod:`cbprof.engine.devices.host.child`) owns the model and its device buffers. A queue is a pipe, and a program
one command on it, as a graph replay is one launch. The "pinned" slot buffers are shared memory, which the child reads
when a copy executes, so that a missing event is a real race. Operations are stamped by the child on the machine's
monotonic clock, which is ``time.perf_counter_ns`` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from cbprof.engine.devices.base import DeviceEvidence, Event, Program, SlotBuffers, Stream, StreamKind, Streams
from cbprof.engine.devices.host.process import DeviceProcess
from cbprof.engine.devices.host.wire import PROGRAMS, QUEUES, WAIT, Cores
from cbprof.engine.layout import SlotLayout
from cbprof.errors import EngineError

if TYPE_CHECKING:
    from cbprof.engine.model.spec import ModelSpec

TORCH_MODEL = "cbprof.engine.devices.host.child:torch_model"


class Stamps(NamedTuple):
    """When a run of operations was executed, in ns of ``time.perf_counter_ns``."""

    start_ns: int
    end_ns: int


class Queue:
    """An in-order queue of the child, and the counts of what was sent on it."""

    def __init__(self, process: DeviceProcess, index: int) -> None:
        self.index = index
        self.commands = 0
        self.operations = 0
        self._process = process

    def run(self, program: Program, slot: int, bucket: int) -> None:
        self._process.send(self.index, PROGRAMS.index(program), slot, bucket)
        self.commands += 1
        self.operations += 1

    def wait_for(self, other: Queue, count: int) -> None:
        """Hold back later commands until ``count`` commands of ``other`` are done."""
        self._process.send(self.index, WAIT, other.index, count)
        self.commands += 1

    def synchronize(self, count: int) -> None:
        """Block the host until ``count`` commands are done."""
        self._process.wait_done(self.index, count)


class HostStream:
    """A view of a queue."""

    def __init__(self, kind: StreamKind, work: Queue) -> None:
        self.kind = kind
        self.work = work

    @property
    def queue(self) -> int:
        """The id of the queue. In sync mode the three streams have the same."""
        return self.work.index

    @property
    def submitted(self) -> int:
        """How many operations were queued so far on the stream's queue. Waits and records are not operations."""
        return self.work.operations

    def wait(self, event: Event) -> None:
        if not isinstance(event, HostEvent):
            raise TypeError(f"event {event.name} belongs to another kind of device")
        if event.recorded_on is None or event.recorded_on is self.work:
            return  # never recorded; or on this very queue, whose order is all it needs
        self.work.wait_for(event.recorded_on, event.count)


class HostEvent:
    """A place in a queue: how many commands stood there when the event was recorded. Recording sends nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded_on: Queue | None = None
        self.count = 0

    def record(self, stream: Stream) -> None:
        self.recorded_on = _host(stream).work
        self.count = self.recorded_on.commands

    def synchronize(self) -> None:
        if self.recorded_on is not None:
            self.recorded_on.synchronize(self.count)


def _host(stream: Stream) -> HostStream:
    if not isinstance(stream, HostStream):
        raise TypeError(f"the {stream.kind} stream belongs to another kind of device")
    return stream


class HostDevice:
    """A device of one child process, which computes on one CPU thread a queue.

    The compute thread has the last core. The thread that opens the device, and what it starts, stays off it until
    :meth:`close`.

    ``factory`` names, as ``module:function``, what builds the child's :class:`~.host_child.DeviceModel`. The last
    ``ring`` operations of each queue keep their stamps. Raises what loading the model raises; any later failure of the
    child is an :class:`EngineError` from the next call.
    """

    name = "host process"
    evidence: DeviceEvidence = "emulated"

    def __init__(
        self,
        spec: ModelSpec,
        layout: SlotLayout,
        *,
        num_blocks: int,
        slots: int,
        buckets: Sequence[int],
        factory: str = TORCH_MODEL,
        ring: int = 1 << 16,
    ) -> None:
        self._process = DeviceProcess(factory, spec, layout, num_blocks=num_blocks, slots=slots, ring=ring)
        self._cores = Cores()
        self._cores.leave_last()
        memory = self._process.memory
        self.facts = self._process.facts
        self.layout = layout
        self.buckets = tuple(buckets)
        self.slots = tuple(SlotBuffers(*buffers) for buffers in zip(memory.inputs, memory.outputs, strict=True))
        self._queues = [Queue(self._process, index) for index in range(len(QUEUES))]
        one = self._queues[QUEUES.index("compute")]
        self._separate = Streams(*(HostStream(kind, queue) for kind, queue in zip(QUEUES, self._queues, strict=True)))
        self._merged = Streams(*(HostStream(kind, one) for kind in QUEUES))

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._process.pid

    def streams(self, *, separate: bool) -> Streams:
        return self._separate if separate else self._merged

    def event(self, name: str) -> HostEvent:
        return HostEvent(name)

    def run(self, program: Program, slot: int, stream: Stream, bucket: int = 0) -> None:
        _host(stream).work.run(program, slot, bucket)

    def stamps(self, queue: int, first: int, last: int) -> Stamps | None:
        """The start of operation ``first`` and the end of ``last``, both counted from 0 on their queue.

        None while ``last`` is not executed. Raises EngineError where the ring holds them no more.
        """
        memory = self._process.memory
        if memory.executed[queue] <= last:
            return None
        ring = memory.stamps[queue]
        stamps = Stamps(int(ring[first % len(ring), 0]), int(ring[last % len(ring), 1]))
        # Looked at after reading: the child may be writing the stamps of operation ``executed`` at this moment.
        if memory.executed[queue] - first >= len(ring):
            raise EngineError(f"the stamps of operation {first} are lost: the last {len(ring)} of a queue are kept")
        return stamps

    def synchronize(self) -> None:
        for queue in self._queues:
            queue.synchronize(queue.commands)

    def settle(self) -> None:
        self._process.settle([queue.commands for queue in self._queues])

    def close(self) -> None:
        """End the child. Its slot buffers stay readable; everything else raises EngineError from now on."""
        self._process.close()
        self._cores.use_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
