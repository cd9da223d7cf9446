"""The lab: a bench, and what every experiment needs of it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from cbprof.engine.devices.base import IntArray, Stream, Streams
from cbprof.engine.engine import check_installed
from cbprof.errors import UsageError
from cbprof.lab.bench import BareDevice, Bench, HostBench, Server
from cbprof.meta import Meta
from cbprof.record.recorder import Recorded
from cbprof.record.span_tracer import SpanTracer
from cbprof.record.tracer import Tracer
from cbprof.trace import Trace, TraceBuilder


class Tracing(Protocol):
    """Either of our tracers: the one for loops like the engine's, or the one for anybody's streams."""

    def close(self) -> Recorded | None: ...


T = TypeVar("T", bound=Tracing)


class Recording(Generic[T]):
    """What happens inside ``with`` is recorded by ``tracer`` into ``builder``; :attr:`trace` is there afterwards.

    ::

        recording = lab.recording()
        with recording as hooks:
            with hooks.phase("launch", step, slot=0, stream=streams.compute):
                ...
        recording.trace
    """

    def __init__(self, builder: TraceBuilder, tracer: T, meta: Meta) -> None:
        self._builder = builder
        self._tracer = tracer
        self._meta = meta
        self._trace: Trace | None = None

    def __enter__(self) -> T:
        return self._tracer

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        recorded = self._tracer.close()
        assert recorded is not None, "closed twice"
        self._trace = self._builder.build(
            self._meta.changed(
                complete=error is None,
                tokens=recorded.tokens,
                clock_error_ns=recorded.clock_error_ns,
                device_error_ns=recorded.device_error_ns,
                edges=tuple(recorded.edges),
            )
        )

    @property
    def trace(self) -> Trace:
        """What was recorded. Raises :class:`RuntimeError` while it is still going on."""
        if self._trace is None:
            raise RuntimeError("the recording is not over")
        return self._trace


class Batch(NamedTuple):
    """Some input, and the right answer."""

    inputs: IntArray
    answer: IntArray

    def wrong_pct(self, output: IntArray) -> float:
        """How many values of ``output`` are not the answer, in per cent."""
        return 100 * float(np.mean(output != self.answer))


class BareSlot:
    """The buffers of one batch, pinned on the host and private on the device, with the events of the async loop.

    It is the engine's :class:`~cbprof.engine.slots.Slot` without an engine: the same verbs, on plain integers.
    """

    def __init__(self, index: int, device: BareDevice) -> None:
        self.index = index
        self.output = device.slots[index].output
        self.inputs_ready = device.event("inputs_ready")
        self.outputs_ready = device.event("outputs_ready")
        self.done = device.event("done")
        self._inputs = device.slots[index].inputs
        self._device = device

    def prepare(self, inputs: IntArray) -> None:
        self._inputs[:] = inputs

    def copy_in(self, stream: Stream) -> None:
        self._device.run("h2d", self.index, stream)

    def launch(self, stream: Stream) -> None:
        self._device.run("step", self.index, stream)

    def copy_out(self, stream: Stream) -> None:
        self._device.run("d2h", self.index, stream)


class Lab:
    """A device to experiment on, open over many experiments.

    ::

        with Lab() as lab:
            print(events(lab).proves)

    ``model`` is the one that the engine serves on CUDA. Raises :class:`UsageError` for a device that is not there.
    """

    def __init__(self, device: str = "auto", *, model: str = "llama-1b") -> None:
        self.bench: Bench = _open_bench(device, model)
        self.device: BareDevice = self.bench.device
        self._random = np.random.default_rng(0)

    @property
    def on_cuda(self) -> bool:
        return self.device.evidence != "emulated"

    @property
    def times_are_its_own(self) -> bool:
        """False where the device shares its cores with whatever else runs on the machine. Other work only adds time, so
        that an experiment is held to its best steps there, and names what it leaves unchecked (:meth:`unchecked`)."""
        return self.on_cuda

    def unchecked(self, *claims: str) -> tuple[str, ...]:
        """The claims about times that cannot be checked here, for a :class:`~cbprof.lab.finding.Finding`."""
        return () if self.times_are_its_own else claims

    @property
    def streams(self) -> Streams:
        """Three streams that do not wait for each other, unless told to."""
        return self.device.streams(separate=True)

    @property
    def server(self) -> Server:
        """The engine's device. On CUDA the model is loaded by the first experiment that serves."""
        return self.bench.server

    @cached_property
    def slots(self) -> tuple[BareSlot, ...]:
        return tuple(BareSlot(index, self.device) for index in range(len(self.device.slots)))

    def recording(self, **facts: Any) -> Recording[SpanTracer]:
        """A new recording of the three streams; the facts, fields of :class:`Meta`, go into its trace."""
        builder = TraceBuilder()
        return Recording(builder, SpanTracer(builder, self.bench.clock()), self._meta(facts))

    def recording_of_any_stream(self, **facts: Any) -> Recording[Tracer]:
        """A new recording of streams of any kind and number."""
        builder = TraceBuilder()
        return Recording(builder, Tracer(builder, device=self.bench.clock()).start(), self._meta(facts))

    def _meta(self, facts: dict[str, Any]) -> Meta:
        known = Meta(evidence=self.device.evidence, engine="cbprof lab", device=self.device.name)
        return known.changed(**facts)

    def batches(self, count: int) -> list[Batch]:
        """New batches, never the same twice, with the answers that come of waiting for every operation."""
        stream, slot = self.streams.compute, self.slots[0]
        batches = []
        for _ in range(count):
            inputs = self._random.integers(-(1 << 31), 1 << 31, size=self.device.slots[0].inputs.size, dtype=np.int32)
            slot.prepare(inputs)
            for operation in (slot.copy_in, slot.launch, slot.copy_out):
                operation(stream)
                self.device.synchronize()
            batches.append(Batch(inputs, slot.output.copy()))
        return batches

    def close(self) -> None:
        self.bench.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_bench(device: str, model: str) -> Bench:
    """The bench on ``device``: ``cuda``, ``host``, or ``auto`` for CUDA where there is one.

    ``model`` is what the engine serves on CUDA. Raises :class:`UsageError` for a device that is not there.
    """
    if device not in ("auto", "cuda", "host"):
        raise UsageError(f"unknown device {device!r}: use auto, cuda or host")
    if device == "cuda" or (device == "auto" and _cuda_is_available()):
        from cbprof.lab.cuda import CudaBench

        check_installed()
        return CudaBench(model)
    return HostBench()


def _cuda_is_available() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
