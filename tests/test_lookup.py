"""Look-ups by a table and by search against dictionaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.accounting.intervals import count_until
from cbprof.analysis.accounting.lookup import first_of_each, last_match, rows_of
from cbprof.trace import NONE

CLOSE = st.lists(st.integers(-1, 30), max_size=40)
FAR = st.lists(st.integers(-1, 1 << 61), max_size=10)
STEPS = st.lists(st.integers(-1, 30), max_size=40) | st.lists(st.integers(-1, (1 << 31) - 1), max_size=10)


@given(STEPS)
def test_the_first_row_of_each_number(numbers: list[int]) -> None:
    found, first = first_of_each(np.array(numbers, dtype=np.int32))
    assert found.tolist() == sorted(set(numbers))
    assert first.tolist() == [numbers.index(number) for number in found.tolist()]


@given(STEPS, STEPS)
def test_rows_in_a_table_of_ascending_numbers(numbers: list[int], wanted: list[int]) -> None:
    table = sorted(set(numbers))
    found = rows_of(np.array(table, dtype=np.int32), np.array(wanted, dtype=np.int32))
    assert found.tolist() == [table.index(number) if number in table else NONE for number in wanted]


@given(CLOSE | FAR, CLOSE | FAR)
def test_the_last_of_equal_keys_is_the_match(keys: list[int], wanted: list[int]) -> None:
    rows = {key: 7 * place for place, key in enumerate(keys)}
    columns = (np.array(each, dtype=np.int64) for each in (keys, range(0, 7 * len(keys), 7), wanted))
    assert last_match(*columns).tolist() == [rows.get(key, NONE) for key in wanted]


@given(CLOSE, CLOSE)
def test_values_are_counted_until_instants_in_any_order(values: list[int], instants: list[int]) -> None:
    ascending = sorted(values)
    found = count_until(np.array(ascending, dtype=np.int64), np.array(instants, dtype=np.int64))
    assert found.tolist() == [sum(value <= instant for value in values) for instant in instants]
