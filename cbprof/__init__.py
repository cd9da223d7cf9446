"""cbprof: how long the GPU waited for the CPU, what it waited for, and what removing it would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbprof import errors as errors
    from cbprof import fleet as fleet
    from cbprof.api import Recording as Recording
    from cbprof.api import load as load
    from cbprof.api import load_ranks as load_ranks
    from cbprof.api import save_report as save_report
    from cbprof.errors import CbprofError as CbprofError
    from cbprof.errors import DataError as DataError
    from cbprof.errors import EngineError as EngineError
    from cbprof.errors import UsageError as UsageError
    from cbprof.record.attach import attach as attach
    from cbprof.record.tracer import Tracer as Tracer

__version__ = "0.1.0"
__all__ = [
    "CbprofError",
    "DataError",
    "EngineError",
    "Recording",
    "Tracer",
    "UsageError",
    "__version__",
    "attach",
    "errors",
    "fleet",
    "load",
    "load_ranks",
    "save_report",
]

# Where the public names live. They are imported when they are first used, so that `import cbprof` loads no numpy.
_HOMES = {
    "CbprofError": "cbprof.errors",
    "DataError": "cbprof.errors",
    "EngineError": "cbprof.errors",
    "Recording": "cbprof.api",
    "Tracer": "cbprof.record.tracer",
    "UsageError": "cbprof.errors",
    "attach": "cbprof.record.attach",
    "load": "cbprof.api",
    "load_ranks": "cbprof.api",
    "save_report": "cbprof.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"cbprof.{name}")
    raise AttributeError(f"module 'cbprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
