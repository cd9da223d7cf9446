"""A tiny model under transformers' continuous batching; the async kind too, without a GPU.

transformers refuses async batching where there is no CUDA. All it needs of it are streams and events, whose order holds
by itself on a CPU: the copies and the model run when they are called. So with stand-ins for those its own async code
runs here, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any
from unittest import mock

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import input_outputs

PROMPTS = [[1, 2, 3], [4, 5, 6, 7], [8] * 9]
NEW_TOKENS = 6


def tiny_model() -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


def generate(model: Any, *, ahead: bool = False) -> dict[str, list[int]]:
    """The tokens of each request; ``ahead``: by async batching."""
    with streams_without_cuda() if ahead else nullcontext():
        outputs = model.generate_batch(
            PROMPTS,
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=NEW_TOKENS),
            continuous_batching_config=ContinuousBatchingConfig(
                block_size=16, num_blocks=32, max_batch_tokens=64, use_async_batching=ahead, use_cuda_graph=False
            ),
        )
    return {name: output.generated_tokens for name, output in outputs.items()}


class Stream:
    """A stream on which everything has happened already."""

    numbers = count(1)

    def __init__(self, device: Any = None) -> None:
        self.cuda_stream = next(self.numbers)
        self.device_index = 0

    def record_event(self, event: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Event:
    def synchronize(self) -> None:
        pass


NEWER = {
    "create_device_stream": Stream,
    "stream_context": lambda stream: nullcontext(),
}
"""What later versions make streams and events with."""


@contextmanager
def streams_without_cuda() -> Iterator[None]:
    make_ios = input_outputs.ContinuousBatchingAsyncIOs.__init__

    def believing_in_cuda(self: Any, *args: Any, **kwargs: Any) -> None:
        with mock.patch.object(torch.cuda, "is_available", return_value=True):
            make_ios(self, *args, **kwargs)

    with (
        mock.patch.multiple(input_outputs, create=True, **NEWER),
        mock.patch.object(
            input_outputs.ContinuousBatchingAsyncIOs, "_supported_device_types", ("cuda", "cpu"), create=True
        ),
        mock.patch.object(input_outputs.ContinuousBatchingAsyncIOs, "__init__", believing_in_cuda),
        mock.patch.object(torch.cuda, "Stream", Stream),
        mock.patch.object(torch.cuda, "Event", Event),
        mock.patch.object(torch.cuda, "stream", side_effect=lambda stream: nullcontext()),
    ):
        yield
