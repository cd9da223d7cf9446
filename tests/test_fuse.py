"""The lean decoder against transformers' modules, and its kernels against what they mean in plain torch."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from model_batches import LAYOUT, NUM_BLOCKS, Row, pack  # noqa: E402
from triton_interpreter import DEVICE, kernel_modules  # noqa: E402

from cbprof.engine.model.fused import torch as fused_torch  # noqa: E402
from cbprof.engine.model.fused.decoder import FusedDecoder  # noqa: E402
from cbprof.engine.model.fused.fuse import HeadNorms, can_fuse, take_apart  # noqa: E402
from cbprof.engine.model.inputs import view  # noqa: E402
from cbprof.engine.model.runner import ModuleDecoder, Runner  # noqa: E402
from cbprof.engine.model.sampling import sample, vocabulary_hashes  # noqa: E402
from cbprof.engine.model.spec import ModelSpec  # noqa: E402

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}
_ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ROPE},
    "yarn": {"rope_type": "yarn", **_ROPE},
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama with every bias": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama, one head a group, tied": {"model_type": "llama", "num_key_value_heads": 6, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", "hidden_size": 96},
    "qwen3": {"model_type": "qwen3"},
    **{f"llama, {rope} RoPE": {"model_type": "llama", "rope_parameters": ROPES[rope]} for rope in ROPES},
}
ROWS = {
    0: Row([5, 6, 7, 8, 9, 10], 0, [7, 2]),
    2: Row([4], 0, [8]),
    3: Row([11, 12], 0, [9]),
    5: Row([3, 1, 2], 0, [1]),
}
LATER = {
    0: Row([1], 6, [7, 2]),
    2: Row([0], 1, [8], carry=3),
    3: Row([1, 2, 3], 2, [9, 30]),
    5: Row([0], 3, [1], carry=5),
}


def model_for(settings: dict[str, Any], dtype: Any = torch.float64) -> Any:
    """A small random model, biases and norms included."""
    config = transformers.AutoConfig.for_model(**SMALL | settings)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.copy_(noise * parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(0.3 * noise)
    return model


def saved(settings: dict[str, Any], folder: Path) -> str:
    model_for(settings).save_pretrained(folder)
    return str(folder)


def runner_for(name: str, *, fuse: bool, dtype: Any = "float64", device: Any = CPU) -> Runner:
    return Runner(ModelSpec(name, dtype, fuse=fuse), LAYOUT, num_blocks=NUM_BLOCKS, slots=2, device=device)


def two_steps(runner: Runner) -> Any:
    """The logits of a batch of prompts and of one that follows it, carried-over tokens and all; used rows only."""
    buffer = torch.zeros(LAYOUT.input_size, dtype=torch.int32)
    logits = []
    for slot, rows in ((0, ROWS), (1, LATER)):
        pack(buffer, rows, 14)
        runner.inputs[slot].copy_(buffer)
        logits.append(runner.logits(slot, 14)[list(rows)])
        runner.step(slot, 14)
    return torch.stack(logits).double().cpu()


def test_compiled_modules_give_the_logits_of_the_plain_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Traced but not lowered: the CPU's compiler would take half a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    name = saved({**MODELS["llama"], "num_hidden_layers": 1}, tmp_path)
    compiled = Runner(ModelSpec(name, "float64", compiled=True), LAYOUT, num_blocks=NUM_BLOCKS, slots=2, device=CPU)
    assert isinstance(compiled._decoder, ModuleDecoder)
    plain = runner_for(name, fuse=False)
    for runner in (compiled, plain):
        pack(runner.inputs[0], ROWS, 14)
    torch.testing.assert_close(compiled.logits(0, 14), plain.logits(0, 14), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_the_lean_decoder_is_the_same_model(settings: dict[str, Any], tmp_path: Path) -> None:
    name = saved(settings, tmp_path)
    lean, plain = runner_for(name, fuse=True), runner_for(name, fuse=False)
    assert isinstance(lean._decoder, FusedDecoder)
    assert isinstance(plain._decoder, ModuleDecoder)
    assert lean.facts == plain.facts
    torch.testing.assert_close(two_steps(lean), two_steps(plain), rtol=0, atol=1e-9)
    for ours, theirs in zip(lean._cache._layers, plain._cache._layers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert torch.equal(lean.outputs[1], plain.outputs[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "gemma"},
        {"model_type": "llama", "hidden_act": "gelu"},
    ],
    ids=["mistral", "gemma", "llama with another activation"],
)
def test_other_models_keep_their_modules(settings: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(runner_for(saved(settings, tmp_path), fuse=True)._decoder, ModuleDecoder)


def test_a_class_that_only_looks_like_a_known_one_is_not_fused() -> None:
    model = model_for({"model_type": "llama"})
    assert can_fuse(model)
    model.__class__ = type("LlamaForCausalLM", (type(model),), {"__module__": "acme"})
    assert not can_fuse(model)


def test_there_are_never_two_copies_of_the_weights() -> None:
    model = model_for({"model_type": "qwen2", "tie_word_embeddings": True})
    size = sum(parameter.numel() for parameter in model.parameters())
    merged = [layer.mlp.up_proj.weight for layer in model.model.layers]
    kept = model.model.layers[0].mlp.down_proj.weight.data_ptr()
    gone = [weakref.ref(weight) for weight in merged]
    del merged
    weights = take_apart(model, 32)
    gc.collect()
    assert not any(weight() is not None for weight in gone)
    assert weights.layers[0].down.weight.data_ptr() == kept
    assert weights.head.weight.data_ptr() == weights.embedding.data_ptr()
    layers = [tensor for layer in weights.layers for tensor in _tensors(layer)]
    assert sum(t.numel() for t in [*layers, weights.embedding, weights.norm]) == size


def _tensors(part: Any) -> list[Any]:
    if isinstance(part, torch.Tensor):
        return [part]
    return [tensor for inner in part or () for tensor in _tensors(inner)]


# The kernels, each against its meaning: fused_torch.

# Triton's interpreter truncates to bfloat16 where hardware rounds.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE.type == "cuda" else [])
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def randn(*shape: int, dtype: Any) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def assert_near(got: Any, want: Any, dtype: Any) -> None:
    assert got.dtype == dtype
    torch.testing.assert_close(got.double().cpu(), want.double().cpu(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.fixture
def ops() -> Any:
    return kernel_modules().ops


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [48, 64])
def test_norm_kernels(dtype: Any, size: int, ops: Any) -> None:
    update, residual, norm = (randn(7, size, dtype=dtype), 3 * randn(7, size, dtype=dtype), randn(size, dtype=dtype))
    rows = torch.tensor([6, 0, 0, 3], dtype=torch.int32, device=DEVICE)
    untouched = residual.clone()
    got = ops.add_and_norm_rows(update, residual, rows, norm, 1e-5)
    assert_near(got, fused_torch.add_and_norm_rows(update, residual, rows, norm, 1e-5), dtype)
    assert torch.equal(residual, untouched)
    wanted_sum = residual.clone()
    want = fused_torch.add_and_norm(update, wanted_sum, norm, 1e-5)
    assert_near(ops.add_and_norm(update, residual, norm, 1e-5), want, dtype)
    assert torch.equal(residual, wanted_sum)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_embedding_kernel(dtype: Any, ops: Any) -> None:
    buffer = torch.zeros(LAYOUT.input_size, dtype=torch.int32)
    pack(buffer, LATER, 9)
    inputs = view(buffer.to(DEVICE), LAYOUT, 9)
    previous = torch.tensor([90, 91, 92, 93, 94, 95], dtype=torch.int32, device=DEVICE)
    embedding, norm = randn(97, 48, dtype=dtype), randn(48, dtype=dtype)
    got = ops.embed_and_norm(inputs, previous, embedding, norm, 1e-5)
    want = fused_torch.embed_and_norm(inputs, previous, embedding, norm, 1e-5)
    assert torch.equal(got.residual, want.residual)
    assert torch.equal(got.residual[1], embedding[93])
    assert_near(got.normed, want.normed, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("with_norms", [False, True], ids=["plain", "head norms"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(6, 2, 16), (4, 4, 24), (14, 1, 32)])
def test_rope_and_write_kernel(
    heads: int, kv_heads: int, head_dim: int, with_norms: bool, dtype: Any, ops: Any
) -> None:
    tokens, slots = 5, 40
    qkv = randn(tokens, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    rope = randn(tokens, 2, head_dim // 2, dtype=torch.float32)
    write_at = torch.tensor([31, 2, 17, 39, 0], dtype=torch.int32, device=DEVICE)
    norms = HeadNorms(randn(head_dim, dtype=dtype), randn(head_dim, dtype=dtype) + 1) if with_norms else None
    caches = [torch.zeros(slots, kv_heads, head_dim, dtype=dtype, device=DEVICE) for _ in range(4)]
    want = fused_torch.rotate_and_write(qkv.clone(), rope, write_at, *caches[2:], norms, 1e-5)
    got = ops.rotate_and_write(qkv, rope, write_at, *caches[:2], norms, 1e-5)
    assert got.shape == (tokens, heads, head_dim)
    assert_near(got, want, dtype)
    assert_near(caches[0], caches[2], dtype)
    assert torch.equal(caches[1], caches[3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [80, 1100])
def test_silu_kernel(dtype: Any, size: int, ops: Any) -> None:
    gate_up = 4 * randn(3, 2 * size, dtype=dtype)
    assert_near(ops.silu_and_multiply(gate_up), fused_torch.silu_and_multiply(gate_up), dtype)


@pytest.mark.parametrize("settings", [MODELS["qwen3"], MODELS["llama with every bias"]], ids=["qwen3", "llama"])
def test_the_kernels_together_are_the_model(settings: dict[str, Any], ops: Any, tmp_path: Path) -> None:
    name = saved(settings, tmp_path)
    runner = runner_for(name, fuse=True, dtype="float32", device=DEVICE)
    runner._decoder._ops = ops
    torch.testing.assert_close(two_steps(runner), two_steps(runner_for(name, fuse=False)), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [97, 5000])
def test_sampling_kernels_draw_the_same_tokens(dtype: Any, size: int) -> None:
    rows = 24
    logits = (2 * randn(rows, size, dtype=torch.float32)).to(dtype)
    logits[3] = logits[4] = 1.0  # all tie: the first one it is
    temperature = torch.tensor([0.0, 0.7, 1.0, 0.0] * 6, device=DEVICE)
    keys = torch.randint(-(2**31), 2**31, (rows,), generator=torch.Generator().manual_seed(5)).to(DEVICE, torch.int32)
    vocabulary = vocabulary_hashes(size, DEVICE)
    got = kernel_modules().sampling.sample(logits, temperature, keys, vocabulary)
    assert got.dtype == torch.int32
    assert got.tolist() == sample(logits, temperature, keys, vocabulary).tolist()
    assert got[3] == 0
    assert len(set(got.tolist())) > rows // 2


def test_a_broken_model_still_gives_ids_of_the_vocabulary() -> None:
    """NaN everywhere: an id past the end would be read past the end of the embedding by the next step."""
    logits = torch.full((4, 5000), float("nan"), device=DEVICE)
    temperature = torch.tensor([0.0, 1.0] * 2, device=DEVICE)
    keys = torch.arange(4, dtype=torch.int32, device=DEVICE)
    got = kernel_modules().sampling.sample(logits, temperature, keys, vocabulary_hashes(5000, DEVICE))
    assert all(0 <= token < 5000 for token in got.tolist())
