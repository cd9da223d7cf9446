"""Every kind of model that the engine cannot run is refused by the name of what stands in the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")

from cbprof.engine.model.presets import PRESETS  # noqa: E402
from cbprof.engine.model.refuse import refuse_call, refuse_class, refuse_config  # noqa: E402
from cbprof.errors import UsageError  # noqa: E402

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
ROPE = {"rope_theta": 1e4, "factor": 4.0}
LONG = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "original_max_position_embeddings": 32}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("mistral", {"sliding_window": 4096}, r"a sliding window \(sliding_window=4096\)"),
    ("gemma2", SMALL, "soft-capping"),
    ("gemma3_text", SMALL, "a sliding window"),
    ("qwen2", SMALL | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "a sliding window"),
    ("cohere2", SMALL, "a sliding window"),
    ("llama4_text", {}, "chunked attention"),
    ("gpt_oss", SMALL, "attention sinks"),
    ("deepseek_v3", {}, r"MLA, kv_lora_rank=512"),
    ("deepseek_v2", {}, "MLA"),
    ("mamba", {}, "state-space"),
    ("mamba2", {}, "state-space"),
    ("falcon_mamba", {}, "state-space"),
    ("jamba", {}, "state-space"),
    ("bamba", {}, "state-space"),
    ("falcon_h1", {}, "state-space"),
    ("recurrent_gemma", {}, "state-space"),
    ("rwkv", {}, "state-space"),
    ("qwen3_next", {}, "linear-attention"),
    ("lfm2", {}, "convolution"),
    ("bloom", {}, "ALiBi"),
    ("mpt", {}, "ALiBi"),
    ("falcon", {"alibi": True}, "ALiBi"),
    ("llama", SMALL | {"rope_parameters": ROPE | {"rope_type": "dynamic"}}, r"rope_type=dynamic"),
    ("llama", SMALL | {"rope_parameters": ROPE | LONG | {"rope_type": "longrope"}}, r"rope_type=longrope"),
    ("t5", {}, "an encoder"),
    ("bart", {}, "an encoder"),
    ("gemma3", {}, "several models in one"),
]


@pytest.mark.parametrize(("model_type", "settings", "feature"), REFUSED, ids=[f"{m}-{f}" for m, _, f in REFUSED])
def test_refused_by_name(model_type: str, settings: dict[str, Any], feature: str) -> None:
    config = transformers.AutoConfig.for_model(model_type, **settings)
    with pytest.raises(UsageError, match=feature) as refusal:
        refuse_config(config, "acme/model")
    text = str(refusal.value)
    assert text.startswith("acme/model uses ")
    assert "llama-8b" in text
    assert "\n" not in text


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    *((name, dict(shape)) for name, shape in PRESETS.items()),
    ("mistral", {"model_type": "mistral", "sliding_window": None}),
    ("qwen2 with a window that is off", {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096}),
    ("yarn", {"model_type": "llama", "rope_parameters": ROPE | {"rope_type": "yarn"}}),
    ("linear", {"model_type": "llama", "rope_parameters": ROPE | {"rope_type": "linear"}}),
    *((name, {"model_type": name}) for name in ("gemma", "olmo2", "granite", "phi3", "mixtral", "gpt_neox", "cohere")),
]


@pytest.mark.parametrize("settings", [settings for _, settings in ACCEPTED], ids=[name for name, _ in ACCEPTED])
def test_accepted(settings: dict[str, Any]) -> None:
    config = transformers.AutoConfig.for_model(**settings)
    refuse_config(config, "acme/model")
    refuse_class(transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], "acme/model")


def test_a_class_with_attention_of_its_own() -> None:
    with pytest.raises(UsageError, match=r"attention code of its own \(FalconForCausalLM"):
        refuse_class(transformers.FalconForCausalLM, "acme/falcon")


@pytest.mark.parametrize(
    ("mask", "kwargs", "feature"),
    [
        (None, {"sliding_window": 8}, "a sliding window"),
        (None, {"s_aux": object()}, "attention sinks"),
        (None, {"softcap": 30.0}, "soft-capping"),
        (None, {"is_causal": False}, "not causal"),
        (object(), {}, "an attention mask of its own"),
    ],
)
def test_refused_by_what_it_asks_of_attention(mask: object, kwargs: dict[str, Any], feature: str) -> None:
    module = SimpleNamespace(config=SimpleNamespace(name_or_path="", model_type="odd"), is_causal=True)
    with pytest.raises(UsageError, match=f"odd uses .*{feature}"):
        refuse_call(module, mask, kwargs)
    refuse_call(module, None, {"sliding_window": None, "position_ids": 1})
    module.is_causal = False
    with pytest.raises(UsageError, match="not causal"):
        refuse_call(module, None, {})
