"""The CUDA device: streams, events, pinned memory, and one CUDA graph for each slot and token count.

All graphs share one memory pool: they run one after the other on the compute stream, so that one's scratch may be
another's. What must outlive a replay, the sampled tokens, is copied inside the graph to a slot buffer that was
allocated outside the pool.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cached_property

import torch

from cbprof.engine.devices.base import DeviceEvidence, Event, Program, SlotBuffers, Stream, StreamKind, Streams
from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.attention.tile import triton_failure
from cbprof.engine.model.runner import Runner
from cbprof.engine.model.spec import ModelFacts, ModelSpec
from cbprof.errors import EngineError, UsageError


class CudaStream:
    """A CUDA stream, and what it is used for. ``raw`` is torch's own object."""

    def __init__(self, raw: torch.cuda.Stream, kind: StreamKind) -> None:
        self.raw = raw
        self.kind: StreamKind = kind

    def wait(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        self.raw.wait_event(event.raw)


class CudaEvent:
    """An event that orders work; it takes no times, which makes it cheaper."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw = torch.cuda.Event(enable_timing=False)

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, CudaStream)
        self.raw.record(stream.raw)

    def synchronize(self) -> None:
        self.raw.synchronize()


class CudaDevice:
    """One GPU with the model, the KV cache, the slots, and every graph that a run can need, captured at the start.

    Raises :class:`UsageError` if there is no CUDA device ``index``, :class:`EngineError` if its memory is too small.
    """

    evidence: DeviceEvidence = "cuda_events"
    _closed = False

    def __init__(
        self,
        spec: ModelSpec,
        layout: SlotLayout,
        *,
        num_blocks: int,
        slots: int,
        buckets: Sequence[int],
        index: int = 0,
    ) -> None:
        if not torch.cuda.is_available():
            raise UsageError("torch sees no CUDA device: use --device host, or check nvidia-smi and the build of torch")
        if index >= torch.cuda.device_count():
            raise UsageError(f"there is no CUDA device {index}: torch sees {torch.cuda.device_count()}")
        self.layout = layout
        self.buckets = tuple(buckets)
        self.index = index
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self.name = torch.cuda.get_device_name(self.torch_device)
        try:
            self._runner = Runner(spec, layout, num_blocks=num_blocks, slots=slots, device=self.torch_device)
            self._pinned = [
                (
                    torch.zeros(layout.input_size, dtype=torch.int32, pin_memory=True),
                    torch.zeros(layout.output_size, dtype=torch.int32, pin_memory=True),
                )
                for _ in range(slots)
            ]
            self.slots = [SlotBuffers(inputs.numpy(), output.numpy()) for inputs, output in self._pinned]
            self._graphs = self._capture()
        except torch.OutOfMemoryError as error:
            raise EngineError(
                f"{self.name} is out of memory while it loads {spec.name}: use a smaller --batch, context or model"
            ) from error
        except Exception as error:
            if (told := triton_failure(error, self.name, spec.name, spec.dtype)) is None:
                raise
            raise told from error
        self.facts: ModelFacts = self._runner.facts

    def _capture(self) -> dict[tuple[int, int], torch.cuda.CUDAGraph]:
        """One graph for each slot and bucket, the largest first, so that the smaller ones fit into its memory.

        A new runner's slots hold nothing but padding, so that this touches only the scratch block.
        """
        graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream(self.torch_device)
        stream.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.inference_mode():
            for bucket in reversed(self.buckets):
                for slot in range(len(self.slots)):
                    with torch.cuda.stream(stream):
                        self._runner.step(slot, bucket)  # compiles and allocates what a capture must not
                    stream.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                        self._runner.step(slot, bucket)
                    graphs[slot, bucket] = graph
        torch.cuda.synchronize(self.torch_device)
        return graphs

    @cached_property
    def _three_streams(self) -> Streams:
        return Streams(
            h2d=CudaStream(torch.cuda.Stream(self.torch_device), "h2d"),
            compute=CudaStream(torch.cuda.Stream(self.torch_device), "compute"),
            d2h=CudaStream(torch.cuda.Stream(self.torch_device), "d2h"),
        )

    @cached_property
    def _one_stream(self) -> Streams:
        raw = torch.cuda.Stream(self.torch_device)
        return Streams(h2d=CudaStream(raw, "h2d"), compute=CudaStream(raw, "compute"), d2h=CudaStream(raw, "d2h"))

    def streams(self, *, separate: bool) -> Streams:
        return self._three_streams if separate else self._one_stream

    def event(self, name: str) -> CudaEvent:
        return CudaEvent(name)

    def run(self, program: Program, slot: int, stream: Stream, bucket: int = 0) -> None:
        assert isinstance(stream, CudaStream)
        inputs, output = self._pinned[slot]
        with torch.cuda.stream(stream.raw):
            if program == "h2d":
                self._runner.inputs[slot].copy_(inputs, non_blocking=True)
            elif program == "step":
                self._graphs[slot, bucket].replay()
            else:
                output.copy_(self._runner.outputs[slot], non_blocking=True)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def settle(self) -> None:
        self.synchronize()

    def close(self) -> None:
        """Give the device's memory back: graphs and their pool, weights, KV cache and buffers; the pinned memory, too.

        Events and streams that somebody still holds are of no use from now on.
        """
        if self._closed:
            return
        self._closed = True
        self.synchronize()  # what is queued still reads and writes all of it
        self._graphs.clear()
        self._pinned.clear()
        self.slots = []
        del self._runner
        gc.collect()  # the modules of a model refer to each other
        torch.cuda.empty_cache()
