"""From a name to a model on a device: a preset with random weights, a local folder, or a hub id.

Weights are read from safetensors only and code of the checkpoint is never run. What the engine cannot run is refused
before any weight is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from cbprof.engine.model.attention.paged import ATTENTION_NAME, register_attention
from cbprof.engine.model.presets import PRESETS, fill_randomly
from cbprof.engine.model.refuse import refuse_class, refuse_config
from cbprof.engine.model.spec import DTYPES, ModelFacts, ModelSpec
from cbprof.engine.model.wanted import refuse_bad_path
from cbprof.errors import CbprofError, DataError, UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def describe(spec: ModelSpec) -> ModelFacts:
    """The facts of a model from its configuration alone: no weights are read or made.

    Raises the errors of :func:`load`, but for those of the weights.
    """
    config = _read_config(spec)
    with torch.device("meta"):
        return facts(_empty_model(config, spec, ATTENTION_NAME), spec)


def load(spec: ModelSpec, device: torch.device, *, attention: str = ATTENTION_NAME) -> PreTrainedModel:
    """The model on ``device``, ready for inference; with the paged attention in place, if not with another.

    Raises :class:`UsageError` for a name that is no model, a model that the engine cannot run, or one that cannot be
    fetched, and :class:`DataError` for a folder or checkpoint that is not what it should be.
    """
    config = _read_config(spec)
    make = _random_model if spec.name in PRESETS else _pretrained_model
    model = make(config, spec, device, attention)
    return model.eval().requires_grad_(False)


def facts(model: PreTrainedModel, spec: ModelSpec) -> ModelFacts:
    """The sizes of ``model``; tied weights count once."""
    config: Any = model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    parameters = sum(parameter.numel() for parameter in model.parameters())
    itemsize = dtype_of(spec).itemsize
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    looked_up = 0 if embedding.weight is head.weight else embedding.weight.numel()
    return ModelFacts(
        name=spec.name,
        architecture=config.model_type,
        dtype=spec.dtype,
        vocab_size=config.vocab_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_context=config.max_position_embeddings,
        parameters=parameters,
        step_weight_bytes=(parameters - looked_up) * itemsize,
        kv_bytes_per_token=2 * config.num_hidden_layers * kv_heads * head_dim * itemsize,
        stop_tokens=end_tokens(config, spec.name),
    )


def end_tokens(config: PreTrainedConfig, name: str) -> tuple[int, ...]:
    """The tokens with which the model called ``name`` ends what it writes; random weights end nowhere."""
    stop = None if name in PRESETS else config.eos_token_id
    return () if stop is None else tuple(stop) if isinstance(stop, list) else (stop,)


def dtype_of(spec: ModelSpec) -> torch.dtype:
    """The torch dtype that ``spec`` names. Raises :class:`UsageError` for one that is not offered."""
    if spec.dtype not in DTYPES:
        raise UsageError(f"dtype {spec.dtype!r} is not one of {', '.join(DTYPES)}")
    dtype = getattr(torch, spec.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _read_config(spec: ModelSpec) -> PreTrainedConfig:
    """The configuration, checked: every feature in it is one that the engine runs."""
    from transformers import AutoConfig

    dtype_of(spec)
    if spec.name in PRESETS:
        config = AutoConfig.for_model(**PRESETS[spec.name])
    else:
        refuse_bad_path(spec.name)
        with one_line_errors(spec.name):
            config = AutoConfig.from_pretrained(spec.name, trust_remote_code=False)
    refuse_config(config, spec.name)
    refuse_class(_model_class(config, spec.name), spec.name)
    return config


def _model_class(config: PreTrainedConfig, name: str) -> Any:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    try:
        return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        raise UsageError(
            f"{name} is a {config.model_type}, which transformers has no causal language model for"
        ) from None


def _empty_model(config: PreTrainedConfig, spec: ModelSpec, attention: str) -> PreTrainedModel:
    """A model on the current default device whose weights are not set yet; buffers and norms are."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    register_attention()
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype_of(spec), attn_implementation=attention)
    model.tie_weights()
    return model


def _random_model(config: PreTrainedConfig, spec: ModelSpec, device: torch.device, attention: str) -> PreTrainedModel:
    with torch.device(device):
        model = _empty_model(config, spec, attention)
    fill_randomly(model, spec.seed)
    return model


def _pretrained_model(
    config: PreTrainedConfig, spec: ModelSpec, device: torch.device, attention: str
) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    register_attention()
    with one_line_errors(spec.name):
        model, report = AutoModelForCausalLM.from_pretrained(
            spec.name,
            config=config,
            dtype=dtype_of(spec),
            attn_implementation=attention,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    # transformers fills what a checkpoint lacks with random numbers and goes on.
    if missing := sorted(report["missing_keys"]):
        raise DataError(
            f"{spec.name}: the checkpoint lacks {counted(len(missing), 'weight')}, {missing[0]} first; fetch it again"
        )
    return model.to(device)


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Turn what transformers and the hub raise into one line each, and keep their warnings and bars quiet."""
    from huggingface_hub import errors
    from transformers.utils import logging as transformers_logging

    bars, level = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    except CbprofError:
        raise
    except Exception as error:
        causes = tuple(_chain(error))
        text = " ".join(str(error).split())
        raise _explain(name, causes, text, errors) from error
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _explain(name: str, causes: tuple[BaseException, ...], text: str, hub: Any) -> CbprofError:
    """One line for the user: from the type of the error and, where several causes share a type, from its text."""

    def caused_by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if caused_by(hub.GatedRepoError):
        return UsageError(f"{name} is gated: accept its licence on huggingface.co and set HF_TOKEN, or use a preset")
    if caused_by(hub.RepositoryNotFoundError):
        return UsageError(f"the hub has no model {name}; give {', '.join(PRESETS)}, a local folder, or a hub id")
    if caused_by(hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled, ConnectionError):
        return UsageError(f"{name} is not in the local cache and the hub cannot be reached; give a folder or a preset")
    if "trust_remote_code" in text or "does not recognize this architecture" in text:
        return UsageError(f"{name} needs code that transformers does not ship, and code of a checkpoint is never run")
    if "safetensors" in text and ("no file named" in text or "does not appear to have a file" in text):
        return DataError(f"{name} has no safetensors weights; other formats can run code when loaded and are not read")
    return DataError(f"{name} cannot be loaded: {text[:200]}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
