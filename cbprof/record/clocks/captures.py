"""While a graph is captured, a query of another thread can end the capture: clocks stay away from every device then.

torch tells when it captures: :func:`watch` sees it, whoever asked for the graph. Other libraries do not, so a thread of
ours also tells CUDA that its own calls are no part of anybody's capture (:func:`stand_apart`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cbprof.record.wrapping import Wrappings

QUIET = threading.RLock()
"""Held by whoever queries events, and by a capture. One for all devices: torch captures in the mode that forbids calls
to any of them."""

RELAXED = 2
"""``cudaStreamCaptureModeRelaxed``."""

_WATCHED = Wrappings()
_MINE = threading.local()


def watch(graph_class: type) -> None:
    """Hold :data:`QUIET` from ``capture_begin`` to ``capture_end`` of this class, ``torch.cuda.CUDAGraph``. Does
    nothing the second time, and where its methods have other names."""
    if getattr(graph_class, "_cbprof_watched", False):
        return
    held: set[int] = set()
    if _WATCHED.wrap(graph_class, "capture_begin", lambda original: _beginning(original, held)):
        _WATCHED.wrap(graph_class, "capture_end", lambda original: _ending(original, held))
    with suppress(AttributeError, TypeError):
        graph_class._cbprof_watched = True  # type: ignore[attr-defined]


def _beginning(original: Callable[..., Any], held: set[int]) -> Callable[..., Any]:
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        QUIET.acquire()
        try:
            result = original(graph, *args, **kwargs)
        except BaseException:
            QUIET.release()
            raise
        held.add(id(graph))
        return result

    return capture_begin


def _ending(original: Callable[..., Any], held: set[int]) -> Callable[..., Any]:
    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(graph, *args, **kwargs)
        finally:
            if id(graph) in held:  # not one that was begun before anybody watched
                held.discard(id(graph))
                QUIET.release()

    return capture_end


def stand_apart() -> None:
    """Calls of this thread neither end a capture of another one nor fail because of it. Once for a thread; without the
    CUDA runtime, nothing."""
    if getattr(_MINE, "apart", False):
        return
    _MINE.apart = True
    with suppress(OSError, AttributeError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            library = line.split()[-1]
            if "/libcudart.so" in library:
                ctypes.CDLL(library).cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(RELAXED)))
                return
