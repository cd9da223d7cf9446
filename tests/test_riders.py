"""Who rides in a step, packed and unpacked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.formats import load
from cbprof.riders import NO_RIDERS, PrefillRow, Riders, by_step, pack, rider_table, unpack


@given(st.lists(st.integers(0, 50) | st.integers(0, 10**17), max_size=40))
def test_any_numbers_are_packed_and_unpacked(requests: list[int]) -> None:
    assert list(unpack(pack(requests))) == requests


def test_runs_of_numbers_are_short() -> None:
    assert pack([*range(32), 40, 7, 8]) == "0-31,40,7-8"


@pytest.mark.parametrize("text", ["0-", "-1", "a", "1,,2", "5-4", "0-99999999999", "0-40000,0-40000", "1" * 30, " 1"])
def test_what_is_not_such_a_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="requests"):
        unpack(text)


def test_a_decode_row_begins_where_its_request_had_got_to() -> None:
    table = rider_table(
        {
            0: Riders((), (PrefillRow(7, 0, 4, False),)),
            1: Riders((), (PrefillRow(7, 4, 2, True),)),
            2: Riders((7, 9), ()),
            3: Riders((7,), ()),
            4: Riders((), (PrefillRow(7, 0, 8, True),)),
            5: Riders((7,), ()),
        }
    )
    mine = table.request == 7
    assert table.start[mine].tolist() == [0, 4, 6, 7, 0, 8]
    assert table.start[~mine].tolist() == [-1], "its prompt was computed before the recording"
    assert table.samples[mine].tolist() == [0, 1, 1, 1, 1, 1]
    assert by_step(table)[2] == Riders((7, 9), ())


@pytest.mark.parametrize(
    "told",
    [
        {"decodes": "0-1", "prefills": []},
        {"decodes": 3},
        {"decodes": "0", "prefills": [[1, 0, 4]]},
        {"decodes": "0", "prefills": "12"},
        {"decodes": "0", "prefills": [[1, 0, 4, None]]},
        {"decodes": "0-9999999", "prefills": []},
    ],
)
def test_requests_that_cannot_be_are_left_where_they_stand(tmp_path: Path, told: dict[str, object]) -> None:
    """The step says that three requests ride in it."""
    args = {"step": 0, "tokens": 3, "requests": 3, "context": 9, "phase": "decode", **told}
    span = {"ph": "X", "name": "schedule", "cat": "cpu.work", "pid": 0, "tid": 1, "ts": 0, "dur": 5, "args": args}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"cbprof": {"schema": 1}, "traceEvents": [span]}))
    trace = load(path)
    assert len(trace.steps) == 1
    assert by_step(trace.riders) == by_step(NO_RIDERS) == {}
    assert trace.extra[0] == told
