"""The list of slow tests names tests that are there."""

from __future__ import annotations

from pathlib import Path

from conftest import SLOW_FILES, SLOW_TESTS

TESTS = Path(__file__).parent


def test_every_name_is_one_of_a_test() -> None:
    assert [name for name in SLOW_FILES if not (TESTS / name).is_file()] == []
    for name in SLOW_TESTS:
        file, _, test = name.partition(".")
        assert f"def {test}(" in (TESTS / f"{file}.py").read_text(encoding="utf-8"), name
