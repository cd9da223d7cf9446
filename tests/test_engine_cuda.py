"""The engine on a real GPU. Skipped where there is none; run ``pytest -m gpu`` on a machine that has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Engine
from cbprof.engine.workload import Workload
from cbprof.formats import load
from cbprof.record.session import record
from cbprof.trace import Kind, Trace

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FIXED = Workload(requests=8, prompt_len=(24, 24), new_tokens=(64, 64))
RAGGED = Workload(requests=24, prompt_len=(1, 60), new_tokens=(1, 60), stop_tokens=tuple(range(40)))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config = EngineConfig(
        model="tiny", dtype="float32", device="cuda", max_batch=8, max_batch_tokens=64, max_context=120, num_blocks=40
    )
    with Engine(config) as engine:
        yield engine


@pytest.mark.parametrize("workload", [FIXED, RAGGED], ids=["fixed", "ragged"])
def test_sync_and_async_give_the_same_tokens(engine: Engine, workload: Workload) -> None:
    served = {}
    modes: tuple[Mode, ...] = ("sync", "async")
    for mode in modes:
        served[mode] = engine.serve(workload.make_requests(engine.vocab_size), mode)
    assert served["sync"].tokens == served["async"].tokens
    assert served["async"].counters.finished == workload.requests
    assert all(len(set(tokens)) > len(tokens) // 2 for tokens in served["async"].tokens.values())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_recorded_spans_keep_the_order_of_the_device(engine: Engine, mode: Mode, tmp_path: Path) -> None:
    trace = load(record(engine, FIXED, mode, tmp_path / "trace.json").path)
    assert trace.complete
    steps = len(trace.steps)
    error = trace.meta.clock_error_ns
    assert 0 < error < 100_000
    for kind in (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H):
        assert int(trace.mask(kinds=[kind]).sum()) == steps
    compute = by_step(trace, Kind.GPU_COMPUTE)
    h2d, d2h = by_step(trace, Kind.GPU_H2D), by_step(trace, Kind.GPU_D2H)
    slack = trace.meta.device_error_ns
    assert np.all(h2d[:, 1] <= compute[:, 0] + slack), "compute reads its inputs after the copy in"
    assert np.all(compute[:, 1] <= d2h[:, 0] + slack), "the copy out reads the output after compute"
    assert np.all(compute[:-1, 1] <= compute[1:, 0] + slack), "steps run one after the other"
    launches = {
        int(trace.link[i]): int(trace.start_ns[i]) for i in np.flatnonzero(~trace.on_device) if trace.link[i] >= 0
    }
    for i in np.flatnonzero(trace.on_device):
        assert launches[int(trace.link[i])] <= trace.start_ns[i] + error


def test_closing_gives_the_memory_back() -> None:
    config = EngineConfig(model="tiny", dtype="float32", device="cuda", max_batch=4, max_context=2048, num_blocks=4096)
    during, after = [], []
    for _ in range(2):
        with Engine(config) as engine:
            engine.serve(Workload(requests=4, new_tokens=(4, 4)).make_requests(engine.vocab_size), "async")
            during.append(torch.cuda.memory_reserved())
        after.append(torch.cuda.memory_reserved())
    assert after[1] <= after[0] < min(during)


def by_step(trace: Trace, kind: Kind) -> np.ndarray:
    """``[steps, 2]``: start and end of the one span of this kind in each step."""
    chosen = np.flatnonzero(trace.mask(kinds=[kind]))
    chosen = chosen[np.argsort(trace.step[chosen])]
    return np.stack([trace.start_ns[chosen], trace.end_ns[chosen]], axis=1)
