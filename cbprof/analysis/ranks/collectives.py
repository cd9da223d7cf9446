"""The collectives of a rank, thinned out: enough of them to see who is late and how the clocks run apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbprof.trace import Int32, Int64, Kind, Trace

MOST_KEPT = 128
MOST_NAMES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Collectives:
    """One row a collective that was kept. Times in nanoseconds on the file's axis.

    ``names[name_id]``: its name; ``occurrence``: how many of that name the device ran before it. ``counts``: how many
    of each name there were in all. Every 2^n-th of a name is kept, so that of two ranks the same ones are.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    name_id: Int32
    occurrence: Int32
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.name_id)


def collectives_of(trace: Trace, device: int) -> Collectives:
    """Those of one device: at most about :data:`MOST_KEPT`, of its :data:`MOST_NAMES` most frequent names."""
    rows = np.flatnonzero(trace.mask(kinds=(Kind.GPU_COMM,), device=device))
    ids, count = np.unique(trace.name_id[rows], return_counts=True)
    order = np.argsort(-count, kind="stable")[:MOST_NAMES]
    room = max(1, MOST_KEPT // max(1, len(order)))
    kept: list[Int64] = []
    occurrence: list[Int32] = []
    for each in ids[order].tolist():
        mine = rows[trace.name_id[rows] == each]
        every = 1 << max(0, (len(mine) - 1) // room).bit_length()
        kept.append(mine[::every])
        occurrence.append(np.arange(0, len(mine), every, dtype=np.int32))
    chosen = np.concatenate([np.zeros(0, dtype=np.int64), *kept])
    return Collectives(
        names=tuple(trace.names[each] for each in ids[order].tolist()),
        counts=tuple(count[order].tolist()),
        name_id=np.repeat(np.arange(len(order)), [len(each) for each in kept]).astype(np.int32),
        occurrence=np.concatenate([np.zeros(0, dtype=np.int32), *occurrence]),
        start_ns=trace.start_ns[chosen],
        end_ns=trace.end_of(chosen),
    )
