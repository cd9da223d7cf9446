"""cbprof: how long the GPU waited for the CPU, what it waited for, and what removing it would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbprof.api import Recording as Recording
    from cbprof.api import load as load
    from cbprof.api import load_ranks as load_ranks
    from cbprof.api import save_report as save_report
    from cbprof.record.attach import attach as attach
    from cbprof.record.tracer import Tracer as Tracer

__version__ = "0.1.0"
__all__ = ["Recording", "Tracer", "__version__", "attach", "load", "load_ranks", "save_report"]

# Where the public names live. They are imported when they are first used, so that `import cbprof` loads no numpy.
_HOMES = {
    "Recording": "cbprof.api",
    "Tracer": "cbprof.record.tracer",
    "attach": "cbprof.record.attach",
    "load": "cbprof.api",
    "load_ranks": "cbprof.api",
    "save_report": "cbprof.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'cbprof' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
