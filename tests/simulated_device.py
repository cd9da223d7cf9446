"""A device without hardware and without time, for tests: it runs queued work in any order that is allowed.

Work waits in in-order queues, one a stream. At every call of the host, a seeded draw decides how much of it happens
and in which order; only the order within a stream and the events between streams bind it. So a missing event, a
missing wait or a missing slot shows up as wrong tokens for some seed, and the same seed shows it again.

The model is a hash: the next token is a function of the whole history, read through the block table from a cache of
token ids. Any stale input, lost carry-over or misplaced block changes it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from cbprof.engine.devices.base import DeviceEvidence, IntArray, Program, SlotBuffers, StreamKind, Streams
from cbprof.engine.devices.base import Event as EventProtocol
from cbprof.engine.devices.base import Stream as StreamProtocol
from cbprof.engine.layout import SlotLayout


class Operation(NamedTuple):
    """Queued work: a program on a slot, or the record of, or wait for, the ``target``-th record of an event."""

    what: Program | str
    slot: int = -1
    bucket: int = 0
    event: SimulatedEvent | None = None
    target: int = 0


class SimulatedEvent:
    """Counts its records: how many were queued, and how many have happened."""

    def __init__(self, device: SimulatedDevice, name: str) -> None:
        self.name = name
        self.queued = 0
        self.happened = 0
        self._device = device

    def record(self, stream: StreamProtocol) -> None:
        if self.name in self._device.broken:
            return
        self.queued += 1
        self._device.queue(stream.kind).append(Operation("record", event=self, target=self.queued))
        self._device.progress()

    def synchronize(self) -> None:
        target = self.queued
        while self.happened < target:
            self._device.execute_one()
        self._device.progress()


class SimulatedStream:
    """A view of one of the device's queues."""

    def __init__(self, device: SimulatedDevice, kind: StreamKind) -> None:
        self.kind: StreamKind = kind
        self._device = device

    def wait(self, event: EventProtocol) -> None:
        assert isinstance(event, SimulatedEvent)
        self._device.queue(self.kind).append(Operation("wait", event=event, target=event.queued))
        self._device.progress()


class SimulatedDevice:
    """Streams, events and slots over plain integers.

    ``eagerness`` is the chance that one more operation happens at a host call. Events named in ``broken`` are never
    recorded, so that waiting for them does nothing: a fault planted by a test.
    """

    name = "simulated"
    evidence: DeviceEvidence = "emulated"

    def __init__(
        self,
        layout: SlotLayout,
        *,
        num_blocks: int,
        buckets: Sequence[int],
        seed: int,
        slots: int = 2,
        vocab_size: int = 97,
        eagerness: float = 0.5,
        broken: Collection[str] = (),
    ) -> None:
        self.layout = layout
        self.buckets = tuple(buckets)
        self.broken = frozenset(broken)
        self.vocab_size = vocab_size
        self.slots = [
            SlotBuffers(np.zeros(layout.input_size, np.int32), np.zeros(layout.output_size, np.int32))
            for _ in range(slots)
        ]
        self._inputs = [np.zeros_like(slot.inputs) for slot in self.slots]
        self._outputs = [np.zeros_like(slot.output) for slot in self.slots]
        self._cache = np.full((num_blocks + 1) * layout.block_size, -1, np.int32)
        self._random = random.Random(seed)
        self._eagerness = eagerness
        self._queues: dict[StreamKind, deque[Operation]] = {"compute": deque()}

    def streams(self, *, separate: bool) -> Streams:
        self.synchronize()
        for kind in ("h2d", "d2h"):
            self._queues[kind] = deque() if separate else self._queues["compute"]
        return Streams(
            h2d=SimulatedStream(self, "h2d"), compute=SimulatedStream(self, "compute"), d2h=SimulatedStream(self, "d2h")
        )

    def event(self, name: str) -> SimulatedEvent:
        return SimulatedEvent(self, name)

    def queue(self, kind: StreamKind) -> deque[Operation]:
        return self._queues[kind]

    def run(self, program: Program, slot: int, stream: StreamProtocol, bucket: int = 0) -> None:
        self.queue(stream.kind).append(Operation(program, slot, bucket))
        self.progress()

    def synchronize(self) -> None:
        while any(self._queues.values()):
            self.execute_one()

    def settle(self) -> None:
        self.synchronize()

    def close(self) -> None:
        pass

    def progress(self) -> None:
        """Let the device get on with its work, or not: a host call takes any time at all."""
        while any(self._queues.values()) and self._random.random() < self._eagerness:
            self.execute_one()

    def execute_one(self) -> None:
        """Execute the first operation of a random queue among those that need not wait."""
        ready = [queue for queue in self._queues.values() if queue and not _must_wait(queue[0])]
        if not ready:
            raise AssertionError("the host waits for work that can never happen")
        operation = self._random.choice(ready).popleft()
        if operation.what == "record":
            assert operation.event is not None
            operation.event.happened = max(operation.event.happened, operation.target)
        elif operation.what == "h2d":
            self._inputs[operation.slot][:] = self.slots[operation.slot].inputs
        elif operation.what == "d2h":
            self.slots[operation.slot].output[:] = self._outputs[operation.slot]
        elif operation.what == "step":
            self._step(operation.slot, operation.bucket)

    def _step(self, slot: int, bucket: int) -> None:
        fields = {
            name: self._inputs[slot][f.offset : f.stop].reshape(f.shape) for name, f in self.layout.fields.items()
        }
        carry = fields["carry"][:bucket]
        before = self._outputs[(slot - 1) % len(self.slots)]
        ids = np.where(carry >= 0, before[carry], fields["input_ids"][:bucket])
        self._cache[fields["write_at"][:bucket]] = ids
        size = self.layout.block_size
        for row, context in enumerate(fields["context"].tolist()):
            if context:
                table = fields["block_table"][row, : -(-context // size)]
                history = self._cache.reshape(-1, size)[table].ravel()[:context]
                self._outputs[slot][row] = next_token(history, int(fields["noise_key"][row]), self.vocab_size)


def _must_wait(operation: Operation) -> bool:
    return operation.what == "wait" and operation.event is not None and operation.event.happened < operation.target


def next_token(history: IntArray, noise_key: int, vocab_size: int) -> int:
    """The simulated model: a hash (FNV-1a over the history) salted with the sampling noise of the position."""
    state = (2166136261 ^ noise_key) & 0xFFFFFFFF
    for token in history.tolist():
        state = ((state ^ (token & 0xFFFF)) * 16777619) & 0xFFFFFFFF
    return (state ^ state >> 15) % vocab_size
