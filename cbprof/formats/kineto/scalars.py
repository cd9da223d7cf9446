"""The small things that the spans of a Chrome trace share: what they are, where they stand, and arrows between them."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NamedTuple

Scalar = int | str | None

_LAUNCHES = re.compile(r"launch|kernel|device", re.IGNORECASE)
BESIDE_IDS = frozenset({"ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu"})
"""The categories of the arrows that Kineto draws: its launches are joined by ids."""


class What(NamedTuple):
    """The kind of thing that a span is. ``mark``: what the program called a kernel of a graph, see :data:`MARKED`."""

    cat: str | None
    name: str
    mark: str | None = None

    @property
    def shown(self) -> str:
        """``layers.0.attention: gemm``; the name alone where there is no mark."""
        return f"{self.mark}: {self.name}" if self.mark else self.name


MARKED = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""The work that torch's ``mark_kernels`` names; ``torch.cuda._annotate_cuda_graph_trace`` makes it ``args.name``."""


class Where(NamedTuple):
    """The row that a span stands on, as written in the file."""

    pid: Scalar
    tid: Scalar
    device: Scalar
    stream: Scalar


class Arrow(NamedTuple):
    """One end of a flow event that leads from a launch; ``id`` tells which."""

    begins: bool
    id: Hashable
    pid: Scalar
    tid: Scalar
    time_ns: int


def is_of_launch(name: str, category: str | None) -> bool:
    """Whether an arrow of this name leads from a launch."""
    return _LAUNCHES.search(f"{name} {category or ''}") is not None
