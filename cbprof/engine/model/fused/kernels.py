# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803
"""The Triton kernels of the fused decoder. Names in capitals are constants of a compiled kernel.

They are short of work and long on latency: a decode step has a row for each request, so a kernel lasts as long as its
longest chain of dependent loads. Hence one program a row, wide loads, and nothing looked up that could be passed.
Sums are in float32; results are rounded where transformers rounds them, save in RoPE, which rounds once.
"""

import triton
import triton.language as tl


@triton.jit
def _store_norm(states, weight, out, column, in_row, eps, SIZE: tl.constexpr):
    """RMSNorm of one row, float32 and 0 outside ``in_row``: rounded to the dtype of ``out``, then weighted."""
    dtype = out.dtype.element_ty
    scale = tl.rsqrt(tl.sum(states * states, 0) / SIZE + eps)
    gain = tl.load(weight + column, mask=in_row, other=0.0).to(tl.float32)
    normed = (states * scale).to(dtype).to(tl.float32)
    tl.store(out + column, (normed * gain).to(dtype), mask=in_row)


@triton.jit
def embed_and_norm(
    input_ids,
    carry,
    previous,
    embedding,
    weight,
    normed,
    residual,
    eps,
    SIZE: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
):
    """A program a token: its id, known or carried over; its embedding; the norm of that."""
    token = tl.program_id(0)
    column = tl.arange(0, PADDED_SIZE)
    in_row = column < SIZE
    from_row = tl.load(carry + token)
    known = tl.load(input_ids + token)
    carried = tl.load(previous + from_row, mask=from_row >= 0, other=0)
    identifier = tl.where(from_row >= 0, carried, known).to(tl.int64)
    states = tl.load(embedding + identifier * SIZE + column, mask=in_row, other=0.0)
    at = token.to(tl.int64) * SIZE
    tl.store(residual + at + column, states, mask=in_row)
    _store_norm(states.to(tl.float32), weight, normed + at, column, in_row, eps, SIZE)


@triton.jit
def add_and_norm(
    update,
    residual,
    rows,
    weight,
    normed,
    eps,
    SIZE: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
    AT_ROWS: tl.constexpr,
):
    """A program a row of ``normed``. With ``AT_ROWS`` it reads the row that ``rows`` names and keeps no sum, since
    several may read the same one."""
    row = tl.program_id(0)
    column = tl.arange(0, PADDED_SIZE)
    in_row = column < SIZE
    source = row
    if AT_ROWS:
        source = tl.load(rows + row)
    at = source.to(tl.int64) * SIZE + column
    dtype = residual.dtype.element_ty
    added = tl.load(update + at, mask=in_row, other=0.0).to(tl.float32)
    states = (tl.load(residual + at, mask=in_row, other=0.0).to(tl.float32) + added).to(dtype)
    if not AT_ROWS:
        tl.store(residual + at, states, mask=in_row)
    _store_norm(states.to(tl.float32), weight, normed + row.to(tl.int64) * SIZE, column, in_row, eps, SIZE)


@triton.jit
def rotate_and_write(
    qkv,
    rope,
    write_at,
    keys,
    values,
    query_norm,
    key_norm,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    TILE: tl.constexpr,
    NORM: tl.constexpr,
):
    """A program for ``TILE`` heads of one token; query heads come first, then key, then value heads."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, PADDED_HALF)
    in_half = (column < HALF)[None, :]
    is_query = (head < HEADS)[:, None]
    is_value = (head >= HEADS + KV_HEADS)[:, None]
    exists = (head < HEADS + 2 * KV_HEADS)[:, None] & in_half
    dtype = keys.dtype.element_ty

    at = qkv + (token * (HEADS + 2 * KV_HEADS) + head)[:, None] * (2 * HALF) + column[None, :]
    low = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=exists, other=0.0).to(tl.float32)
    turn = rope + token * (2 * HALF) + column[None, :]
    cos = tl.load(turn, mask=in_half, other=0.0)
    sin = tl.load(turn + HALF, mask=in_half, other=0.0)
    slot = tl.load(write_at + token).to(tl.int64)

    first, second = low, high
    if NORM:
        mean_square = (tl.sum(low * low, 1) + tl.sum(high * high, 1)) / (2 * HALF)
        scale = tl.rsqrt(mean_square + eps)[:, None]
        gain = tl.where(is_query, query_norm + column[None, :], key_norm + column[None, :])
        first_gain = tl.load(gain, mask=exists, other=0.0).to(tl.float32)
        second_gain = tl.load(gain + HALF, mask=exists, other=0.0).to(tl.float32)
        first = ((low * scale).to(dtype).to(tl.float32) * first_gain).to(dtype).to(tl.float32)
        second = ((high * scale).to(dtype).to(tl.float32) * second_gain).to(dtype).to(tl.float32)
    low = tl.where(is_value, low, first * cos - second * sin).to(dtype)
    high = tl.where(is_value, high, second * cos + first * sin).to(dtype)

    tl.store(at, low, mask=exists & is_query)
    tl.store(at + HALF, high, mask=exists & is_query)
    is_key = exists & (head >= HEADS)[:, None] & (head < HEADS + KV_HEADS)[:, None]
    key_at = keys + (slot * KV_HEADS + head - HEADS)[:, None] * (2 * HALF) + column[None, :]
    tl.store(key_at, low, mask=is_key)
    tl.store(key_at + HALF, high, mask=is_key)
    value_at = values + (slot * KV_HEADS + head - HEADS - KV_HEADS)[:, None] * (2 * HALF) + column[None, :]
    tl.store(value_at, low, mask=exists & is_value)
    tl.store(value_at + HALF, high, mask=exists & is_value)


@triton.jit
def silu_and_multiply(gate_up, out, SIZE: tl.constexpr, TILE: tl.constexpr):
    """A program for ``TILE`` columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    in_row = column < SIZE
    dtype = out.dtype.element_ty
    gate = tl.load(gate_up + row * (2 * SIZE) + column, mask=in_row, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * SIZE) + SIZE + column, mask=in_row, other=0.0).to(tl.float32)
    opened = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out + row * SIZE + column, (opened * up).to(dtype), mask=in_row)
