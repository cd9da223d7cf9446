"""Which model to run, and what the engine must know about it. No torch here: both travel between processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

DtypeName = Literal["float32", "bfloat16", "float16", "float64"]
DTYPES: tuple[DtypeName, ...] = get_args(DtypeName)


@dataclass(frozen=True)
class ModelSpec:
    """What the user asked for. ``name`` is a preset, a local folder, or a hub id; ``seed`` is for random weights.

    ``fuse``: run the model in its lean form, where there is one. ``compiled``: run its own modules through
    torch.compile, whatever its family.
    """

    name: str
    dtype: DtypeName = "float32"
    seed: int = 0
    fuse: bool = True
    compiled: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """The sizes of a model.

    ``step_weight_bytes`` is what one step must read of the weights: all but an embedding that is not also the head.
    ``kv_bytes_per_token`` is the KV cache of one token over all layers.
    """

    name: str
    architecture: str
    dtype: DtypeName
    vocab_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_context: int
    parameters: int
    step_weight_bytes: int
    kv_bytes_per_token: int
    stop_tokens: tuple[int, ...]
    """Ids that end a request, as the model's own configuration names them; empty for the presets."""
