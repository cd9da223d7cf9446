"""What a CUDA device gives back, with a stand-in for the parts of torch that need a GPU."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from cbprof.engine.devices import cuda  # noqa: E402
from cbprof.engine.devices.cuda import CudaDevice  # noqa: E402
from cbprof.engine.layout import SlotLayout  # noqa: E402
from cbprof.engine.model.spec import ModelSpec  # noqa: E402
from cbprof.errors import UsageError  # noqa: E402

LAYOUT = SlotLayout(max_tokens=4, max_requests=4, max_blocks=2, block_size=2)


class Held:
    """Something that takes memory, in a circle as the modules of a model are."""

    def __init__(self) -> None:
        self.itself = self


class StandInRunner:
    def __init__(self, spec: ModelSpec, layout: SlotLayout, **sizes: Any) -> None:
        self.facts = SimpleNamespace(name=spec.name)
        self.weights = Held()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of torch.cuda that matter, in order."""
    made: list[str] = []
    zeros = torch.zeros
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "set_device": None,
        "get_device_name": "a GPU",
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: made.append(name))
    monkeypatch.setattr(torch, "zeros", lambda *shape, dtype, pin_memory=False: zeros(*shape, dtype=dtype))
    monkeypatch.setattr(cuda, "Runner", StandInRunner)
    return made


def opened() -> CudaDevice:
    return CudaDevice(ModelSpec("tiny"), LAYOUT, num_blocks=4, slots=2, buckets=(4,))


def test_closing_releases_all_before_the_cache_is_emptied(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaDevice, "_capture", lambda self: {(0, 4): Held()})
    alive: list[bool] = []
    device = opened()
    held = [weakref.ref(device._runner.weights), weakref.ref(device._graphs[0, 4]), weakref.ref(device._pinned[0][0])]
    assert all(ref() is not None for ref in held)
    monkeypatch.setattr(
        torch.cuda,
        "empty_cache",
        lambda: alive.extend(ref() is not None for ref in held) or calls.append("empty_cache"),
    )
    gc.disable()
    try:
        device.close()
        device.close()
    finally:
        gc.enable()
    assert alive == [False] * 3
    assert calls == ["synchronize", "empty_cache"]
    assert device.facts.name == "tiny"


def test_a_kernel_that_cannot_be_had_is_one_line(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class CompilationError(Exception):
        __module__ = "triton.compiler.errors"

    def capture(device: CudaDevice) -> None:
        raise CompilationError("at 3:4:\n  no such type")

    monkeypatch.setattr(CudaDevice, "_capture", capture)
    with pytest.raises(
        UsageError, match=r"a GPU cannot run a kernel for tiny in float32 \(CompilationError: at 3:4: no"
    ):
        opened()
