"""CUDA graphs: replays that a profiler recorded as a whole, without the kernels in them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cbprof.trace import GRAPH_REPLAY, Kind, Trace


def graph_replays(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the spans that are whole replays. They keep a device busy, and are no kernels."""
    ids = [index for index, name in enumerate(trace.names) if name.startswith(GRAPH_REPLAY)]
    mask: npt.NDArray[np.bool_] = np.isin(trace.name_id, ids) & (trace.kind == Kind.GPU_COMPUTE)
    return mask
