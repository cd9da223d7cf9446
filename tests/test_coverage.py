"""The one geometry of all pictures: state shares per bin, against a boolean timeline of single nanoseconds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.accounting.intervals import Intervals, union
from cbprof.analysis.accounting.states import States
from cbprof.analysis.accounting.window import Window
from cbprof.render.picture.coverage import bin_edges, coverage

spans = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 30)), max_size=12)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    """The union of (start, duration) pairs."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return union(table[:, 0], table[:, 0] + table[:, 1])


def mask(covered: Intervals, length: int) -> np.ndarray:
    """One boolean a nanosecond."""
    timeline = np.zeros(length, dtype=bool)
    for start, end in zip(covered.start, covered.end, strict=True):
        timeline[start:end] = True
    return timeline


@given(
    gpu=spans,
    cpu=spans,
    told=spans,
    bounds=st.lists(st.integers(0, 150), min_size=2, max_size=2),
    bins=st.integers(1, 200),
)
def test_every_bin_is_exact(
    gpu: list[tuple[int, int]], cpu: list[tuple[int, int]], told: list[tuple[int, int]], bounds: list[int], bins: int
) -> None:
    start, end = sorted(bounds)
    untraced = intervals(told).clip(0, 150)
    states = States(
        Window(0, 150), 0, intervals(gpu).clip(0, 150), intervals(cpu).clip(0, 150).subtract(untraced), untraced
    )
    found = coverage(states, start, end, bins)
    on_gpu, on_cpu, unknown = (mask(each, 150) for each in (states.gpu, states.cpu, untraced))
    idle = ~on_cpu & ~unknown
    expected = np.stack(
        (on_gpu & on_cpu, on_gpu & idle, on_gpu & unknown, ~on_gpu & unknown, ~on_gpu & on_cpu, ~on_gpu & idle)
    )
    per_bin = [expected[:, a:b].sum(axis=1) for a, b in zip(found.edges[:-1], found.edges[1:], strict=True)]
    np.testing.assert_array_equal(found.stacked, np.array(per_bin).T)
    np.testing.assert_array_equal(found.stacked.sum(axis=0), found.width_ns)
    np.testing.assert_allclose(found.shares.sum(axis=0), found.width_ns > 0)
    np.testing.assert_allclose(found.idle_shares, found.shares[3:].sum(axis=0))


@given(start=st.integers(-(10**15), 10**15), length=st.integers(0, 10**15), bins=st.integers(1, 3000))
def test_bins_partition_the_range_with_widths_that_differ_by_one(start: int, length: int, bins: int) -> None:
    edges = bin_edges(start, start + length, bins)
    assert (edges[0], edges[-1], len(edges)) == (start, start + length, bins + 1)
    widths = np.diff(edges)
    assert widths.max() - widths.min() <= 1
    assert edges[bins // 2] == start + length * (bins // 2) // bins


def test_coverage_before_the_first_and_after_the_last_interval() -> None:
    covered = intervals([(10, 5), (20, 10)]).before(np.array([0, 10, 12, 15, 20, 25, 30, 99]))
    assert covered.tolist() == [0, 0, 2, 5, 5, 10, 15, 15]
    assert intervals([]).before(np.array([1, 2])).tolist() == [0, 0]


def test_a_range_outside_the_window_is_refused() -> None:
    states = States(Window(100, 200), 0, intervals([]), intervals([]))
    with pytest.raises(ValueError, match="does not lie in the window"):
        coverage(states, 99, 150, 4)
    with pytest.raises(ValueError, match="at least one bin"):
        coverage(states, 100, 150, 0)
    assert coverage(states, 100, 100, 3).stacked.sum() == 0
