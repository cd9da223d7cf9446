"""The lab on a real GPU. Skipped where there is none; run ``pytest -m gpu`` on a machine that has one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cbprof.lab.arithmetic import churn
from cbprof.lab.catalog import EXPERIMENTS
from cbprof.lab.lab import Lab

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("cuda", model="llama-1b") as lab:
        yield lab


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_comes_out_as_it_must(lab: Lab, name: str) -> None:
    finding = EXPERIMENTS[name](lab)
    assert finding.ok, (finding.proves, finding.figures)
    assert not finding.skipped
    assert all(trace.evidence == "cuda_events" for _, trace in finding.traces)


@pytest.mark.parametrize("name", ["no-events", "events", "one-slot"])
def test_ten_runs_out_of_ten(lab: Lab, name: str) -> None:
    findings = [EXPERIMENTS[name](lab) for _ in range(10)]
    assert all(finding.ok for finding in findings), [finding.proves for finding in findings if not finding.ok]


def test_the_answers_are_those_of_the_arithmetic(lab: Lab) -> None:
    from cbprof.lab.cuda import ROUNDS

    (batch,) = lab.batches(1)
    state = np.zeros(len(batch.answer), np.int32)
    churn(state, batch.inputs, ROUNDS)
    assert np.array_equal(state, batch.answer)
