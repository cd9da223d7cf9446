# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803
"""Sampling in two kernels: the same tokens as :func:`cbprof.engine.model.sampling.sample`, up to the last bit of a
logarithm, without writing scores or noise to memory.

A program of the first kernel finds the best of one row's ``CHUNK`` vocabulary ids, the second the best of those. Equal
scores go to the lowest id, as in ``torch.argmax``.
"""

from itertools import chain

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from cbprof.engine.noise import MIX_LAST_SHIFT, MIX_ROUNDS

_CHUNK = 4096
_INTERPRETED = triton.knobs.runtime.interpret


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, noise_key: torch.Tensor, vocabulary: torch.Tensor
) -> torch.Tensor:
    """One token a row, int32 ``[R]``. ``logits`` is contiguous ``[R, V]``; the rest as in the namesake."""
    rows, size = logits.shape
    chunks = triton.cdiv(size, _CHUNK)
    scores = torch.empty(rows, chunks, dtype=torch.float32, device=logits.device)
    identifiers = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int32, device=logits.device)
    _best_of_chunk[(rows, chunks)](
        logits,
        temperature,
        noise_key,
        vocabulary,
        scores,
        identifiers,
        SIZE=size,
        CHUNK=_CHUNK,
        MIX=(*chain(*MIX_ROUNDS), MIX_LAST_SHIFT),
        INTERPRETED=_INTERPRETED,
        num_warps=8,
    )
    _best_of_row[(rows,)](
        scores, identifiers, tokens, CHUNKS=chunks, PADDED_CHUNKS=triton.next_power_of_2(chunks), num_warps=1
    )
    return tokens


@triton.jit
def _best_of_chunk(
    logits,
    temperature,
    noise_key,
    vocabulary,
    scores,
    identifiers,
    SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    MIX: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    row = tl.program_id(0)
    chunk = tl.program_id(1)
    identifier = chunk * CHUNK + tl.arange(0, CHUNK)
    exists = identifier < SIZE
    score = tl.load(logits + row.to(tl.int64) * SIZE + identifier, mask=exists, other=-float("inf")).to(tl.float32)
    heat = tl.load(temperature + row)
    if heat > 0:
        bits = tl.load(noise_key + row) ^ tl.load(vocabulary + identifier, mask=exists, other=0)
        bits = bits.to(tl.uint32, bitcast=True)
        bits = (bits ^ (bits >> MIX[0])) * MIX[1]
        bits = (bits ^ (bits >> MIX[2])) * MIX[3]
        bits = bits ^ (bits >> MIX[4])
        uniform = ((bits >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07  # 2**-23: exact, as in sampling.uniform
        score = tl.div_rn(score, heat) - _log(-_log(uniform, INTERPRETED), INTERPRETED)
    # NaN is the one number that differs from itself. It is never the best, so that the best is always an id.
    score = tl.where(score == score, score, -float("inf"))  # noqa: PLR0124
    best, index = tl.max(score, 0, return_indices=True, return_indices_tie_break_left=True)
    at = row * tl.num_programs(1) + chunk
    tl.store(scores + at, best)
    tl.store(identifiers + at, chunk * CHUNK + index)


@triton.jit
def _log(x, INTERPRETED: tl.constexpr):
    """The logarithm that torch takes. ``tl.log`` is an approximation, and bad near 1, where the winners are drawn."""
    return tl.log(x) if INTERPRETED else libdevice.log(x)


@triton.jit
def _best_of_row(scores, identifiers, tokens, CHUNKS: tl.constexpr, PADDED_CHUNKS: tl.constexpr):
    row = tl.program_id(0)
    chunk = tl.arange(0, PADDED_CHUNKS)
    score = tl.load(scores + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=-float("inf"))
    _, index = tl.max(score, 0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(tokens + row, tl.load(identifiers + row * CHUNKS + index))
