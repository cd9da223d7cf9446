"""Interval sets against sets of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle import LENGTH, cells, columns, pairs_of, runs, spans

from cbprof.analysis.accounting.intervals import overlaps, sum_by, union, union_by, unions_by


@given(spans())
def test_union_is_the_maximal_runs(pairs: list[tuple[int, int]]) -> None:
    merged = union(*columns(pairs))
    assert pairs_of(merged) == runs(cells(pairs))
    assert merged.total_ns == len(cells(pairs))


@given(spans(), spans(), st.integers(0, LENGTH), st.integers(0, LENGTH))
def test_set_operations(left: list[tuple[int, int]], right: list[tuple[int, int]], a: int, b: int) -> None:
    one, other = union(*columns(left)), union(*columns(right))
    window = set(range(a, b))
    assert pairs_of(one.intersect(other)) == runs(cells(left) & cells(right))
    assert pairs_of(one.subtract(other)) == runs(cells(left) - cells(right))
    assert pairs_of(one.clip(a, b)) == runs(cells(left) & window)
    assert pairs_of(one.complement(a, b)) == runs(window - cells(left))


@given(spans(), spans())
def test_within_measures_spans_that_may_overlap(
    covering: list[tuple[int, int]], measured: list[tuple[int, int]]
) -> None:
    lengths = union(*columns(covering)).within(*columns(measured))
    assert lengths.tolist() == [len(cells(covering) & cells([pair])) for pair in measured]


@given(spans(), spans(), st.integers(0, 2 * LENGTH))
def test_within_measures_spans_before_zero(
    covering: list[tuple[int, int]], measured: list[tuple[int, int]], earlier: int
) -> None:
    """A trace whose origin lies in it has negative times. Nothing covers anything, too."""
    (start, end), (first, last) = columns(covering), columns(measured)
    lengths = union(start - earlier, end - earlier).within(first - earlier, last - earlier)
    assert lengths.tolist() == [len(cells(covering) & cells([pair])) for pair in measured]


@given(spans(), spans())
def test_overlaps_name_both_sides(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    left, right = runs(cells(left)), runs(cells(right))
    met = overlaps(*columns(left), *columns(right))
    expected = [
        (a, b, max(left[a][0], right[b][0]), min(left[a][1], right[b][1]))
        for a in range(len(left))
        for b in range(len(right))
        if max(left[a][0], right[b][0]) < min(left[a][1], right[b][1])
    ]
    assert list(zip(*(column.tolist() for column in met), strict=True)) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=10))
def test_grouped_sums(rows: list[tuple[int, int, int]]) -> None:
    group = np.array([row[0] for row in rows], dtype=np.int64)
    start, end = columns([(min(a, b), max(a, b)) for _, a, b in rows])
    per_group = [
        [(s, e) for g, s, e in zip(group.tolist(), start.tolist(), end.tolist(), strict=True) if g == wanted]
        for wanted in range(4)
    ]
    assert sum_by(group, end - start, 4).tolist() == [sum(e - s for s, e in pairs) for pairs in per_group]
    assert union_by(group, start, end, 4).tolist() == [len(cells(pairs)) for pairs in per_group]
    united = list(zip(*(column.tolist() for column in unions_by(group, start, end)), strict=True))
    assert united == [(wanted, s, e) for wanted, pairs in enumerate(per_group) for s, e in runs(cells(pairs))]


def test_sums_are_exact_beyond_float64() -> None:
    huge = np.array([2**60, 2**60 + 1], dtype=np.int64)
    assert sum_by(np.zeros(2, dtype=np.int64), huge, 1).tolist() == [2**61 + 1]
    assert union(huge, huge + 1).total_ns == 2


def test_operands_are_not_changed() -> None:
    start, end = columns([(5, 9), (1, 3)])
    start.setflags(write=False)
    end.setflags(write=False)
    assert pairs_of(union(start, end)) == [(1, 3), (5, 9)]
