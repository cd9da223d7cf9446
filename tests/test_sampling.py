"""Sampling: the noise is a pure function of its key, uniform, and draws from the distribution that it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.engine.noise import noise_keys

torch = pytest.importorskip("torch")

from cbprof.engine.model.sampling import sample, uniform, vocabulary_hashes  # noqa: E402

CPU = torch.device("cpu")
VOCABULARY = vocabulary_hashes(200_000, CPU)


def keys(count: int, seed: int = 7, request: int = 3) -> torch.Tensor:
    return torch.from_numpy(noise_keys(seed, request, np.arange(count)))


def lowbias32(x: int) -> int:
    """The reference, in Python integers."""
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def test_keys_depend_on_each_part_and_on_nothing_else() -> None:
    together = noise_keys(5, np.array([1, 1, 2, 9]), np.array([0, 1, 0, 77]))
    assert together.dtype == np.int32
    assert together.tolist() == [int(noise_keys(5, r, p)) for r, p in [(1, 0), (1, 1), (2, 0), (9, 77)]]
    seeds = [0, 1, -1, 2**32, 2**63]
    parts = [(s, r, p) for s in seeds for r in range(40) for p in range(40)]
    assert len({int(noise_keys(*part)) for part in parts[::7]}) == len(parts[::7])


def test_keys_are_pinned() -> None:
    """A change here changes the tokens of every recorded run."""
    assert noise_keys(0, [0, 1], [0, 500]).tolist() == [407902920, -362220070]


def test_vectorised_keys_and_shapes() -> None:
    assert noise_keys(1, np.arange(6).reshape(2, 3), 4).shape == (2, 3)
    assert noise_keys(1, [], []).shape == (0,)
    assert noise_keys(1, 2, 3).shape == ()


@given(key=st.integers(-(2**31), 2**31 - 1), identifier=st.integers(0, 199_999))
def test_uniform_is_the_reference_hash(key: int, identifier: int) -> None:
    bits = lowbias32((key & 0xFFFFFFFF) ^ lowbias32(identifier))
    assert (
        uniform(torch.tensor([key], dtype=torch.int32), VOCABULARY[identifier, None]).item()
        == ((bits >> 9) + 0.5) / 2**23
    )


def test_uniform_is_uniform_and_independent() -> None:
    u = uniform(keys(512), vocabulary_hashes(1024, CPU)).double()
    assert 0 < u.min() < u.max() < 1
    for spread in (u.flatten(), u[0], u[:, 0]):
        counts = torch.histc(spread, bins=16, min=0, max=1)
        share = len(spread) / 16
        assert ((counts - share) ** 2 / share).sum() < 38  # chi-square, 15 degrees of freedom: p = 0.001
    centred = u - u.mean()
    for a, b in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1])):
        assert abs((a * b).mean() / centred.var()) < 4 / a.numel() ** 0.5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    count = 20_000
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, 2.5])
    drawn = sample(logits.expand(count, -1), torch.full((count,), temperature), keys(count), vocabulary_hashes(6, CPU))
    counts = drawn.bincount(minlength=6)
    expected = (logits / temperature).softmax(-1) * count
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # 5 degrees of freedom: p = 0.001


def test_a_draw_depends_on_its_row_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(8, 300, generator=generator)
    temperature, noise, vocabulary = torch.full((8,), 1.0), keys(8), vocabulary_hashes(300, CPU)
    together = sample(logits, temperature, noise, vocabulary)
    order = torch.randperm(8, generator=generator)
    assert torch.equal(sample(logits[order], temperature[order], noise[order], vocabulary), together[order])
    alone = [sample(logits[i : i + 1], temperature[:1], noise[i : i + 1], vocabulary) for i in range(8)]
    assert torch.equal(torch.cat(alone), together)
    assert len(set(together.tolist())) > 4


def test_temperature_zero_is_greedy_and_rows_mix() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]] * 400)
    temperature = torch.tensor([0.0, 5.0] * 200)
    tokens = sample(logits, temperature, keys(400), vocabulary_hashes(3, CPU))
    assert tokens.dtype == torch.int32
    assert set(tokens[::2].tolist()) == {1}
    assert set(tokens[1::2].tolist()) == {0, 1, 2}


def test_precision() -> None:
    """Half precisions are drawn as float32; float64 keeps differences that float32 would lose."""
    noise, vocabulary = keys(1), vocabulary_hashes(4, CPU)
    logits = torch.tensor([[1.0, 2.0, 0.5, 1.5]])
    one = torch.ones(1)
    tokens = {
        sample(logits.to(d), one, noise, vocabulary).item() for d in (torch.bfloat16, torch.float16, torch.float32)
    }
    assert len(tokens) == 1
    close = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert sample(close, torch.zeros(1), noise, vocabulary[:2]).item() == 1
