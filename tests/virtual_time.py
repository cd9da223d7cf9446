"""A device and a host in virtual time: the real loops and recorder, durations that are given, and so an exact truth.

Every host phase takes what ``Costs`` says, before it does anything; queued work runs as early as the order of its
stream and the events before it allow. Nothing looks at a real clock, so a run gives the same trace on any machine.
The next token is a hash of the row's noise key, which depends on the request and the position alone: sync and async
make the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cbprof.engine.batch import Batch
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.devices.base import DeviceEvidence, Program, SlotBuffers, StreamKind, Streams
from cbprof.engine.devices.base import Event as EventProtocol
from cbprof.engine.devices.base import Stream as StreamProtocol
from cbprof.engine.loops import LOOPS
from cbprof.engine.run import Run, prepare_run
from cbprof.engine.workload import Workload
from cbprof.meta import Meta
from cbprof.record.clocks.base import ClockErrors, NoClock, Times
from cbprof.record.span_tracer import SpanTracer
from cbprof.trace import Trace, TraceBuilder

US = 1000
VOCAB = 1009


@dataclass(frozen=True)
class Costs:
    """What a step costs, in microseconds. ``row``, ``token`` and ``context`` are added for each of them.

    ``glue``: host time without a span before every phase and wait. ``wake``: from the end of the copy back until a host
    that slept runs again. ``latency``: from the launch until the device starts. ``jitter``: every duration is drawn
    from 1 - jitter to 1 + jitter of its length, by step and name.
    """

    schedule: float = 100
    schedule_row: float = 2
    prepare: float = 200
    prepare_row: float = 3
    h2d_call: float = 20
    launch: float = 60
    fetch: float = 20
    update: float = 150
    update_row: float = 4
    glue: float = 0
    wake: float = 0
    latency: float = 5
    h2d: float = 15
    d2h: float = 10
    compute: float = 2000
    compute_token: float = 5
    compute_context: float = 0.05
    jitter: float = 0

    def host(self, name: str, rows: int) -> float:
        base = getattr(self, {"h2d": "h2d_call"}.get(name, name))
        return float(base + rows * getattr(self, f"{name}_row", 0))


class VirtualClock:
    """Time passes only where somebody says so."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time

    def sleep_until(self, time_ns: int) -> None:
        self.time = max(self.time, time_ns)


class VirtualEvent:
    def __init__(self, device: VirtualDevice, name: str) -> None:
        self.name = name
        self.time = 0
        self._device = device

    def record(self, stream: StreamProtocol) -> None:
        self.time = max(self._device.clock.time, self._device.free[self._device.queue_of[stream.kind]])

    def synchronize(self) -> None:
        clock = self._device.clock
        if clock.time < self.time:
            clock.time = self.time + round(self._device.costs.wake * US)


class VirtualStream:
    def __init__(self, device: VirtualDevice, kind: StreamKind) -> None:
        self.kind: StreamKind = kind
        self._device = device

    def wait(self, event: EventProtocol) -> None:
        assert isinstance(event, VirtualEvent)
        queue = self._device.queue_of[self.kind]
        self._device.free[queue] = max(self._device.free[queue], event.time)


class VirtualDevice:
    """Streams that are free again at a known time. Also the clock of the recorder: it knows when what ran."""

    name = "virtual"
    evidence: DeviceEvidence = "emulated"
    errors = ClockErrors(1, 1)

    def __init__(self, config: EngineConfig, clock: VirtualClock, costs: Costs) -> None:
        self.layout = config.layout
        self.buckets = tuple(range(1, config.max_batch_tokens + 1))
        self.clock = clock
        self.costs = costs
        self.slots = [
            SlotBuffers(np.zeros(self.layout.input_size, np.int32), np.zeros(self.layout.output_size, np.int32))
            for _ in range(config.slots)
        ]
        self.queue_of: dict[StreamKind, StreamKind] = {}
        self.free: dict[StreamKind, int] = {}
        self._last: dict[StreamKind, Times] = {}
        self._ran = 0

    def streams(self, *, separate: bool) -> Streams:
        self.queue_of = {"h2d": "h2d", "compute": "compute", "d2h": "d2h"}
        if not separate:
            self.queue_of = dict.fromkeys(self.queue_of, "compute")
        self.free = dict.fromkeys(self.queue_of.values(), 0)
        return Streams(
            h2d=VirtualStream(self, "h2d"), compute=VirtualStream(self, "compute"), d2h=VirtualStream(self, "d2h")
        )

    def event(self, name: str) -> VirtualEvent:
        return VirtualEvent(self, name)

    def run(self, program: Program, slot: int, stream: StreamProtocol, bucket: int = 0) -> None:
        fields = self.layout.fields
        inputs, output = self.slots[slot].inputs, self.slots[slot].output
        costs = self.costs
        if program == "step":
            keys = inputs[fields["noise_key"].offset : fields["noise_key"].stop]
            output[: len(keys)] = (keys.astype(np.int64) & 0xFFFFFF) % VOCAB
            context = int(inputs[fields["context"].offset : fields["context"].stop].sum())
            length = costs.compute + costs.compute_token * bucket + costs.compute_context * context
            self._ran += 1
        else:
            length = costs.h2d if program == "h2d" else costs.d2h
        length_ns = round(length * US * jitter(costs, self._ran, program))
        queue = self.queue_of[stream.kind]
        start = max(self.clock.time, self.free[queue]) + round(costs.latency * US)
        self.free[queue] = start + length_ns
        self._last[stream.kind] = Times(start, start + length_ns)

    def synchronize(self) -> None:
        self.clock.time = max(self.clock.time, *self.free.values())

    def begin(self, stream: Any) -> None:
        pass

    def end(self, stream: Any, handle: None) -> Times:
        return self._last[stream.kind]

    def resolve(self, handle: Times) -> Times:
        return handle

    def anchor(self, *, final: bool = False) -> None:
        pass

    def paused(self) -> AbstractContextManager[object]:
        return NoClock().paused()

    def close(self) -> None:
        pass


class CostlyTracer(SpanTracer):
    """A tracer whose phases take their time, before they do what they do."""

    def __init__(self, sink: TraceBuilder, device: VirtualDevice) -> None:
        super().__init__(sink, device, now=device.clock.now, origin_ns=0)
        self._device = device
        self._rows: dict[int, int] = {}

    def phase(self, name: str, step: int, *, slot: int = -1, stream: Any = None) -> AbstractContextManager[None]:
        return self._taking_time(super().phase(name, step, slot=slot, stream=stream), name, step)

    def wait(self, name: str, step: int, *, slot: int = -1) -> AbstractContextManager[None]:
        self._pass(self._device.costs.glue)
        return super().wait(name, step, slot=slot)

    @contextmanager
    def _taking_time(self, span: AbstractContextManager[None], name: str, step: int) -> Iterator[None]:
        costs = self._device.costs
        self._pass(costs.glue)
        with span:
            rows = self._rows.get(step, self._rows.get(step - 1, 0))
            self._pass(costs.host(name, rows) * jitter(costs, step, name))
            yield

    def _pass(self, us: float) -> None:
        self._device.clock.time += round(us * US)

    def batch(self, batch: Batch) -> None:
        self._rows[batch.step] = batch.num_requests
        super().batch(batch)


def jitter(costs: Costs, step: int, name: str) -> float:
    """A factor that is the same whenever this step does this."""
    if not costs.jitter:
        return 1.0
    return 1 + costs.jitter * np.random.default_rng([step, *name.encode()]).uniform(-1, 1)


def stop_tokens(mean: float) -> tuple[int, ...]:
    """So many tokens that end a request after ``mean`` tokens on average."""
    return tuple(range(round(VOCAB / mean)))


def record_virtual(config: EngineConfig, workload: Workload, mode: Mode, costs: Costs) -> tuple[Trace, Run]:
    """Serve ``workload`` in virtual time: the trace as ``cbprof run`` records it, and the run."""
    clock, sink = VirtualClock(), TraceBuilder()
    device = VirtualDevice(config, clock, costs)
    tracer = CostlyTracer(sink, device)
    run = prepare_run(config, device, workload.make_requests(VOCAB), mode, hooks=tracer, clock=clock)
    LOOPS[mode](run)
    recorded = tracer.close()
    meta = {
        "mode": mode,
        "evidence": "emulated",
        "complete": True,
        "tokens": recorded.tokens,
        "clock_error_ns": recorded.clock_error_ns,
        "device_error_ns": recorded.device_error_ns,
        "config": asdict(config),
        "workload": {"batch": config.max_batch, **asdict(workload)},
    }
    return sink.build(Meta.parse(meta)), run
