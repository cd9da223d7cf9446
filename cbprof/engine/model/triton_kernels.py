# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803, PLR0915
"""The two Triton kernels of paged attention. Names in capitals are constants of a compiled kernel.

A program of the first kernel computes a *tile* (some consecutive tokens of one row, with all the heads that share one
KV head) against one *split* (a stretch of that row's context). The second joins the splits, as in Flash-Decoding.

Row ``r`` gets the tiles from ``query_start[r] // TILE_TOKENS + r`` on. It needs ``ceil(tokens / TILE_TOKENS)``, which
never reaches into those of the next row, and ``bucket // TILE_TOKENS + R`` suffice for any rows. So the grid is fixed:
a program finds its row by bisection, and one past the end of its row returns at once.
"""

import triton
import triton.language as tl


@triton.jit
def attend_to_split(
    query,
    keys,
    values,
    query_start,
    context,
    block_table,
    partial,
    weight,
    scale,
    query_token_stride,
    query_head_stride,
    rows,
    max_blocks,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    PADDED_HEAD: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
):
    """Online softmax of one tile against one split; leaves the mean value and log2 of the summed weights."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)

    low = 0
    high = rows
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start + middle) // TILE_TOKENS + middle <= tile:
            low = middle + 1
        else:
            high = middle
    row = low - 1
    row_start = tl.load(query_start + row)
    row_tokens = tl.load(query_start + row + 1) - row_start
    first = (tile - row_start // TILE_TOKENS - row) * TILE_TOKENS
    if first >= row_tokens:
        return

    # Line i of the query matrix: token i // PADDED_GROUP of the tile, head i % PADDED_GROUP of the KV head.
    line = tl.arange(0, TILE_TOKENS * PADDED_GROUP)
    token = first + line // PADDED_GROUP
    member = line % PADDED_GROUP
    lives = (token < row_tokens) & (member < GROUP)
    packed = (row_start + token).to(tl.int64)
    head = kv_head * GROUP + member
    column = tl.arange(0, PADDED_HEAD)
    in_head = column < HEAD

    start = tl.load(context + row) - row_tokens  # position of the row's first token in this batch
    position = start + token
    end = start + tl.minimum(first + TILE_TOKENS, row_tokens)  # no token of the tile sees a key from here on
    span = tl.maximum(tl.cdiv(tl.cdiv(end, SPLITS), KEYS) * KEYS, MIN_SPLIT)
    split_start = split * span
    split_end = tl.minimum(split_start + span, end)

    query_at = packed[:, None] * query_token_stride + head[:, None] * query_head_stride + column[None, :]
    q = tl.load(query + query_at, mask=lives[:, None] & in_head[None, :], other=0.0)
    highest = tl.full([TILE_TOKENS * PADDED_GROUP], -float("inf"), tl.float32)
    total = tl.zeros([TILE_TOKENS * PADDED_GROUP], tl.float32)
    mean = tl.zeros([TILE_TOKENS * PADDED_GROUP, PADDED_HEAD], tl.float32)
    for turn in range(split_start, split_end, KEYS):
        key = turn + tl.arange(0, KEYS)
        in_split = key < split_end
        block = tl.load(block_table + row * max_blocks + key // BLOCK, mask=in_split, other=0)
        slot = block.to(tl.int64) * BLOCK + key % BLOCK
        kv_at = (slot * KV_HEADS + kv_head)[:, None] * HEAD + column[None, :]
        readable = in_split[:, None] & in_head[None, :]
        k = tl.load(keys + kv_at, mask=readable, other=0.0)
        v = tl.load(values + kv_at, mask=readable, other=0.0)

        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = in_split[None, :] & (key[None, :] <= position[:, None])
        score = tl.where(seen, score, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(score, 1))
        # A tile's first tokens may see no key of a late split: -inf - -inf would be NaN.
        base = tl.where(new_highest == -float("inf"), 0.0, new_highest)
        shrink = tl.exp2(highest - base)
        p = tl.exp2(score - base[:, None])
        total = total * shrink + tl.sum(p, 1)
        mean = mean * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        highest = new_highest

    # A token that sees no key of the split has highest = -inf, and so a weight that the join leaves out.
    total = tl.where(total > 0, total, 1.0)
    weight_at = (packed * (KV_HEADS * GROUP) + head) * SPLITS + split
    tl.store(weight + weight_at, highest + tl.log2(total), mask=lives)
    if split_start < split_end:
        mean_at = weight_at[:, None] * HEAD + column[None, :]
        tl.store(partial + mean_at, mean / total[:, None], mask=lives[:, None] & in_head[None, :])


@triton.jit
def join_splits(
    partial,
    weight,
    out,
    query_start,
    rows,
    HEAD: tl.constexpr,
    PADDED_HEAD: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The splits' means of one token and head, weighted; 0 for padding tokens, which no tile has computed."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    column = tl.arange(0, PADDED_HEAD)
    in_head = column < HEAD
    at = (token * tl.num_programs(1) + head).to(tl.int64)
    out_at = out + at * HEAD + column
    if token >= tl.load(query_start + rows):
        tl.store(out_at, tl.zeros([PADDED_HEAD], out.dtype.element_ty), mask=in_head)
        return

    split = tl.arange(0, SPLITS)
    log_weight = tl.load(weight + at * SPLITS + split)
    share = tl.exp2(log_weight - tl.max(log_weight, 0))
    share = share / tl.sum(share, 0)
    mean_at = (at * SPLITS + split)[:, None] * HEAD + column[None, :]
    computed = (log_weight > -float("inf"))[:, None] & in_head[None, :]
    mean = tl.load(partial + mean_at, mask=computed, other=0.0)
    joined = tl.sum(mean * share[:, None], 0)
    tl.store(out_at, joined.to(out.dtype.element_ty), mask=in_head)
