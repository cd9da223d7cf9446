"""The engine on the device process, with a real model in float64: the tokens of plain one-at-a-time generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbprof.engine.config import EngineConfig
from cbprof.engine.engine import Engine
from cbprof.engine.noise import noise_keys
from cbprof.engine.request import Request
from cbprof.engine.workload import Workload
from cbprof.errors import UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

LIMITS = EngineConfig(
    dtype="float64", device="host", max_batch=4, max_batch_tokens=16, max_context=24, block_size=4, num_blocks=24
)
Generate = Callable[[Request], list[int]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama on disk, as a user would have one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, initializer_range=0.3, eos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).double().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def generate(model_folder: Path) -> Generate:
    """Plain generation: the whole context through the model's own attention for every token, one request at a time."""
    from transformers import AutoModelForCausalLM

    from cbprof.engine.model.sampling import sample, vocabulary_hashes

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float64, attn_implementation="eager").eval()
    hashes = vocabulary_hashes(model.config.vocab_size, torch.device("cpu"))

    @torch.inference_mode()
    def tokens_of(request: Request) -> list[int]:
        ids = request.ids[: request.prompt_length].tolist()
        while True:
            logits = model(torch.tensor([ids])).logits[:, -1]
            key = torch.from_numpy(noise_keys(0, np.array([request.id]), np.array([len(ids)])))
            ids.append(int(sample(logits, torch.tensor([request.temperature]), key, hashes)))
            if ids[-1] in request.stop_tokens or len(ids) == request.max_length:
                return ids[request.prompt_length :]

    return tokens_of


@pytest.fixture(scope="module")
def engine(model_folder: Path) -> Iterator[Engine]:
    with Engine(replace(LIMITS, model=str(model_folder))) as engine:
        yield engine


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    shapes = st.tuples(st.integers(1, 16), st.integers(1, 8), st.sampled_from([0.0, 0.8, 1.5]))
    stop_tokens = draw(st.lists(st.integers(0, 60), max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    return [
        Request(i, rng.integers(61, size=prompt), new, temperature=temperature, stop_tokens=stop_tokens)
        for i, (prompt, new, temperature) in enumerate(draw(st.lists(shapes, min_size=1, max_size=6)))
    ]


def fresh(requests: list[Request]) -> list[Request]:
    return [
        Request(
            r.id,
            r.ids[: r.prompt_length],
            r.max_length - r.prompt_length,
            temperature=r.temperature,
            stop_tokens=tuple(r.stop_tokens),
        )
        for r in requests
    ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=workloads(),
    batch=st.integers(1, 4),
    tokens=st.integers(4, 16),
    chunk=st.integers(1, 16),
    blocks=st.integers(6, 24),
)
def test_the_loops_give_the_tokens_of_plain_generation(
    engine: Engine, generate: Generate, requests: list[Request], batch: int, tokens: int, chunk: int, blocks: int
) -> None:
    opened = engine.config
    engine.config = replace(opened, max_batch=batch, max_batch_tokens=tokens, prefill_chunk=chunk, num_blocks=blocks)
    try:
        expected = {request.id: generate(request) for request in requests}
        assert engine.serve(fresh(requests), "sync").tokens == expected
        assert engine.serve(fresh(requests), "async").tokens == expected
        assert engine.serve(fresh(requests), "multi").tokens == expected
    finally:
        engine.config = opened


def test_a_device_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        Engine(EngineConfig(device="tpu"))
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="torch sees no CUDA device: use --device host"):
            Engine(EngineConfig(device="cuda"))


def test_an_unknown_model_is_refused_in_the_words_of_the_user() -> None:
    with pytest.raises(UsageError, match="unknown model 'gpt-9'"):
        Engine(EngineConfig(device="host", model="gpt-9"))


def test_a_context_past_the_positions_of_the_model_is_refused(model_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"knows \d+ positions, but a request may have 1000000 tokens: shorten"):
        Engine(replace(LIMITS, model=str(model_folder), max_context=1_000_000, num_blocks=0, max_batch=1))


def test_one_slot_is_refused_in_async(engine: Engine) -> None:
    opened = engine.config
    engine.config = replace(opened, slots=1)
    try:
        with pytest.raises(UsageError, match="give at least 2 slots, or run sync"):
            engine.serve([Request(0, [1, 2], 2)], "async")
    finally:
        engine.config = opened


def test_a_checkpoint_ends_with_its_own_tokens(engine: Engine) -> None:
    workload = Workload(requests=2, prompt_len=(4, 4), new_tokens=(8, 8), stop_tokens=(3,))
    assert workload.ended_by((3, 5)).stop_tokens == (3, 5)
    assert replace(workload, ignore_end=True).ended_by((3, 5)) == replace(workload, ignore_end=True)
    assert engine.end_tokens == engine.device.facts.stop_tokens
