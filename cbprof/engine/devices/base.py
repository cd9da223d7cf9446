"""What the engine asks of a device: streams, events, and three programs that run on a slot.

A slot is a pinned host buffer and a device buffer for the inputs of one batch, and the same for its output
(:mod:`cbprof.engine.layout`). The programs are named, and each is one command on a stream, as a graph replay is:

``h2d``   copy the slot's inputs from the host buffer to the device buffer
``step``  run the model on the slot's device inputs, padded to ``bucket`` tokens; write the slot's device output.
          A carried-over token is read from the device output of the slot before it, ``(slot - 1) % slots``
``d2h``   copy the slot's output to the host buffer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from cbprof.engine.layout import SlotLayout

StreamKind = Literal["h2d", "compute", "d2h"]
Program = Literal["h2d", "step", "d2h"]
IntArray = npt.NDArray[np.int32]


class Event(Protocol):
    """A point in a stream's work. Waiting on one that was never recorded does nothing, as in CUDA."""

    @property
    def name(self) -> str:
        """What the event means, such as ``inputs_ready``."""

    def record(self, stream: Stream) -> None:
        """Mark the end of the work queued so far. A later record replaces this one for later waits."""

    def synchronize(self) -> None:
        """Block the host until the latest record has happened."""


class Stream(Protocol):
    """An in-order queue of device work."""

    @property
    def kind(self) -> StreamKind:
        """What the queue is for; the category of the device spans recorded on it."""

    def wait(self, event: Event) -> None:
        """Hold back later work until the latest record of ``event``, as of this call, has happened."""


@dataclass(frozen=True)
class Streams:
    """The three kinds of stream. In sync mode they are three views of one queue."""

    h2d: Stream
    compute: Stream
    d2h: Stream


@dataclass(frozen=True)
class SlotBuffers:
    """The host side of a slot: int32 arrays over pinned (or shared) memory, flat, as the layout lays them out."""

    inputs: IntArray
    output: IntArray


DeviceEvidence = Literal["cuda_events", "emulated"]


class Device(Protocol):
    """A place that runs batches."""

    @property
    def name(self) -> str:
        """For people and metadata: ``NVIDIA H200``, ``host process``."""

    @property
    def evidence(self) -> DeviceEvidence:
        """What its spans are worth: ``cuda_events`` or ``emulated``."""

    @property
    def layout(self) -> SlotLayout:
        """The shapes of its slots."""

    @property
    def slots(self) -> Sequence[SlotBuffers]:
        """The host buffers of each slot."""

    @property
    def buckets(self) -> Sequence[int]:
        """The token counts, ascending, that ``step`` can be padded to."""

    def streams(self, *, separate: bool) -> Streams:
        """Three queues (``separate``), or one queue seen three times. The same objects on every call."""

    def event(self, name: str) -> Event:
        """A new event."""

    def run(self, program: Program, slot: int, stream: Stream, bucket: int = 0) -> None:
        """Queue a program on a stream and return at once."""

    def synchronize(self) -> None:
        """Block the host until everything that was queued has happened."""

    def settle(self) -> None:
        """After an error or Ctrl-C: block until what was queued has happened, for as long as the device gets on."""

    def close(self) -> None:
        """Give everything back. Safe to call twice."""
