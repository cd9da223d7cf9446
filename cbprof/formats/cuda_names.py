"""What the names of kernels and of calls to a runtime say, whichever profiler wrote them down."""

from __future__ import annotations

import re

# Libraries that move data between devices, by the words in the names of their kernels.
_COLLECTIVE = re.compile(
    r"nccl|rccl|hccl|hcom_|oneccl|mscclpp"  # of NVIDIA, AMD, Huawei, Intel, Microsoft
    r"|cross_device_reduce|multimem_all|one_shot_all|two_shot_all"  # custom and symmetric-memory all-reduce
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|deep_ep::|nvshmem|pplx::|\bEp(Dispatch|Combine)",  # experts' tokens: DeepEP, NVSHMEM, PPLX, MORI
    re.IGNORECASE,
)
_SYNCHRONISING = re.compile(
    r"(cuda|cu|hip|musa|mu|mc|ze)[A-Za-z]*Synchronize"  # NVIDIA, AMD, Moore Threads, MetaX, Intel's Level Zero
    r"|hsa_(amd_)?signal_wait"  # AMD, below HIP
    r"|aclrtSynchronize"  # Ascend
    r"|cn(rt)?[A-Z][A-Za-z]*Sync"  # Cambricon
    r"|(ur|pi)(Events?Wait|QueueFinish)\b"  # SYCL: Unified Runtime, and what came before it
)
_BLOCKING_COPY = re.compile(r"(cuda|cu|hip|aclrt)Memcpy(?!\w*Async)")
_API_VERSION = re.compile(r"_v\d{4,}$")


def is_collective(kernel: str) -> bool:
    """Whether a kernel moves data between devices rather than computing."""
    return _COLLECTIVE.search(kernel) is not None


def is_wait(call: str) -> bool:
    """Whether a call of the runtime or the driver blocks until the device is done (``cudaStreamSynchronize``)."""
    return _SYNCHRONISING.match(call) is not None or _BLOCKING_COPY.match(call) is not None


def without_version(call: str) -> str:
    """``cudaLaunchKernel_v7000`` as ``cudaLaunchKernel``: a call has one name, whichever profiler recorded it."""
    return _API_VERSION.sub("", call)
