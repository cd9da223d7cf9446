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
from cbprof.engine.model.attention import varlen as varlen_attention  # noqa: E402
from cbprof.engine.model.attention.torch import TorchAttention  # noqa: E402
from cbprof.engine.model.attention.varlen import VarlenAttention  # noqa: E402
from cbprof.engine.model.inputs import StepInputs, view  # noqa: E402
from cbprof.errors import UsageError  # noqa: E402

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


def expected(
    inputs: StepInputs, query: Any, keys: Any, values: Any, scale: float, block_size: int = LAYOUT.block_size
) -> Any:
    """Softmax attention, written out for one token at a time; 0 for padding."""
    group = query.shape[1] // keys.shape[1]
    out = torch.zeros(query.shape, dtype=torch.float64)
    starts = inputs.query_start.tolist()
    for row, (start, stop) in enumerate(pairwise(starts)):
        for token in range(start, stop):
            seen = torch.arange(int(inputs.positions[token]) + 1)
            at = inputs.block_table[row].cpu()[seen // block_size] * block_size + seen % block_size
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
    out = module.paged_attention(*qkv, *tables, arrived, LAYOUT.block_size, 0.3, tile, splits)
    assert arrived.count_nonzero() == 0
    return out


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("tile", "splits"), [(16, 1), (16, 4), (64, 2)])
def test_triton_attention(
    lengths: dict[int, tuple[int, int]], tile: int, splits: int, triton_attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Splits and turns small enough that these short contexts have several.
    monkeypatch.setattr(triton_attention, "_MIN_SPLIT", 16)
    monkeypatch.setattr(triton_attention, "_KEYS_A_TURN", 16)
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
    plan = triton_attention.TritonAttention(LAYOUT, kv_heads=2, device=DEVICE).plan(inputs)
    torch.testing.assert_close(plan(*qkv, 0.3).double().cpu(), expected(inputs, *qkv, 0.3), rtol=0, atol=2e-6)


def as_documented(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Any,
    block_table: Any,
) -> Any:
    """What the documentation of torch's ``varlen_attn`` says of pages, in plain torch; what it leaves open is NaN."""
    assert cu_seq_k is None
    assert window_size == (-1, 0)
    assert cu_seq_q.dtype == seqused_k.dtype == block_table.dtype == torch.int32
    out = torch.full(query.shape, torch.nan, dtype=query.dtype)
    for row, (start, stop) in enumerate(pairwise(cu_seq_q.tolist())):
        used = int(seqused_k[row])
        assert stop - start <= max_q
        assert used <= max_k
        if start == stop:
            continue
        pages = block_table[row, : -(-used // key.shape[1])].long()
        keys, values = (pool[pages].flatten(0, 1)[:used].transpose(0, 1) for pool in (key, value))
        mask = torch.ones(stop - start, used, dtype=torch.bool).tril(used - (stop - start))
        out[start:stop] = torch.nn.functional.scaled_dot_product_attention(
            query[start:stop].transpose(0, 1), keys, values, mask, scale=scale, enable_gqa=enable_gqa
        ).transpose(0, 1)
    return out


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
def test_varlen_attention_asks_for_the_right_thing(
    lengths: dict[int, tuple[int, int]], heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel itself needs a GPU, and a torch newer than 2.11: see the test below."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", as_documented)
    monkeypatch.setattr(varlen_attention, "_PAGE", LAYOUT.block_size)
    inputs = batch(lengths, padding=3)
    qkv = tensors(len(inputs.input_ids), heads, kv_heads, 16, torch.float64)
    got = VarlenAttention(LAYOUT).plan(inputs)(*qkv, 0.3)
    torch.testing.assert_close(got.cpu(), expected(inputs, *qkv, 0.3), rtol=0, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_varlen_attention_on_a_gpu() -> None:
    layout = SlotLayout(max_tokens=64, max_requests=6, max_blocks=8, block_size=256)
    try:
        attention = VarlenAttention(layout)
    except UsageError as error:
        pytest.skip(str(error))
    buffer = torch.zeros(layout.input_size, dtype=torch.int32, device="cuda")
    inputs = view(buffer, layout, 12)
    inputs.query_start.copy_(torch.tensor([0, 1, 8, 9, 9, 9, 9]))
    inputs.context.copy_(torch.tensor([700, 263, 1, 0, 0, 0]))
    inputs.positions.copy_(torch.tensor([699, *range(256, 263), 0, 0, 0, 0]))
    inputs.block_table.copy_(torch.randperm(48).view(6, 8))
    generator = torch.Generator("cuda").manual_seed(1)
    keys, values = torch.randn(2, 48 * 256, 2, 64, dtype=torch.bfloat16, device="cuda", generator=generator)
    query = torch.randn(12, 8, 64, dtype=torch.bfloat16, device="cuda", generator=generator)
    got = attention.plan(inputs)(query, keys, values, 0.125)
    want = expected(inputs, query, keys, values, 0.125, block_size=256)
    torch.testing.assert_close(got.double().cpu(), want, rtol=0.02, atol=0.02)


def test_varlen_attention_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", as_documented)
    with pytest.raises(UsageError, match="give --block-size 256"):
        VarlenAttention(LAYOUT)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda query: query)
    with pytest.raises(UsageError, match="reads no block table; use a newer torch, or --attention triton"):
        VarlenAttention(LAYOUT)
    monkeypatch.delattr("torch.nn.attention.varlen.varlen_attn")
    with pytest.raises(UsageError, match="reads no block table"):
        VarlenAttention(LAYOUT)


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
    library.opcheck(triton_attention.paged_attention, (*qkv, *tables, no_arrivals(), LAYOUT.block_size, 0.3, 16, 2))


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
