"""The next token of each row: greedy, or drawn by the Gumbel-max trick with noise that depends on nothing but its key.

``argmax(logits / temperature + g)`` with ``g = -log(-log(u))`` and ``u`` uniform draws from ``softmax(logits /
temperature)`` (Gumbel 1954; Maddison et al. 2014). Here ``u`` is a hash of (noise key, vocabulary id) in 32-bit integer
arithmetic, which is the same on every device; only the two logarithms can differ in their last bit.
"""

from __future__ import annotations

import torch

from cbprof.engine.noise import MIX_LAST_SHIFT, MIX_ROUNDS

_UNIFORM_BITS = 23  # (n + 0.5) / 2**23 is exact in float32 for every n < 2**23, so u is never rounded to 0 or 1


def vocabulary_hashes(size: int, device: torch.device) -> torch.Tensor:
    """A hash of each vocabulary id, int32 ``[size]``: made once, so that a step mixes only what changes."""
    return _mix_(torch.arange(size, dtype=torch.int32, device=device))


def uniform(noise_key: torch.Tensor, vocabulary: torch.Tensor) -> torch.Tensor:
    """Uniform numbers in (0, 1), float32 ``[R, V]``, from keys (int32 ``[R]``) and :func:`vocabulary_hashes` ``[V]``.

    A token whose probability is under about 2**-23 is drawn less exactly than others: that is the finest step of ``u``.
    """
    bits = _mix_(noise_key[:, None] ^ vocabulary)
    # >> copies the sign downwards: the mask keeps the top bits only.
    top = (bits >> (32 - _UNIFORM_BITS)).bitwise_and_(2**_UNIFORM_BITS - 1)
    return top.to(torch.float32).add_(0.5).mul_(2.0**-_UNIFORM_BITS)


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, noise_key: torch.Tensor, vocabulary: torch.Tensor
) -> torch.Tensor:
    """One token a row, int32 ``[R]``.

    ``logits`` is ``[R, V]``; half precisions are computed in float32, float64 stays. ``temperature`` is float32
    ``[R]``, where 0 means greedy; ``noise_key`` int32 ``[R]``; ``vocabulary`` as :func:`vocabulary_hashes` makes it.
    """
    scores = logits if logits.dtype == torch.float64 else logits.float()
    drawn = temperature > 0
    gumbel = uniform(noise_key, vocabulary).to(scores.dtype).log_().neg_().log_().neg_()
    scores = scores / torch.where(drawn, temperature, 1.0)[:, None]
    scores = torch.where(drawn[:, None], scores + gumbel, scores)
    return scores.argmax(dim=-1).to(torch.int32)


def _mix_(bits: torch.Tensor) -> torch.Tensor:
    """``lowbias32`` in place, on int32 that wraps. ``>>`` is arithmetic in torch, hence the masks."""
    for shift, factor in MIX_ROUNDS:
        signed = factor - 2**32 if factor >= 2**31 else factor
        bits.bitwise_xor_((bits >> shift).bitwise_and_(2 ** (32 - shift) - 1)).mul_(signed)
    return bits.bitwise_xor_((bits >> MIX_LAST_SHIFT).bitwise_and_(2 ** (32 - MIX_LAST_SHIFT) - 1))
