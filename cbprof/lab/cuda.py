"""The bench on a GPU: bare integer arithmetic as a CUDA graph, a real model for the engine, streams of every sort."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch

from cbprof.engine.config import EngineConfig
from cbprof.engine.devices.base import DeviceEvidence, Event, Program, SlotBuffers, Stream, Streams
from cbprof.engine.devices.cuda import CudaEvent, CudaStream
from cbprof.engine.engine import Engine
from cbprof.errors import UsageError
from cbprof.lab.arithmetic import MULTIPLIER, SHIFT
from cbprof.lab.bench import SLOTS, Server
from cbprof.record.clocks.base import DeviceClock
from cbprof.record.clocks.cuda import CudaClock

INPUTS = 1 << 22
"""Integers of a slot's input: 16 MB, a copy that can be seen."""

OUTPUTS = 1 << 20

ROUNDS = 800
"""Rounds of a computation: some 10 ms, longer than the host takes to prepare another input."""

MAX_BATCH = 32
PROMPT_TOKENS = 24


class CudaArithmetic:
    """The bare device: two slots, and on each a graph that churns its input as :mod:`cbprof.lab.arithmetic` says.

    Raises :class:`UsageError` where torch sees no GPU.
    """

    evidence: DeviceEvidence = "cuda_events"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise UsageError("torch sees no CUDA device: use --device host, or check nvidia-smi and the build of torch")
        self.name = torch.cuda.get_device_name()
        self._pinned = [(_pinned(INPUTS), _pinned(OUTPUTS)) for _ in range(SLOTS)]
        self.slots = [SlotBuffers(inputs.numpy(), output.numpy()) for inputs, output in self._pinned]
        self._inputs = [_on_device(INPUTS) for _ in range(SLOTS)]
        self._outputs = [_on_device(OUTPUTS) for _ in range(SLOTS)]
        # A graph keeps addresses, not tensors: without this, what is allocated later lies where a replay writes.
        self._scratch = [(_on_device(OUTPUTS), _on_device(OUTPUTS)) for _ in range(SLOTS)]
        self._graphs = [self._capture(slot) for slot in range(SLOTS)]
        raw = [torch.cuda.Stream() for _ in range(3)]
        self._separate = Streams(CudaStream(raw[0], "h2d"), CudaStream(raw[1], "compute"), CudaStream(raw[2], "d2h"))
        self._merged = Streams(CudaStream(raw[1], "h2d"), CudaStream(raw[1], "compute"), CudaStream(raw[1], "d2h"))

    def _capture(self, slot: int) -> torch.cuda.CUDAGraph:
        """The computation of a slot as one command. Its scratch is its own, so that two slots can compute at once."""
        state, shifted = self._scratch[slot]
        chunks = self._inputs[slot].view(-1, OUTPUTS)

        def churn(rounds: int) -> None:
            state.zero_()
            for number in range(rounds):
                state.bitwise_xor_(chunks[number % len(chunks)])
                state.mul_(MULTIPLIER)
                torch.bitwise_right_shift(state, SHIFT, out=shifted)
                state.bitwise_xor_(shifted)
            self._outputs[slot].copy_(state)

        churn(1)  # loads the kernels, which a capture must not
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            churn(ROUNDS)
        return graph

    def streams(self, *, separate: bool) -> Streams:
        return self._separate if separate else self._merged

    def event(self, name: str) -> Event:
        return CudaEvent(name)

    def run(self, program: Program, slot: int, stream: Stream, bucket: int = 0) -> None:
        assert isinstance(stream, CudaStream)
        inputs, output = self._pinned[slot]
        with torch.cuda.stream(stream.raw):
            if program == "h2d":
                self._inputs[slot].copy_(inputs, non_blocking=True)
            elif program == "step":
                self._graphs[slot].replay()
            else:
                output.copy_(self._outputs[slot], non_blocking=True)

    def compute_on(self, slot: int, stream: torch.cuda.Stream) -> None:
        """Queue the computation of a slot on any stream. Two replays of one slot's graph never overlap."""
        with torch.cuda.stream(stream):
            self._graphs[slot].replay()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        self._graphs.clear()
        torch.cuda.empty_cache()


class CudaBench:
    """The bare device, and beside it the reference engine with ``model``, loaded when it is first asked for."""

    def __init__(self, model: str) -> None:
        self.device = CudaArithmetic()
        self._model = model
        self._engine: Engine | None = None

    @cached_property
    def server(self) -> Server:
        config = EngineConfig(
            model=self._model,
            device="cuda",
            max_batch=MAX_BATCH,
            max_batch_tokens=MAX_BATCH * PROMPT_TOKENS,
            max_context=256,
        )
        self._engine = Engine(config)
        return Server(self._engine.config, self._engine.device, self._engine.vocab_size, new_tokens=64)

    def clock(self) -> DeviceClock:
        return CudaClock(torch.cuda.current_device(), pairs=256)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self.device.close()


@contextmanager
def blocking_stream() -> Iterator[torch.cuda.Stream]:
    """A stream as ``cudaStreamCreate`` makes it: it and the legacy default stream wait for each other.

    torch itself makes all of its streams with ``cudaStreamNonBlocking``, which do not.
    """
    runtime = torch.cuda.cudart()
    handle = ctypes.c_void_p()
    torch.cuda.check_error(runtime.cudaStreamCreate(ctypes.addressof(handle)))
    assert handle.value is not None
    try:
        yield torch.cuda.ExternalStream(handle.value)
    finally:
        torch.cuda.synchronize()
        torch.cuda.check_error(runtime.cudaStreamDestroy(handle.value))


def _pinned(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32, pin_memory=True)


def _on_device(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32, device="cuda")
