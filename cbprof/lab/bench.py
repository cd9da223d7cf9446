"""What the experiments work on: a device with two slots and three streams, and a model behind the engine's loops.

On CUDA these are two things, plain integer arithmetic in a graph and a real model (:mod:`cbprof.lab.cuda`); without a
GPU one child process plays both (:mod:`cbprof.lab.bench`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cbprof.engine.config import EngineConfig
from cbprof.engine.devices.base import Device, DeviceEvidence, Event, Program, SlotBuffers, Stream, Streams
from cbprof.engine.devices.host.device import HostDevice
from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.spec import ModelSpec
from cbprof.record.clocks.base import DeviceClock
from cbprof.record.clocks.host import HostClock

SLOTS = 2


class BareDevice(Protocol):
    """What an experiment on bare streams uses of a device: see :class:`~cbprof.engine.devices.base.Device`.

    ``step`` churns a slot's whole input (:mod:`cbprof.lab.arithmetic`).
    """

    @property
    def name(self) -> str: ...

    @property
    def evidence(self) -> DeviceEvidence: ...

    @property
    def slots(self) -> Sequence[SlotBuffers]: ...

    def streams(self, *, separate: bool) -> Streams: ...

    def event(self, name: str) -> Event: ...

    def run(self, program: Program, slot: int, stream: Stream, bucket: int = 0) -> None: ...

    def synchronize(self) -> None: ...


@dataclass(frozen=True)
class Server:
    """A device with a model on it, the limits of the engine there, and how much to serve to see something."""

    config: EngineConfig
    device: Device
    vocab_size: int
    new_tokens: int


class Bench(Protocol):
    """A place to experiment."""

    @property
    def device(self) -> BareDevice: ...

    @property
    def server(self) -> Server:
        """Made at the first call."""

    def clock(self) -> DeviceClock:
        """A new clock of the device, for one recording."""

    def close(self) -> None: ...


LAYOUT = SlotLayout(max_tokens=1 << 18, max_requests=1 << 10, max_blocks=4, block_size=32)
"""Room for far more than the engine uses here: it makes a copy to the device (4.2 MB) long enough to be seen."""

CONFIG = EngineConfig(model="lab", device="host", max_batch=8, max_batch_tokens=2048, max_context=128, block_size=32)


class HostBench:
    """One child process: the arithmetic of the bare experiments, and a model of integers for the engine."""

    def __init__(self) -> None:
        self.device = HostDevice(
            ModelSpec(CONFIG.model),
            LAYOUT,
            num_blocks=CONFIG.cache_blocks,
            slots=SLOTS,
            buckets=CONFIG.buckets,
            factory="cbprof.lab.host_model:lab_model",
        )
        self.server = Server(CONFIG, self.device, self.device.facts.vocab_size, new_tokens=32)

    def clock(self) -> DeviceClock:
        return HostClock(self.device)

    def close(self) -> None:
        self.device.close()
