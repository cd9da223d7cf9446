"""What a step runs between its inputs and the logits: a lean form of the model, or the modules of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.attention.paged import Attend, PagedCache, PagedStep
from cbprof.engine.model.fused import torch as fused_torch
from cbprof.engine.model.fused.decoder import FusedDecoder
from cbprof.engine.model.fused.fuse import can_fuse, take_apart
from cbprof.engine.model.inputs import StepInputs, known_ids


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
