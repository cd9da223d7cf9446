"""What a batch would cost that was never run: as one that was and is most alike, and for the rest by how costs grow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cbprof.analysis.predict.durations import Measured
from cbprof.analysis.predict.replay import BatchCosts
from cbprof.trace import NONE, Int64

GROWING = ("before", "after", "h2d", "compute", "d2h")
"""Costs that grow with the work of a batch. What happens within ``before`` keeps its share of it."""

_NOTHING = BatchCosts(*(0,) * len(BatchCosts._fields))


class CostModel:
    """Costs by the facts of a batch: (requests, tokens, context), where context sums the length of its requests.

    The donor of a batch has as many requests and tokens, or nearly so, and of those the nearest context. The
    difference is added by the slopes of a least-squares fit over all batches, none of them negative.
    """

    def __init__(self, measured: Measured, facts: Int64) -> None:
        self._facts = facts.tolist()
        self._costs = list(measured.steps.rows())
        self._captures = measured.capture_ns.tolist()
        self._number = 0
        pool = _typical(measured)
        growing = np.array([[getattr(costs, name) for name in GROWING] for costs in self._costs], dtype=np.float64)
        self._slopes = _slopes(facts[pool].astype(np.float64), growing[pool])
        self._groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row in pool.tolist():
            requests, tokens, context = self._facts[row]
            self._groups.setdefault((requests, tokens), []).append((context, row))
        for group in self._groups.values():
            group.sort()
        self._keys = np.array(list(self._groups), dtype=np.int64)
        self._nearest: dict[tuple[int, int], tuple[int, int]] = {}

    def costs(self, facts: tuple[int, int, int]) -> tuple[BatchCosts, int]:
        """Of a batch of these facts; and the row of the batch that it is taken from."""
        row = self._donor(facts)
        costs = self._costs[row]
        more = np.subtract(facts, self._facts[row])
        if not more.any():
            return costs, row
        added = dict(zip(GROWING, np.rint(more @ self._slopes).astype(np.int64).tolist(), strict=True))
        grown = {name: max(getattr(costs, name) + ns, 0) for name, ns in added.items() if getattr(costs, name)}
        share = grown.get("before", 0) / costs.before if costs.before else 1.0
        queued = {name: round(getattr(costs, name) * share) for name in ("h2d_at", "compute_at", "d2h_at")}
        return costs._replace(**grown, **queued), row

    def _donor(self, facts: tuple[int, int, int]) -> int:
        key = facts[:2]
        if key not in self._nearest:
            apart = np.abs(np.log1p(self._keys) - np.log1p(key)).sum(axis=1)
            requests, tokens = self._keys[int(apart.argmin())].tolist()
            self._nearest[key] = requests, tokens
        group = self._groups[self._nearest[key]]
        at = bisect_left(group, (facts[2], 0))
        near = group[max(at - 1, 0) : at + 1]
        return min(near, key=lambda each: abs(each[0] - facts[2]))[1]


def _typical(measured: Measured) -> Int64:
    """The batches whose costs another batch may have: no captures, and the host went on to the next one at once."""
    batches = measured.batches
    plain = measured.capture_ns == 0
    typical = plain.copy()
    typical[:-1] &= (batches.came[1:] == NONE) & ~batches.alone[1:]
    typical[-1] &= measured.trace.mode not in ("async", "multi")
    for mask in (typical, plain):
        if mask.any():
            return np.flatnonzero(mask)
    return np.arange(len(batches))


def _slopes(facts: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How much each cost grows with each fact."""
    centred = facts - facts.mean(axis=0)
    scale = np.maximum(np.abs(centred).max(axis=0), 1.0)
    slopes, *_ = np.linalg.lstsq(centred / scale, costs - costs.mean(axis=0), rcond=1e-6)
    grows: npt.NDArray[np.float64] = np.maximum(slopes / scale[:, None], 0.0)
    return grows


def on_the_device_alone(costs: BatchCosts) -> BatchCosts:
    """A batch whose host and copies take no time."""
    return _NOTHING._replace(compute=costs.compute)


def facts_of(rows: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """(requests, tokens, context) of a batch, given (start, tokens) of each of its rows."""
    return len(rows), sum(tokens for _, tokens in rows), sum(start + tokens for start, tokens in rows)
