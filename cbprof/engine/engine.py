"""The engine: a device with a model on it, which serves workloads in any mode."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self, cast

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.devices.host.device import HostDevice
from cbprof.engine.hooks import Hooks
from cbprof.engine.loops import LOOPS
from cbprof.engine.model.spec import DtypeName, ModelSpec
from cbprof.engine.model.wanted import check_positions, check_wanted
from cbprof.engine.request import Request
from cbprof.engine.run import prepare_run
from cbprof.engine.scheduler import Counters
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.engine.devices.cuda import CudaDevice


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: the tokens of each request, the counters, and how long the loop took."""

    tokens: dict[int, list[int]]
    counters: Counters
    wall_ns: int


class Engine:
    """A device that stays open over several runs, so that sync and async are compared on the same one.

    ::

        with Engine(EngineConfig(model="tiny")) as engine:
            outcome = engine.serve(Workload().make_requests(engine.vocab_size), "async")

    Raises :class:`UsageError` for a model, dtype or device that cannot be had.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = resolve(config)
        self.device = _open_device(self.config)
        facts = self.device.facts
        try:
            check_positions(facts.name, facts.max_context, self.config.max_context)
        except UsageError:
            self.device.close()
            raise
        # A full collection walks the hundreds of thousands of objects that torch and transformers leave behind. It was
        # seen to stop a loop for 248 ms. What is alive now stays alive: keep it out of collections.
        gc.collect()
        gc.freeze()

    @property
    def vocab_size(self) -> int:
        return self.device.facts.vocab_size

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens with which a checkpoint ends what it writes; none of a model with random weights."""
        return self.device.facts.stop_tokens

    def serve(self, requests: Iterable[Request], mode: Mode, hooks: Hooks | None = None, *, seed: int = 0) -> Outcome:
        """Serve all ``requests`` and return their tokens. ``seed`` is the sampling seed."""
        if mode == "async" and self.config.slots < 2:
            raise UsageError("1 slot holds one batch: async has two in flight, so give at least 2 slots, or run sync")
        requests = list(requests)
        run = prepare_run(self.config, self.device, requests, mode, seed=seed, hooks=hooks)
        started = time.perf_counter_ns()
        try:
            LOOPS[mode](run)
            self.device.synchronize()
        except BaseException:
            self.device.settle()  # what was launched is recorded, but a device that is stuck holds up no Ctrl-C
            raise
        wall_ns = time.perf_counter_ns() - started
        return Outcome({request.id: request.generated for request in requests}, run.scheduler.counters, wall_ns)

    def close(self) -> None:
        gc.unfreeze()
        self.device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_installed() -> None:
    """Raise :class:`UsageError` if the engine's dependencies are missing."""
    missing = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if missing:
        raise UsageError(f"the engine needs {' and '.join(missing)}: pip install 'cbprof[engine]'")


def has_cuda() -> bool:
    """Whether torch sees a GPU."""
    check_installed()
    import torch

    return torch.cuda.is_available()


def resolve(config: EngineConfig) -> EngineConfig:
    """Fill in ``auto``: the GPU and bfloat16 where there is one, else the host device and float32.

    Raises :class:`UsageError` for what is to be had on a GPU only, and where the dependencies are missing.
    """
    check_installed()
    if config.device not in ("auto", "cuda", "host"):
        raise UsageError(f"unknown device {config.device!r}: use auto, cuda or host")
    check_wanted(config.model, config.dtype, config.max_context)
    if config.device == "auto":
        config = replace(config, device="cuda" if has_cuda() else "host")
    if config.compiled and config.device != "cuda":
        raise UsageError("torch.compile is for models on a GPU: leave out --compile, or use --device cuda")
    if config.dtype == "auto":
        config = replace(config, dtype="bfloat16" if config.device == "cuda" else "float32")
    return config


def _open_device(config: EngineConfig) -> CudaDevice | HostDevice:
    spec = ModelSpec(
        name=config.model,
        dtype=cast("DtypeName", config.dtype),
        seed=config.seed,
        fuse=config.fuse,
        compiled=config.compiled,
    )
    if config.device == "cuda":
        from cbprof.engine.devices.cuda import CudaDevice

        return CudaDevice(
            spec,
            config.layout,
            num_blocks=config.cache_blocks,
            slots=config.slots,
            buckets=config.buckets,
            index=config.device_index,
        )
    return HostDevice(spec, config.layout, num_blocks=config.cache_blocks, slots=config.slots, buckets=config.buckets)
