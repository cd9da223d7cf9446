"""Presets, folders and hub ids: what loads, and the one line for what does not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from cbprof.engine.model.load import describe, load  # noqa: E402
from cbprof.engine.model.presets import LOGIT_STD, PRESETS  # noqa: E402
from cbprof.engine.model.spec import ModelFacts, ModelSpec  # noqa: E402
from cbprof.errors import CbprofError, DataError, UsageError  # noqa: E402

CPU = torch.device("cpu")
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.AutoConfig.for_model("llama", **SMALL, eos_token_id=[2, 7], max_position_embeddings=99)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_spec_and_facts_need_no_torch_and_travel() -> None:
    code = "import sys, cbprof.engine.model.spec, cbprof.engine.model.presets, cbprof.engine.noise; "
    code += "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    facts = describe(ModelSpec("tiny"))
    assert pickle.loads(pickle.dumps(facts)) == facts


@pytest.mark.parametrize(
    ("name", "parameters", "looked_up", "kv_bytes"),
    [
        ("llama-1b", 1_235_814_400, 0, 32_768),
        ("llama-8b", 8_030_261_248, 128_256 * 4096, 131_072),
        ("qwen3-8b", 8_190_735_360, 151_936 * 4096, 147_456),
    ],
)
def test_presets_have_the_published_sizes(name: str, parameters: int, looked_up: int, kv_bytes: int) -> None:
    facts = describe(ModelSpec(name, "bfloat16"))
    assert facts.parameters == parameters
    assert facts.step_weight_bytes == 2 * (parameters - looked_up)
    assert facts.kv_bytes_per_token == kv_bytes
    assert facts.stop_tokens == ()


def test_random_weights_are_reproducible() -> None:
    first, again, other = (load(ModelSpec("tiny", seed=seed), CPU).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize("rope", [None, "llama3"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_buffers_stay_float32_and_correct(rope: str | None, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = dict(PRESETS["tiny"])
    if rope:
        shape["rope_parameters"] = PRESETS["llama-8b"]["rope_parameters"]
    monkeypatch.setitem(PRESETS, "shape", shape)
    model = load(ModelSpec("shape", dtype), CPU)
    plain = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**shape))
    assert model.dtype == getattr(torch, dtype)
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert torch.equal(model.model.rotary_emb.inv_freq, plain.model.rotary_emb.inv_freq)
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("tied", [False, True])
def test_random_weights_give_varied_tokens(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "shape", dict(PRESETS["tiny"]) | {"tie_word_embeddings": tied})
    model = load(ModelSpec("shape"), CPU)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        logits = model(torch.arange(0, 2048, 16)[None]).logits[0]
    assert logits.std() == pytest.approx(LOGIT_STD, rel=0.1)
    assert len(set(logits.argmax(-1).tolist())) > 64  # of 128 different contexts
    draws = torch.multinomial(logits.softmax(-1), 4, generator=torch.Generator().manual_seed(0))
    assert len(set(draws.flatten().tolist())) > 300  # of 512 draws


def test_a_folder_loads(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = ModelSpec(str(folder), "bfloat16")
    model, facts = load(spec, CPU), describe(spec)
    assert isinstance(facts, ModelFacts)
    assert (facts.stop_tokens, facts.max_context, facts.layers, facts.kv_heads) == ((2, 7), 99, 2, 2)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "cbprof_paged"
    assert "Loading" not in "".join(capfd.readouterr())


def refusal(name: str, kind: type[CbprofError], **spec: Any) -> str:
    with pytest.raises(kind) as error:
        load(ModelSpec(name, **spec), CPU)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_names_that_are_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "tiny, llama-1b, llama-8b, qwen3-8b" in refusal("tinny", UsageError)
    assert "there is no folder ./nowhere" in refusal("./nowhere", UsageError)
    assert "there is no folder /nowhere" in refusal("/nowhere", UsageError)
    assert "the hub cannot be reached" in refusal("acme/not-in-the-cache", UsageError)
    assert "no config.json" in refusal(str(tmp_path), DataError)
    (tmp_path / "file").touch()
    assert "is a file" in refusal(str(tmp_path / "file"), DataError)
    assert "float8" in refusal("tiny", UsageError, dtype="float8")


def test_hub_errors_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx
    from huggingface_hub import errors

    response = httpx.Response(401, request=httpx.Request("GET", "https://hub"))
    for error, words in (
        (errors.GatedRepoError("long\ntext", response=response), "is gated"),
        (errors.RepositoryNotFoundError("long\ntext", response=response), "the hub has no model"),
    ):

        def fail(*args: Any, error: Exception = error, **kwargs: Any) -> None:
            raise OSError("what transformers says\nin lines") from error

        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", fail)
        assert words in refusal("acme/model", UsageError)


def test_broken_folders(folder: Path) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    whole, settings = weights.read_bytes(), json.loads(config.read_text())

    weights.write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded" in refusal(str(folder), DataError)

    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    assert "has no safetensors weights" in refusal(str(folder), DataError)

    weights.write_bytes(whole)
    config.write_text(json.dumps(settings | {"num_hidden_layers": 3}))
    assert "the checkpoint lacks 9 weights" in refusal(str(folder), DataError)

    config.write_text(json.dumps(settings | {"hidden_size": 64}))
    assert "cannot be loaded" in refusal(str(folder), DataError)

    config.write_text(json.dumps(settings | {"model_type": "brand_new", "auto_map": {"AutoConfig": "code.New"}}))
    assert "code of a checkpoint is never run" in refusal(str(folder), UsageError)

    config.write_text(json.dumps(settings | {"model_type": "brand_new"}))
    assert "needs code that transformers does not ship" in refusal(str(folder), UsageError)

    config.write_text("{ not json")
    assert "cannot be loaded" in refusal(str(folder), DataError)


def test_refused_before_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mistral", "sliding_window": 5}))
    assert "a sliding window" in refusal(str(folder), UsageError)
    (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
    assert "no causal language model" in refusal(str(folder), UsageError)
