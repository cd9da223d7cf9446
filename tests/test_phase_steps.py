"""The times of a phase per step, against the plain way to find them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.accounting.phases import _per_step, nearest_rank
from cbprof.trace import NONE


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(NONE, 3), st.integers(0, 9)), min_size=1, max_size=20))
def test_spans_of_one_step_are_one_time(rows: list[tuple[int, int, int]]) -> None:
    """In any order of steps, and beside spans that carry none."""
    found = _per_step(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))
    expected: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row, (phase, step, total) in enumerate(rows):
        expected[phase, step, row if step == NONE else NONE].append(total)
    assert sorted(zip(*(column.tolist() for column in found), strict=True)) == sorted(
        (phase, sum(times), len(times)) for (phase, _, _), times in expected.items()
    )
    phase, time, _ = (column.tolist() for column in found)
    assert list(zip(phase, time, strict=True)) == sorted(zip(phase, time, strict=True))


@given(st.lists(st.integers(), min_size=1), st.integers(1, 100))
def test_nearest_rank(values: list[int], percent: int) -> None:
    ascending = sorted(values)
    reached = [value for place, value in enumerate(ascending, start=1) if place * 100 >= percent * len(ascending)]
    assert nearest_rank(np.array(ascending, dtype=object), percent) == reached[0]
