"""One step of the model on a slot: everything that a device runs between the copies in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.attention.paged import Attend, Attention, PagedCache, PagedStep
from cbprof.engine.model.attention.tile import Head
from cbprof.engine.model.attention.torch import TorchAttention
from cbprof.engine.model.fused import torch as fused_torch
from cbprof.engine.model.fused.decoder import FusedDecoder
from cbprof.engine.model.fused.fuse import can_fuse, take_apart
from cbprof.engine.model.inputs import StepInputs, fill_idle, known_ids, view
from cbprof.engine.model.load import dtype_of, facts, load
from cbprof.engine.model.sampling import sample, vocabulary_hashes
from cbprof.engine.model.spec import ModelFacts, ModelSpec
from cbprof.errors import UsageError


class Decoder(Protocol):
    """A model without its cache."""

    def logits(self, inputs: StepInputs, previous: torch.Tensor, cache: PagedCache, attend: Attend) -> torch.Tensor:
        """Write the batch's keys and values, and return the logits ``[R, V]`` of each row's ``sample_at`` token.

        ``previous`` is the output of the slot before, int32 ``[R]``, which carried-over tokens are read from.
        """


class ModuleDecoder:
    """The modules of transformers as they are, whatever the architecture. ``compiled``: through torch.compile."""

    def __init__(self, model: PreTrainedModel, *, compiled: bool = False) -> None:
        # One compilation for every number of tokens: there are dozens of buckets.
        self._model: Callable[..., Any] = torch.compile(model, dynamic=True) if compiled else model

    def logits(self, inputs: StepInputs, previous: torch.Tensor, cache: PagedCache, attend: Attend) -> torch.Tensor:
        output = self._model(
            input_ids=known_ids(inputs, previous)[None],
            position_ids=inputs.positions[None],
            use_cache=False,
            logits_to_keep=inputs.sample_at.long(),
            paged=PagedStep(cache, inputs.write_at.long(), attend),
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def decoder_for(model: PreTrainedModel, layout: SlotLayout, *, fuse: bool, compiled: bool = False) -> Decoder:
    """The lean form of ``model`` if ``fuse`` and there is one, which takes ``model`` apart; else its own modules.

    ``compiled``: its own modules in any case, through torch.compile.
    """
    if compiled or not fuse or not can_fuse(model):
        return ModuleDecoder(model, compiled=compiled)
    if model.device.type == "cuda":
        from cbprof.engine.model.fused import triton as fused_triton

        return FusedDecoder(take_apart(model, layout.max_context), fused_triton)
    return FusedDecoder(take_apart(model, layout.max_context), fused_torch)


class Runner:
    """A model, its KV cache and the device buffers of every slot.

    ``inputs`` (int32, ``[layout.input_size]`` each) and ``outputs`` (int32, ``[R]`` each) hold one tensor a slot. A new
    runner's inputs describe a batch of padding, so that a warm-up or a capture touches only the scratch block.

    ``num_blocks`` is the number of KV blocks for requests; one more, with that index, is the scratch block. Raises the
    errors of :func:`cbprof.engine.model.load.load`.
    """

    def __init__(
        self, spec: ModelSpec, layout: SlotLayout, *, num_blocks: int, slots: int, device: torch.device
    ) -> None:
        if device.type != "cpu" and spec.dtype == "float64":
            raise UsageError("float64 runs on the CPU only; use --device cpu, or float32, bfloat16 or float16")
        model = load(spec, device)
        self.facts = facts(model, spec)
        self._decoder = decoder_for(model, layout, fuse=spec.fuse, compiled=spec.compiled)
        self._layout = layout
        self._cache = PagedCache(
            layers=self.facts.layers,
            num_blocks=num_blocks,
            block_size=layout.block_size,
            kv_heads=self.facts.kv_heads,
            head_dim=self.facts.head_dim,
            dtype=dtype_of(spec),
            device=device,
        )
        self._attention = _attention_for(self.facts, layout, device)
        self._sample = _sampling_for(spec, device)
        self._vocabulary = vocabulary_hashes(self.facts.vocab_size, device)
        # Outside any graph pool, whose memory later captures use again: one slot's tokens must outlive another's step.
        self.inputs = [torch.zeros(layout.input_size, dtype=torch.int32, device=device) for _ in range(slots)]
        self.outputs = [torch.zeros(layout.output_size, dtype=torch.int32, device=device) for _ in range(slots)]
        for buffer in self.inputs:
            fill_idle(buffer, layout, self._cache.scratch)

    @torch.inference_mode()
    def step(self, slot: int, bucket: int) -> None:
        """Run the batch in ``inputs[slot]``, padded to ``bucket`` tokens; its tokens go to ``outputs[slot]``.

        On CUDA the shapes depend on ``bucket`` alone and nothing waits for the device, so a graph can capture it; run a
        bucket once before, since that compiles its kernels.
        """
        inputs = view(self.inputs[slot], self._layout, bucket)
        logits = self.logits(slot, bucket)
        self.outputs[slot].copy_(self._sample(logits, inputs.temperature, inputs.noise_key, self._vocabulary))

    @torch.inference_mode()
    def logits(self, slot: int, bucket: int) -> torch.Tensor:
        """The forward pass of a step: logits ``[R, V]`` of each row's ``sample_at`` token; the head sees no other."""
        inputs = view(self.inputs[slot], self._layout, bucket)
        return self._decoder.logits(inputs, self.outputs[slot - 1], self._cache, self._attention.plan(inputs))


def _attention_for(facts: ModelFacts, layout: SlotLayout, device: torch.device) -> Attention:
    """Plain torch on the CPU, our kernel on CUDA."""
    if device.type == "cpu":
        return TorchAttention(layout.block_size, facts.heads // facts.kv_heads)
    from cbprof.engine.model.attention.triton import TritonAttention

    itemsize = getattr(torch, facts.dtype).itemsize
    head = Head(facts.heads // facts.kv_heads, facts.head_dim, itemsize)
    return TritonAttention(layout, kv_heads=facts.kv_heads, head=head, device=device)


def _sampling_for(spec: ModelSpec, device: torch.device) -> Callable[..., torch.Tensor]:
    """:func:`~cbprof.engine.model.sampling.sample`, or the kernels that draw the same tokens."""
    if device.type == "cpu" or not spec.fuse:
        return sample
    from cbprof.engine.model.triton_sampling import sample as sample_in_kernels

    return sample_in_kernels
