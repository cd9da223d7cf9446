"""Stand-ins for vLLM, imported anew for a test, and hooked up to a tracer."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

from cbprof.record.engines.vllm.attach import VllmHooks
from cbprof.record.engines.vllm.points import MODULES
from cbprof.record.tracer import Tracer

STAND_IN = Path(__file__).parent / "data" / "vllm_stand_in"

TOKENS = (
    {"0": [85, 92, 99, 5, 12], "1": [77, 84, 91, 98, 4], "2": [85, 92, 99, 5, 12]},
    {"0": [61, 68, 75, 82, 89], "1": [77, 84, 91, 98, 4]},
)
"""What :func:`vllm.entrypoints.serve` gives, however it is set up."""


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """``vllm`` is what lies in ``folder``, and nothing is left of it afterwards."""
    sys.path.insert(0, str(folder))
    invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
            del sys.modules[name]


@contextmanager
def hooked(tracer: Tracer, notes: list[str]) -> Iterator[VllmHooks]:
    """Every method of the stand-in that there is, wrapped for the block."""
    hooks = VllmHooks(tracer, lambda: None, lambda complete: None, lambda step: None, notes.append)
    for name in MODULES:
        try:
            hooks.instrument(import_module(name))
        except ModuleNotFoundError:
            continue
    try:
        yield hooks
    finally:
        hooks.undo()


def serve(**how: Any) -> Any:
    return import_module("vllm.entrypoints").serve(**how)


def renamed(name: str, folder: Path) -> Path:
    """A stand-in in which something has another name, everywhere."""
    shutil.copytree(STAND_IN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in folder.rglob("*.py"):
        file.write_text(re.sub(rf"\b{re.escape(name)}\b", f"{name}_x", file.read_text()))
    return folder
