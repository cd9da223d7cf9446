"""transformers' own continuous batching on our workloads, so that two engines can be laid side by side."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Self, cast

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Outcome, check_installed
from cbprof.engine.model.spec import DtypeName, ModelSpec
from cbprof.engine.request import Request
from cbprof.engine.scheduler import Counters
from cbprof.errors import EngineError, UsageError
from cbprof.record.engines.transformers import attention
from cbprof.record.engines.transformers.attach import import_continuous_batching

SPARE = 1.25
"""Times the KV blocks that a full batch needs: transformers lets nobody in while less than 15 % of them are free."""

NO_STOP = -1

LOGGER = "ContinuousBatchingLogger"


class TransformersEngine:
    """A model of transformers, and its continuous batching.

    The model, device, dtype, batch, cache and seed of ``config`` count; the rest is not transformers'. Raises
    :class:`UsageError` for what it cannot do, such as async without CUDA.
    """

    def __init__(self, config: EngineConfig, modes: Iterable[Mode] = ("sync",)) -> None:
        check_installed()
        import_continuous_batching()
        self.config = _resolved(config)
        if self.config.device == "cpu":
            if "async" in modes:
                raise UsageError("transformers batches asynchronously on CUDA only: give --mode sync")
            if find_spec("psutil") is None:
                raise UsageError("the continuous batching of transformers on a CPU needs psutil: pip install psutil")
        self._use_device()
        self.model: Any = _load(self.config)
        self._takes_our_attention = attention.NAME in str(getattr(self.model.config, "_attn_implementation", ""))

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.vocab_size)

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens with which a checkpoint ends what it writes; none of a model with random weights."""
        from cbprof.engine.model.load import end_tokens

        return end_tokens(self.model.config, self.config.model)

    def _use_device(self) -> None:
        """Make the GPU of this process the one that torch means by ``cuda``."""
        import torch

        if self.config.device == "cuda":
            if self.config.device_index >= torch.cuda.device_count():
                index, seen = self.config.device_index, torch.cuda.device_count()
                raise UsageError(f"there is no CUDA device {index}: torch sees {seen}")
            torch.cuda.set_device(self.config.device_index)

    def serve(self, requests: Iterable[Request], mode: Mode) -> Outcome:
        """Serve all ``requests`` and return their tokens. Raises :class:`EngineError` if one of them fails."""
        calls = attention.calls
        waiting = deque(sorted(requests, key=lambda request: request.arrival_ns))
        tokens: dict[int, list[int]] = {}
        with self._manager(waiting[0], mode) as manager:
            started = time.perf_counter_ns()
            missing = len(waiting)
            while missing:
                _submit(manager, waiting, time.perf_counter_ns() - started)
                result = manager.get_result(timeout=_patience_s(waiting, time.perf_counter_ns() - started))
                if result is not None and result.is_finished():
                    if result.error is not None:
                        raise EngineError(f"transformers failed on request {result.request_id}: {result.error}")
                    tokens[int(result.request_id)] = list(result.generated_tokens)
                    missing -= 1
                elif result is None and not manager.is_running():
                    raise EngineError("the generation thread of transformers has ended: see its log above")
            wall_ns = time.perf_counter_ns() - started
        if self._takes_our_attention and attention.calls == calls:
            raise EngineError(
                f"transformers {version('transformers')} did not use the attention it was given, so its tokens are "
                "wrong: install flash-attn, or a version up to 5.24"
            )
        counters = Counters(tokens=sum(map(len, tokens.values())), finished=len(tokens))
        return Outcome(dict(sorted(tokens.items())), counters, wall_ns)

    @contextmanager
    def _manager(self, sample: Request, mode: Mode) -> Iterator[Any]:
        """A manager under way, which drops what it still has if the block fails."""
        manager = self.model.continuous_batching_context_manager(
            generation_config=_generation_config(sample),
            continuous_batching_config=self._batching_config(mode),
            block=True,
            timeout=60,
        )
        with manager as running:
            try:
                yield running
            except BaseException:
                logging.getLogger(LOGGER).setLevel(logging.CRITICAL)  # it tells of each request that is dropped
                running.stop(block=True, timeout=10, hard_stop=True)
                raise

    def _batching_config(self, mode: Mode) -> Any:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        config, on_cuda = self.config, self.config.device == "cuda"
        size = 256 if on_cuda else config.block_size  # 256 is what transformers takes itself
        blocks = int(config.max_batch * (-(-config.max_context // size) + 1) * SPARE) + 1
        wanted = {
            "block_size": size,
            "num_blocks": blocks,
            "max_batch_tokens": config.max_batch_tokens,
            "max_requests_per_batch": config.max_batch,
            "use_async_batching": mode == "async",
            "use_cuda_graph": on_cuda,
            "seed": config.seed,
        }
        if self._takes_our_attention:
            wanted["max_blocks_per_request"] = 0  # no block tables, which torch's kernel does not take
        known = {field.name for field in fields(ContinuousBatchingConfig)}
        return ContinuousBatchingConfig(**{name: value for name, value in wanted.items() if name in known})

    def close(self) -> None:
        """Give the model's memory back."""
        self.model = None
        if self.config.device == "cuda":
            import gc

            import torch

            gc.collect()
            torch.cuda.empty_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _resolved(config: EngineConfig) -> EngineConfig:
    """Fill in ``auto``: the GPU and bfloat16 where there is one, else the CPU and float32."""
    import torch

    if config.device not in ("auto", "cuda", "cpu"):
        raise UsageError(f"transformers runs on --device cuda, cpu or auto, not on {config.device!r}")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device: use --device cpu, or check nvidia-smi and the build of torch")
    if config.device == "auto":
        config = replace(config, device="cuda" if torch.cuda.is_available() else "cpu")
    if config.dtype == "auto":
        config = replace(config, dtype="bfloat16" if config.device == "cuda" else "float32")
    return config


def _load(config: EngineConfig) -> Any:
    import torch

    from cbprof.engine.model.load import load

    spec = ModelSpec(name=config.model, dtype=cast("DtypeName", config.dtype), seed=config.seed)
    model = load(spec, torch.device(config.device), attention="sdpa")
    if config.device == "cuda" and config.dtype in {"bfloat16", "float16"} and find_spec("flash_attn") is None:
        attention.use_torch_flash(model)
    return model


def _generation_config(request: Request) -> Any:
    """What all requests have in common, taken from one of them: plain sampling at its temperature."""
    from transformers import GenerationConfig

    sampling = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if request.temperature else {}
    return GenerationConfig(do_sample=bool(sampling), eos_token_id=NO_STOP, pad_token_id=0, **sampling)


def _submit(manager: Any, waiting: deque[Request], now_ns: int) -> None:
    """Hand in the requests that have arrived."""
    while waiting and waiting[0].arrival_ns <= now_ns:
        request = waiting.popleft()
        manager.add_request(
            request.ids[: request.prompt_length].tolist(),
            request_id=str(request.id),
            max_new_tokens=request.max_length - request.prompt_length,
            eos_token_id=list(request.stop_tokens) or NO_STOP,
        )


def _patience_s(waiting: deque[Request], now_ns: int) -> float:
    """How long to wait for a result: until the next request arrives, or long enough to see that the thread has died."""
    return min(1.0, max(0.0, (waiting[0].arrival_ns - now_ns) / 1e9)) if waiting else 1.0
