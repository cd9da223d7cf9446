"""``cbprof.attach``: record another engine from outside, in the program that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from cbprof.errors import UsageError
from cbprof.record.clocks.choice import DeviceChoice, cuda_or_host_clock
from cbprof.record.engines.transformers.attach import Instrumented
from cbprof.record.program.embedded import VllmAttachment
from cbprof.record.recorder import Recorded
from cbprof.record.tracer import Tracer
from cbprof.record.wrapping import with_context
from cbprof.trace import SpanSink

P = ParamSpec("P")
R = TypeVar("R")

ENGINES = ("transformers", "vllm")


@overload
def attach(
    engine: Literal["transformers"],
    path: Path | str | SpanSink = "trace.json",
    *,
    device: DeviceChoice = "auto",
    meta: Mapping[str, Any] | None = None,
    nvtx: bool = False,
    record_function: bool = False,
    step_begins: Callable[[int], None] | None = None,
) -> Attachment: ...


@overload
def attach(
    engine: str,
    path: Path | str | SpanSink = "trace.json",
    *,
    device: DeviceChoice = "auto",
    meta: Mapping[str, Any] | None = None,
    nvtx: bool = False,
    record_function: bool = False,
    step_begins: Callable[[int], None] | None = None,
) -> Attachment | VllmAttachment: ...


def attach(
    engine: str,
    path: Path | str | SpanSink = "trace.json",
    *,
    device: DeviceChoice = "auto",
    meta: Mapping[str, Any] | None = None,
    nvtx: bool = False,
    record_function: bool = False,
    step_begins: Callable[[int], None] | None = None,
) -> Attachment | VllmAttachment:
    """Record ``engine`` while a block runs, or each call of a function, into ``path``.

    ::

        with cbprof.attach("transformers", path="trace.json"):
            model.generate_batch(prompts, ...)

        @cbprof.attach("transformers", path="trace.json")
        def serve(): ...

    The engine's methods are wrapped on entry and put back on exit, and its tokens are the same. ``transformers`` means
    its continuous batching, sync or async. ``vllm`` is recorded in all processes that it makes inside the block: its
    ``LLM`` has to be made there. It takes a ``path`` and no other option.

    The options are those of :class:`~cbprof.record.tracer.Tracer`, but that ``auto`` is ``host`` where there is no GPU;
    ``step_begins`` is called with the number of each step, on the engine's thread, when its preparation begins. Raises
    :class:`UsageError` for an engine that is not known or not installed.
    """
    if engine not in ENGINES:
        raise UsageError(
            f"cannot attach to {engine!r}, only to {', '.join(ENGINES)}; mark the phases of your own engine with "
            "cbprof.Tracer, or import its torch.profiler trace"
        )

    if engine == "vllm":
        if device != "auto" or meta or nvtx or record_function or step_begins:
            raise UsageError("cbprof.attach('vllm') takes a path, and no other option: it records several processes")
        if not isinstance(path, str | Path):
            raise UsageError("cbprof.attach('vllm') writes a file, from several processes: give its name as path")
        return VllmAttachment(Path(path))

    def new_tracer() -> Tracer:
        return Tracer(
            path,
            device=cuda_or_host_clock if device == "auto" else device,
            meta=meta,
            nvtx=nvtx,
            record_function=record_function,
        )

    return Attachment(new_tracer, step_begins)


class Attachment:
    """A context manager and a decorator; each use is a recording of its own, to the same file.

    ``tracer`` records inside the block, for phases of your own beside the engine's. ``complete`` can be set to False
    where the run ends early. ``recorded`` says afterwards what the recording holds.
    """

    def __init__(self, new_tracer: Callable[[], Tracer], step_begins: Callable[[int], None] | None) -> None:
        self._new_tracer = new_tracer
        self._step_begins = step_begins
        self._instrumented: Instrumented | None = None
        self.tracer = new_tracer()
        self.complete = True
        self.recorded: Recorded | None = None

    def __enter__(self) -> Self:
        if self._instrumented is not None:
            raise UsageError("this cbprof.attach is in use already: make another for another block")
        self._instrumented = Instrumented(self.tracer, self._step_begins)
        try:
            self.tracer.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        instrumented = self._leave()
        self.tracer.meta = instrumented.describe() | self.tracer.meta
        self.recorded = self.tracer.close(complete=self.complete and error is None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return with_context(function, lambda: Attachment(self._new_tracer, self._step_begins))

    def _leave(self) -> Instrumented:
        instrumented, self._instrumented = self._instrumented, None
        assert instrumented is not None
        instrumented.undo()
        return instrumented
