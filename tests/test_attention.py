"""Both paged attentions against plain softmax attention in float64, row by row.

Without a CUDA device the Triton kernels run in Triton's interpreter, which executes the same code on the CPU.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")
library = pytest.importorskip("torch").library

from model_batches import LAYOUT, NUM_BLOCKS, Row, pack  # noqa: E402
from triton_interpreter import DEVICE, kernel_modules  # noqa: E402

from cbprof.engine.layout import SlotLayout  # noqa: E402
from cbprof.engine.model.attention.tile import Head  # noqa: E402
from cbprof.engine.model.attention.torch import TorchAttention  # noqa: E402
from cbprof.engine.model.inputs import StepInputs, view  # noqa: E402

BLOCKS = [31, 4, 17, 0, 39, 22, 8, 13, 27, 2, 35, 19]

BATCHES: dict[str, dict[int, tuple[int, int]]] = {
    # row: (tokens in this batch, context before it)
    "one token, context 1": {0: (1, 0)},
    "decodes around a block edge": {0: (1, 2), 1: (1, 3), 2: (1, 4), 4: (1, 7), 5: (1, 8)},
    "decodes, first and last rows unused": {1: (1, 30), 3: (1, 0), 4: (1, 11)},
    "whole prompts": {0: (7, 0), 1: (4, 0), 3: (13, 0)},
    "a later chunk of a prompt": {2: (9, 18)},
    "decodes and chunks": {0: (1, 25), 1: (6, 3), 2: (1, 0), 4: (17, 14), 5: (1, 31)},
}


def batch(lengths: dict[int, tuple[int, int]], padding: int) -> StepInputs:
    """The rows of ``lengths``, whose blocks overlap: attention only reads, so any table will do."""
    rows = {
        index: Row([1] * tokens, before, [BLOCKS[(index + k) % len(BLOCKS)] for k in range(8)])
        for index, (tokens, before) in lengths.items()
    }
    bucket = sum(tokens for tokens, _ in lengths.values()) + padding
    buffer = torch.zeros(LAYOUT.input_size, dtype=torch.int32)
    pack(buffer, rows, bucket)
    return view(buffer.to(DEVICE), LAYOUT, bucket)


def tensors(tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Random query, keys and values; the query strided as transformers hands it over."""
    generator = torch.Generator().manual_seed(tokens)
    query = torch.randn(heads, tokens, head_dim, generator=generator).transpose(0, 1)
    shape = ((NUM_BLOCKS + 1) * LAYOUT.block_size, kv_heads, head_dim)
    keys, values = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    return query.to(DEVICE, dtype), keys.to(DEVICE, dtype), values.to(DEVICE, dtype)


def expected(inputs: StepInputs, query: Any, keys: Any, values: Any, scale: float) -> Any:
    """Softmax attention, written out for one token at a time; 0 for padding."""
    group, size = query.shape[1] // keys.shape[1], LAYOUT.block_size
    out = torch.zeros(query.shape, dtype=torch.float64)
    starts = inputs.query_start.tolist()
    for row, (start, stop) in enumerate(pairwise(starts)):
        for token in range(start, stop):
            seen = torch.arange(int(inputs.positions[token]) + 1)
            at = inputs.block_table[row].cpu()[seen // size] * size + seen % size
            k = keys.cpu().double()[at].repeat_interleave(group, dim=1)
            v = values.cpu().double()[at].repeat_interleave(group, dim=1)
            weights = (torch.einsum("hd,khd->hk", query[token].cpu().double(), k) * scale).softmax(-1)
            out[token] = torch.einsum("hk,khd->hd", weights, v)
    return out


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
def test_torch_attention(lengths: dict[int, tuple[int, int]], heads: int, kv_heads: int) -> None:
    attention = TorchAttention(LAYOUT.block_size, heads // kv_heads)
    for padding in (0, 3):
        inputs = batch(lengths, padding)
        query, keys, values = tensors(len(inputs.input_ids), heads, kv_heads, 16, torch.float64)
        got = attention.plan(inputs)(query, keys, values, 0.3)
        torch.testing.assert_close(got.cpu(), expected(inputs, query, keys, values, 0.3), rtol=0, atol=1e-12)


@pytest.fixture
def triton_attention() -> Any:
    return kernel_modules().attention


def no_arrivals() -> Any:
    return torch.zeros(LAYOUT.max_tokens + LAYOUT.max_requests + 1, 2, dtype=torch.int32, device=DEVICE)


def triton_call(module: Any, inputs: StepInputs, qkv: tuple[Any, Any, Any], tile: int, splits: int) -> Any:
    tables = (inputs.query_start, inputs.context, inputs.block_table)
    arrived = no_arrivals()
    out = module.paged_attention(*qkv, *tables, arrived, LAYOUT.block_size, 0.3, tile, 16, 2, splits)
    assert arrived.count_nonzero() == 0
    return out


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("tile", "splits"), [(16, 1), (16, 4), (64, 2)])
def test_triton_attention(
    lengths: dict[int, tuple[int, int]], tile: int, splits: int, triton_attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Splits and turns small enough that these short contexts have several.
    monkeypatch.setattr(triton_attention, "_MIN_SPLIT", 16)
    inputs = batch(lengths, padding=3)
    qkv = tensors(len(inputs.input_ids), 6, 2, 16, torch.float32)
    got = triton_call(triton_attention, inputs, qkv, tile, splits)
    torch.testing.assert_close(got.double().cpu(), expected(inputs, *qkv, 0.3), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 64), (4, 1, 128), (2, 2, 80), (16, 1, 64)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_triton_attention_by_head_shape(
    heads: int, kv_heads: int, head_dim: int, dtype: Any, triton_attention: Any
) -> None:
    if DEVICE.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies bfloat16 as if its bits were integers")
    inputs = batch(BATCHES["decodes and chunks"], padding=2)
    qkv = tensors(len(inputs.input_ids), heads, kv_heads, head_dim, dtype)
    got = triton_call(triton_attention, inputs, qkv, 16, 2)
    assert got.dtype == dtype
    assert got.is_contiguous()
    torch.testing.assert_close(got.double().cpu(), expected(inputs, *qkv, 0.3), rtol=0.02, atol=0.02)


def test_triton_attention_is_planned_by_shape_alone(triton_attention: Any) -> None:
    inputs = batch(BATCHES["decodes and chunks"], padding=4)
    qkv = tensors(len(inputs.input_ids), 4, 2, 16, torch.float32)
    plan = triton_attention.TritonAttention(LAYOUT, kv_heads=2, head=Head(2, 16, 4), device=DEVICE).plan(inputs)
    torch.testing.assert_close(plan(*qkv, 0.3).double().cpu(), expected(inputs, *qkv, 0.3), rtol=0, atol=2e-6)


def test_an_empty_batch_gives_zeros(triton_attention: Any) -> None:
    inputs = batch({}, padding=5)
    qkv = tensors(5, 4, 2, 16, torch.float32)
    assert triton_call(triton_attention, inputs, qkv, 16, 2).count_nonzero() == 0
    assert TorchAttention(LAYOUT.block_size, 2).plan(inputs)(*qkv, 0.3).count_nonzero() == 0


def test_the_operator_is_sound(triton_attention: Any) -> None:
    """torch's own check that the shapes, strides and mutations which compile and graphs assume are the real ones."""
    inputs = batch(BATCHES["decodes and chunks"], padding=1)
    qkv = tensors(len(inputs.input_ids), 4, 2, 16, torch.float32)
    tables = (inputs.query_start, inputs.context, inputs.block_table)
    library.opcheck(
        triton_attention.paged_attention, (*qkv, *tables, no_arrivals(), LAYOUT.block_size, 0.3, 16, 64, 3, 2)
    )


@pytest.mark.parametrize(
    ("rows", "max_blocks", "kv_heads", "splits"),
    [
        (32, 520, 8, 4),  # 256 programs on 132 multiprocessors
        (256, 520, 8, 1),
        (1, 520, 8, 32),
        (4, 4, 1, 1),  # 64 keys are not worth a second split
        (4, 40, 1, 2),
    ],
)
def test_split_count(rows: int, max_blocks: int, kv_heads: int, splits: int, triton_attention: Any) -> None:
    layout = SlotLayout(max_tokens=512, max_requests=rows, max_blocks=max_blocks, block_size=16)
    assert triton_attention.split_count(layout, kv_heads, 132) == splits
