"""Intel XPUs as torch.profiler writes them: their calls launch, their waits wait, their copies have a direction."""

from __future__ import annotations

from pathlib import Path

from kineto_samples import write as write_kineto
from rocm_samples import launched, spans
from xpu_samples import XPU

from cbprof.formats import load


def test_calls_are_joined_with_what_they_launched(tmp_path: Path) -> None:
    trace = load(write_kineto(tmp_path, *XPU))
    assert launched(trace) == [
        ("urEnqueueUSMMemcpy", ["Memcpy M2D"]),
        ("zeCommandListAppendLaunchKernel", ["gemm_kernel"]),
    ]
    assert [(kind, name, lane, device) for kind, name, _, _, lane, device in spans(trace) if device == 0] == [
        ("gpu.h2d", "Memcpy M2D", "stream 2", 0),
        ("gpu.compute", "gemm_kernel", "stream 2", 0),
        ("gpu.d2h", "Memcpy D2M", "stream 2", 0),
    ]
    assert [name for kind, name, *_ in spans(trace) if kind == "cpu.wait"] == ["urEventWait"]
