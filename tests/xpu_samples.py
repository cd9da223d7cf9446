"""A small recording of an Intel XPU, made by hand, as torch.profiler writes it."""

from __future__ import annotations


def event(cat: str, name: str, start: int, dur: int, link: int, **where: int) -> dict[str, object]:
    args = {"correlation": link, **({"device": 0, "sycl queue": 2} if cat in ("kernel", "gpu_memcpy") else {})}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, "args": args, **where}


HOST, QUEUE = {"pid": 7, "tid": 7}, {"pid": 0, "tid": 2}
XPU = (
    event("xpu_runtime", "urEnqueueUSMMemcpy", 0, 5, 1, **HOST),
    event("gpu_memcpy", "Memcpy M2D", 10, 5, 1, **QUEUE),
    event("xpu_driver", "zeCommandListAppendLaunchKernel", 12, 5, 2, **HOST),
    event("kernel", "gemm_kernel", 20, 30, 2, **QUEUE),
    event("xpu_runtime", "urEventWait", 22, 40, 3, **HOST),
    event("gpu_memcpy", "Memcpy D2M", 52, 5, 4, **QUEUE),
)
