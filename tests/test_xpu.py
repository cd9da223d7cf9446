"""Intel XPUs as torch.profiler writes them: their calls launch, their waits wait, their copies have a direction."""

from __future__ import annotations

from pathlib import Path

from kineto_samples import write as write_kineto
from rocm_samples import launched, spans

from cbprof.formats import load


def event(cat: str, name: str, start: int, dur: int, link: int, **where: int) -> dict[str, object]:
    args = {"correlation": link, **({"device": 0, "sycl queue": 2} if cat in ("kernel", "gpu_memcpy") else {})}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, "args": args, **where}


def test_calls_are_joined_with_what_they_launched(tmp_path: Path) -> None:
    host, queue = {"pid": 7, "tid": 7}, {"pid": 0, "tid": 2}
    trace = load(
        write_kineto(
            tmp_path,
            event("xpu_runtime", "urEnqueueUSMMemcpy", 0, 5, 1, **host),
            event("gpu_memcpy", "Memcpy M2D", 10, 5, 1, **queue),
            event("xpu_driver", "zeCommandListAppendLaunchKernel", 12, 5, 2, **host),
            event("kernel", "gemm_kernel", 20, 30, 2, **queue),
            event("xpu_runtime", "urEventWait", 22, 40, 3, **host),
            event("gpu_memcpy", "Memcpy D2M", 52, 5, 4, **queue),
        )
    )
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
