"""One vocabulary: every term of the code's tables stands in the glossary, and text and data say it in one row."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from cbprof.analysis.accounting.blame import CAUSES, Cause
from cbprof.analysis.profiles.kernels import Group
from cbprof.analysis.verdict.verdict import Bound
from cbprof.meta import Evidence
from cbprof.render.theme import PHASES, STATES

GLOSSARY = (Path(__file__).parent.parent / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in GLOSSARY.splitlines() if line.startswith("| ")
]


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.PHASE])
def test_a_cause_has_one_row_with_its_words_and_its_short_form(cause: Cause) -> None:
    assert [CAUSES[cause], f"`{cause.label}`"] in [row[:2] for row in ROWS]


@pytest.mark.parametrize("state", STATES)
def test_a_state_has_one_row_with_its_words_and_its_key(state: str) -> None:
    assert [STATES[state].label, f"`{state}`"] in [row[:2] for row in ROWS]


@pytest.mark.parametrize("term", [*PHASES, *Bound, *get_args(Evidence), *Group])
def test_every_other_term_is_there(term: str) -> None:
    assert f"`{term}`" in GLOSSARY
