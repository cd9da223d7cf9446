"""The modules with Triton kernels: compiled where there is a CUDA device, else run by Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class KernelModules(NamedTuple):
    attention: Any
    ops: Any
    sampling: Any


@cache
def kernel_modules() -> KernelModules:
    """Import them, once for all tests: a kernel belongs to the interpreter or the compiler from its import on."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if DEVICE.type == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
        # The same holds for Triton's own library, which others may have imported.
        for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
            if not name.startswith("triton._C"):
                del sys.modules[name]
        _accept_recent_numpy()
    from cbprof.engine.model import triton_sampling
    from cbprof.engine.model.attention import triton as triton_attention
    from cbprof.engine.model.fused import triton as fused_triton

    return KernelModules(triton_attention, fused_triton, triton_sampling)


def _accept_recent_numpy() -> None:
    """Triton 3.6's interpreter takes ``int()`` of an array of one element, which numpy 2.4 no longer allows."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor_and_index
