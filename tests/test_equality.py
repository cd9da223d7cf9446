"""What two runs must have in common: a table of dtypes and workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trace_samples import small_trace

from cbprof.cli.run import _conclude
from cbprof.engine.engine import Outcome
from cbprof.engine.equality import Compared, Equality, differs, weakest, what_must_be_equal
from cbprof.engine.scheduler import Counters
from cbprof.engine.workload import Workload
from cbprof.formats import save
from cbprof.record.session import RecordedRun

PLAIN = Workload()
ARRIVALS, STOPS = replace(PLAIN, rate=20.0), replace(PLAIN, stop_tokens=(7,))


@pytest.mark.parametrize(
    ("workload", "preempted", "in_16_bits", "why"),
    [
        (PLAIN, False, "tokens", ""),
        (ARRIVALS, False, "lengths", "arrivals made batches differ, and bfloat16 is rounded by batch"),
        (PLAIN, True, "lengths", "preemption made batches differ, and bfloat16 is rounded by batch"),
        (STOPS, False, "nothing", "stop tokens made batches differ, and bfloat16 is rounded by batch"),
        (
            replace(ARRIVALS, stop_tokens=(7,)),
            True,
            "nothing",
            "arrivals and stop tokens and preemption made batches differ, and bfloat16 is rounded by batch",
        ),
    ],
)
def test_what_must_be_equal(workload: Workload, preempted: bool, in_16_bits: Compared, why: str) -> None:
    assert what_must_be_equal("bfloat16", workload, preempted=preempted) == Equality(in_16_bits, why)
    assert what_must_be_equal("float16", workload, preempted=preempted).compared == in_16_bits
    for dtype in ("float32", "float64"):
        assert what_must_be_equal(dtype, workload, preempted=preempted) == Equality("tokens")


def test_the_weakest_decides_and_only_what_must_be_equal_is_compared() -> None:
    equalities = [Equality("tokens"), Equality("lengths", "a"), Equality("nothing", "b")]
    assert weakest(equalities) == equalities[2]
    assert weakest(equalities[:2]) == equalities[1]
    same, other, shorter = {0: [1, 2]}, {0: [1, 3]}, {0: [1]}
    found = [[differs(each, [same, then]) for then in (same, other, shorter)] for each in equalities]
    assert found == [[False, True, True], [False, False, True], [False, False, False]]
    assert not differs(equalities[0], [same])
    assert not differs(equalities[0], [])


@pytest.mark.parametrize(
    ("compared", "second", "line", "code"),
    [
        ("tokens", [1, 2], "tokens: identical (at least 2 distinct in each request)", 0),
        ("lengths", [1, 3], "tokens: as many of each request; no more is compared, since batches differ", 0),
        ("lengths", [1], "tokens: the number of them DIFFERS; no more is compared, since batches differ", 1),
        ("nothing", [1], "tokens: not compared, since batches differ", 0),
    ],
)
def test_the_command_says_what_it_compared(
    compared: Compared, second: list[int], line: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for mode, tokens in (("sync", [1, 2]), ("async", second)):
        path = tmp_path / f"{mode}.json"
        save(small_trace(), path)
        equality = Equality(compared, "" if compared == "tokens" else "batches differ")
        runs.append(RecordedRun(path, Outcome({0: tokens}, Counters(), wall_ns=1), equality))
    assert _conclude(runs, 2) == code
    assert line in capsys.readouterr().out.splitlines()
