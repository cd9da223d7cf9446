"""``cbprof.attach("transformers")``: its continuous batching, recorded in the user's own program, then left alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NamedTuple

from cbprof.errors import UsageError
from cbprof.record.engines.transformers.loop import LoopPhases
from cbprof.record.tracer import Tracer
from cbprof.record.wrapping import Wrappings, standing_aside

PACKAGE = "transformers.generation.continuous_batching"

LAST_MODULE = f"{PACKAGE}.continuous_api"
"""The module that imports all others that are instrumented."""


class WrapPoint(NamedTuple):
    """A method of transformers, the phase that it is, and the wrapper (a method of :class:`LoopPhases`) that times it.

    ``owner`` is a class of ``module``, or ``*`` for every class there that defines the method. ``optional``: older
    versions do without it, and nothing is missing there.
    """

    module: str
    owner: str
    method: str
    wrapper: str
    phase: str
    optional: bool = False


POINTS = (
    WrapPoint("continuous_api", "ContinuousBatchingManager", "_generation_loop_body", "iteration", "iteration"),
    WrapPoint("continuous_api", "ContinuousBatchProcessor", "prepare_next_batch", "prepare", "prepare"),
    WrapPoint("continuous_api", "ContinuousBatchProcessor", "_generation_step", "dispatch", "dispatch"),
    WrapPoint("continuous_api", "ContinuousBatchProcessor", "update_batch", "update", "update"),
    WrapPoint("continuous_api", "BackgroundThreadStatus", "pause_and_wait", "pause", "no_requests", optional=True),
    WrapPoint("offloading_manager", "OffloadingManager", "offload_requests", "offload", "offload", optional=True),
    WrapPoint(
        "offloading_manager", "OffloadingManager", "restore_scheduled_requests", "restore", "restore", optional=True
    ),
    WrapPoint("cache", "PagedAttentionCache", "perform_cache_copy", "fork", "fork", optional=True),
    WrapPoint("continuous_api", "OutputRouter", "deliver_batch", "deliver", "deliver"),
    WrapPoint("scheduler", "*", "schedule_batch", "schedule", "schedule"),
    WrapPoint("input_outputs", "ContinuousBatchingIOs", "prepare_batch_tensors", "inputs", "inputs"),
    WrapPoint("input_outputs", "ContinuousBatchingAsyncIOs", "prepare_batch_tensors", "inputs", "inputs"),
    WrapPoint("input_outputs", "ContinuousBatchingIOs", "retrieve_device_outputs", "wait_in_dispatch", "wait"),
    WrapPoint("input_outputs", "ContinuousBatchingAsyncIOs", "prepare_batch_update", "wait_in_update", "wait"),
    WrapPoint("input_outputs", "ContinuousBatchingIOs", "prepare_batch_update", "read", "read"),
    WrapPoint("input_outputs", "HostDeviceIOPair", "transfer_inputs_h2d", "h2d", "h2d"),
    WrapPoint("input_outputs", "HostDeviceIOPair", "transfer_outputs_d2h", "d2h", "d2h"),
    WrapPoint("model_runner", "ModelRunner", "compute_batch", "compute", "compute"),
    WrapPoint("model_runner", "ModelRunner", "_capture_graph", "capture", "capture"),
    WrapPoint("model_runner", "ModelRunner", "warmup", "warmup", "warmup"),
)


class Instrumented:
    """transformers while its methods are wrapped; :meth:`undo` puts them back.

    A method that this version does not have costs its phase, and a warning that names it. ``step_begins`` is called
    with the number of each step when its preparation begins. What fails in a wrapper takes it out of use, and ``note``
    is told once; without one, :meth:`undo` warns. Raises :class:`UsageError` where transformers is missing, has no
    continuous batching, or is instrumented already.
    """

    def __init__(
        self,
        tracer: Tracer,
        step_begins: Callable[[int], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        import_continuous_batching()
        self._phases = LoopPhases(tracer, step_begins)
        self._wrappings = Wrappings()
        self.missing: list[str] = []
        self._failures: list[str] = []
        self._note = note or self._failures.append
        if _IN_FORCE:
            raise UsageError("transformers is recorded already: leave the other cbprof.attach first")
        _IN_FORCE.append(self)
        for point in POINTS:
            wrapper = standing_aside(getattr(self._phases, point.wrapper), self._failed)
            wrapped = sum(self._wrappings.wrap(owner, point.method, wrapper) for owner in _owners(point))
            if not wrapped and not point.optional:
                self.missing.append(f"{point.owner}.{point.method} (phase {point.phase})")
        if self.missing:
            warnings.warn(
                f"transformers {version('transformers')} has no {', no '.join(self.missing)}: not recorded",
                RuntimeWarning,
                stacklevel=4,
            )

    def _failed(self, method: str, error: Exception) -> None:
        """On an engine's thread: keep it for later."""
        reason = " ".join(str(error).split()) or type(error).__name__
        self._note(f"transformers' {method} is not as cbprof knows it, and was not recorded any more: {reason}")

    @property
    def saw_batches(self) -> bool:
        """Whether continuous batching ran."""
        return self._phases.processor is not None

    def forget_batches(self) -> None:
        """Another recording begins: what it says of the engine is of the batches that it sees itself."""
        self._phases.processor = None

    def under_way_here(self) -> bool:
        """Whether the calling thread is inside the loop or its warm-up."""
        return self._phases.under_way_here()

    def describe(self) -> dict[str, Any]:
        """What the trace should say of what was seen: engine, mode, device."""
        processor = self._phases.processor
        meta = {
            "engine": f"transformers {version('transformers')} continuous batching",
            "transformers": version("transformers"),
            "torch": version("torch"),
        }
        if processor is not None:
            meta["mode"] = "async" if getattr(processor, "use_async_batching", False) else "sync"
            meta["device"] = _device_name(getattr(processor, "model_device", None))
            meta["dtype"] = str(getattr(processor, "model_dtype", "")).removeprefix("torch.")
            meta["model"] = getattr(getattr(processor, "config", None), "model_type", "")
        return {key: value for key, value in meta.items() if value}

    def undo(self) -> None:
        """Leave transformers as it was. Safe to call twice."""
        self._wrappings.undo()
        if self in _IN_FORCE:
            _IN_FORCE.remove(self)
        failures, self._failures[:] = tuple(self._failures), []
        for failure in failures:
            warnings.warn(failure, RuntimeWarning, stacklevel=4)


_IN_FORCE: list[Instrumented] = []


def import_continuous_batching() -> None:
    """Import what is to be instrumented. Raises :class:`UsageError` where that cannot be."""
    try:
        import_module(LAST_MODULE)
    except ImportError as error:
        try:
            found = f"transformers {version('transformers')} has no continuous batching that can be imported ({error})"
        except PackageNotFoundError:
            found = "transformers is not installed"
        raise UsageError(f"{found}: pip install 'transformers>=5.9'") from error


def _owners(point: WrapPoint) -> Iterator[type]:
    """The classes of this version whose method is wrapped."""
    module = sys.modules.get(f"{PACKAGE}.{point.module}")
    if module is None:
        return
    if point.owner == "*":
        yield from _classes_with(module, point.method)
    elif isinstance(owner := getattr(module, point.owner, None), type):
        yield owner


def _classes_with(module: ModuleType, method: str) -> Iterator[type]:
    """The classes of a module that define the method, and those derived from them elsewhere, but not its abstract."""
    pending = [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, method)]
    seen: set[type] = set()
    while pending:
        owner = pending.pop()
        if owner not in seen:
            seen.add(owner)
            pending.extend(owner.__subclasses__())
            if method in vars(owner) and not getattr(vars(owner)[method], "__isabstractmethod__", False):
                yield owner


def _device_name(device: Any) -> str:
    """``NVIDIA H200``, ``cpu``, or nothing."""
    if getattr(device, "type", None) != "cuda":
        return str(device or "")
    import torch

    return torch.cuda.get_device_name(device)
