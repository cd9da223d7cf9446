"""What the names of kernels and of CUDA or HIP calls say, whichever profiler wrote them down."""

from __future__ import annotations

import re

_COLLECTIVE = re.compile(
    r"nccl|rccl|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE
)
_SYNCHRONISING = re.compile(r"(cuda|cu|hip)[A-Za-z]*Synchronize")
_BLOCKING_COPY = re.compile(r"(cuda|cu|hip)Memcpy(?!\w*Async)")
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
