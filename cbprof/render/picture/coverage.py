"""How much of each bin of time every state takes: the one geometry behind all pictures of a run.

A picture that draws spans as bars lies once they are thinner than a pixel: 80,000 bars show a GPU row all red that is
75 % busy, and resampling an image of them gives moire. Exact coverage per bin, drawn as stacked shares, does not: the
area of a colour *is* the share of its state, at every width and every zoom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cbprof.analysis.accounting.states import GPU_ACTIVE, States, StateTotals
from cbprof.trace import Int64


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """Nanoseconds of each state in each bin; they add up to the width of the bin.

    ``edges`` has one element more than there are bins: bin ``i`` is [edges[i], edges[i + 1]). ``stacked``: of shape
    (states, bins), the states from the bottom of a picture to its top, in the order of ``theme.STATES``.
    """

    edges: Int64
    stacked: Int64

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def width_ns(self) -> Int64:
        """The width of each bin."""
        return np.diff(self.edges)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """:attr:`stacked` as fractions of each bin. Bins without a width have no share of anything."""
        width = self.width_ns
        return np.divide(self.stacked, width, out=np.zeros(self.stacked.shape), where=width > 0)

    @property
    def idle_shares(self) -> npt.NDArray[np.float64]:
        """The fraction of each bin in which the GPU was idle."""
        idle = [state not in GPU_ACTIVE for state in StateTotals._fields]
        found: npt.NDArray[np.float64] = self.shares[idle].sum(axis=0)
        return found


def coverage(states: States, start_ns: int, end_ns: int, bins: int) -> Coverage:
    """The states of [start_ns, end_ns) in ``bins`` bins, whose widths differ by at most 1 ns.

    Raises ``ValueError`` where the range leaves the window of ``states`` (nothing is known outside it).
    """
    window = states.window
    if not window.start_ns <= start_ns <= end_ns <= window.end_ns:
        raise ValueError(
            f"[{start_ns}, {end_ns}) does not lie in the window [{window.start_ns}, {window.end_ns}) of the states"
        )
    edges = bin_edges(start_ns, end_ns, bins)
    return Coverage(edges, np.stack([np.diff(each.before(edges)) for each in states.parts]))


def bin_edges(start_ns: int, end_ns: int, bins: int) -> Int64:
    """The ``bins + 1`` edges of a partition of [start_ns, end_ns) into bins whose widths differ by at most 1 ns."""
    if bins < 1:
        raise ValueError(f"a picture needs at least one bin, not {bins}")
    # length * i // bins, in two parts that stay far from overflow for any run and any width
    whole, rest = divmod(end_ns - start_ns, bins)
    index = np.arange(bins + 1, dtype=np.int64)
    return start_ns + index * whole + index * rest // bins
