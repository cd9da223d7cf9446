"""The calls of torch.cuda that a program may wait in, recorded where no engine's own phase holds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from cbprof.record.tracer import Tracer
from cbprof.record.wrapping import Wrappings

Method = Callable[..., Any]


class Call(NamedTuple):
    """A function of torch.cuda (``owner`` empty) or a method of one of its classes, by the name of what it calls."""

    owner: str
    name: str
    cuda_name: str
    blocks: bool


CALLS = (
    Call("", "synchronize", "cudaDeviceSynchronize", blocks=True),
    Call("Stream", "synchronize", "cudaStreamSynchronize", blocks=True),
    Call("Event", "synchronize", "cudaEventSynchronize", blocks=True),
    Call("CUDAGraph", "replay", "cudaGraphLaunch", blocks=False),
)
"""With the names that profilers show, so that traces of either kind read the same."""


def wrap_cuda(torch_cuda: ModuleType, tracer: Tracer, covered: Callable[[], bool]) -> Wrappings:
    """Record :data:`CALLS`, except while ``covered()``: then an engine's own phase already holds the call."""
    wrappings = Wrappings()
    for call in CALLS:
        owner = getattr(torch_cuda, call.owner, None) if call.owner else torch_cuda
        if owner is not None:
            wrappings.wrap(owner, call.name, partial(_timed, call=call, tracer=tracer, covered=covered))
    return wrappings


def _timed(original: Method, *, call: Call, tracer: Tracer, covered: Callable[[], bool]) -> Method:
    phase = tracer.wait if call.blocks else tracer.cpu

    def timed(*args: Any, **kwargs: Any) -> Any:
        if not tracer.on or covered():
            return original(*args, **kwargs)
        with phase(call.cuda_name):
            return original(*args, **kwargs)

    return timed
