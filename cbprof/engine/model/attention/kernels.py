# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803, PLR0915
"""The Triton kernel of paged attention. Names in capitals are constants of a compiled kernel.

A program computes a *tile* (some consecutive tokens of one row, with all the heads that share one KV head) against one
*split* (a stretch of that row's context). Of the programs of a tile, the one that ends last joins the splits, as in
Flash-Decoding; a context so short that it has one split needs no joining, and the programs of splits beyond a tile's
context return at once.

Row ``r`` gets the tiles from ``query_start[r] // TILE_TOKENS + r`` on. It needs ``ceil(tokens / TILE_TOKENS)``, which
never reaches into those of the next row; padding is one row more. So ``bucket // TILE_TOKENS + R + 1`` tiles suffice
for any rows, and the grid is fixed: a program finds its row by bisection, and returns if it is past the row's end.
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    query,
    keys,
    values,
    query_start,
    context,
    block_table,
    out,
    partial,
    weight,
    arrived,
    scale,
    query_token_stride,
    query_head_stride,
    tokens,
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
    """Online softmax of one tile against one split, and the joining. ``arrived`` counts the splits of each tile that
    are done, and is all zero before and after."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)

    low = 0
    high = rows + 1
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start + middle) // TILE_TOKENS + middle <= tile:
            low = middle + 1
        else:
            high = middle
    row = low - 1
    row_start = tl.load(query_start + row)
    row_end = tl.load(query_start + row + 1, mask=row < rows, other=tokens)
    row_tokens = row_end - row_start
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
    line_at = packed * (KV_HEADS * GROUP) + head
    out_at = out + line_at[:, None] * HEAD + column[None, :]
    stored = lives[:, None] & in_head[None, :]
    if row == rows:  # padding
        tl.store(out_at, tl.zeros([TILE_TOKENS * PADDED_GROUP, PADDED_HEAD], out.dtype.element_ty), mask=stored)
        return

    start = tl.load(context + row) - row_tokens  # position of the row's first token in this batch
    position = start + token
    end = start + tl.minimum(first + TILE_TOKENS, row_tokens)  # no token of the tile sees a key from here on
    span = tl.maximum(tl.cdiv(tl.cdiv(end, SPLITS), KEYS) * KEYS, MIN_SPLIT)
    splits = tl.cdiv(end, span)
    if split >= splits:
        return
    split_start = split * span
    split_end = tl.minimum(split_start + span, end)

    query_at = packed[:, None] * query_token_stride + head[:, None] * query_head_stride + column[None, :]
    q = tl.load(query + query_at, mask=stored, other=0.0)
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

    # A token that sees no key of the split has highest = -inf and mean = 0, and so no part in the joining.
    total = tl.where(total > 0, total, 1.0)
    mean = mean / total[:, None]
    if splits == 1:
        tl.store(out_at, mean.to(out.dtype.element_ty), mask=stored)
        return
    weight_at = weight + line_at * SPLITS
    partial_at = partial + line_at[:, None] * (SPLITS * HEAD) + column[None, :]
    tl.store(weight_at + split, highest + tl.log2(total), mask=lives)
    tl.store(partial_at + split * HEAD, mean, mask=stored)

    # The barrier puts the stores of all threads before the count, which releases them to the program that counts last.
    tl.debug_barrier()
    count_at = arrived + tile * KV_HEADS + kv_head
    if tl.atomic_add(count_at, 1, sem="acq_rel") < splits - 1:
        return
    tl.store(count_at, 0)
    others = tl.arange(0, SPLITS)
    known = lives[:, None] & (others < splits)[None, :]
    log_weight = tl.load(weight_at[:, None] + others[None, :], mask=known, other=-float("inf"), cache_modifier=".cg")
    log_weight = tl.where(lives[:, None], log_weight, 0.0)
    share = tl.exp2(log_weight - tl.max(log_weight, 1)[:, None])
    share = share / tl.sum(share, 1)[:, None]
    joined = tl.zeros([TILE_TOKENS * PADDED_GROUP, PADDED_HEAD], tl.float32)
    for other in tl.range(0, splits, loop_unroll_factor=64 // (TILE_TOKENS * PADDED_GROUP)):
        part = tl.load(partial_at + other * HEAD, mask=stored, other=0.0, cache_modifier=".cg")
        joined += part * tl.sum(tl.where(others[None, :] == other, share, 0.0), 1)[:, None]
    tl.store(out_at, joined.to(out.dtype.element_ty), mask=stored)
