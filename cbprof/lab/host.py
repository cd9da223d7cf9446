"""The bench without a GPU: one child process serves every experiment, and nothing needs torch."""

from __future__ import annotations

from cbprof.engine.config import EngineConfig
from cbprof.engine.devices.host.device import HostDevice
from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.spec import ModelSpec
from cbprof.lab.bench import SLOTS, Server
from cbprof.record.clocks.base import DeviceClock
from cbprof.record.clocks.host import HostClock

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
