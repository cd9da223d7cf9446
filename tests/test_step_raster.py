"""The raster of steps against a boolean timeline of single nanoseconds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timeline_samples import MS, steady_trace

from cbprof.render.picture.scene import scene
from cbprof.render.picture.step_raster import step_raster, usual_length
from cbprof.trace import Kind, Lane, TraceBuilder

lengths = st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(0, 20))


@given(
    steps=st.lists(lengths, min_size=1, max_size=8), columns=st.integers(1, 10), bins=st.integers(1, 20),
    length=st.integers(1, 70),
)  # fmt: skip
def test_every_cell_is_exact(steps: list[tuple[int, int, int]], columns: int, bins: int, length: int) -> None:
    builder, now, starts = TraceBuilder(), 0, []
    host, gpu = builder.lane(Lane("engine")), builder.lane(Lane("compute", 0))
    on_cpu, on_gpu = np.zeros(1000, dtype=bool), np.zeros(1000, dtype=bool)
    for step, (launch, compute, update) in enumerate(steps):
        builder.span(host, Kind.CPU_WORK, "launch", now, launch, step=step)
        builder.span(gpu, Kind.GPU_COMPUTE, "compute", now + launch, compute, step=step)
        builder.span(host, Kind.CPU_WORK, "update", now + launch + compute // 2, update, step=step)
        on_cpu[now : now + launch] = on_cpu[now + launch + compute // 2 :][:update] = True
        on_gpu[now + launch :][:compute] = True
        starts.append(now + launch)
        now += launch + max(compute, compute // 2 + update)
    seen = scene(builder.build())
    raster = step_raster(seen.trace, seen.devices[0], columns, bins, length)

    origin, end = seen.window.start_ns, seen.window.end_ns
    never = np.zeros_like(on_gpu)  # an engine's own spans leave nothing unrecorded
    states = np.stack((on_gpu & on_cpu, on_gpu & ~on_cpu, never, never, on_cpu & ~on_gpu, ~on_gpu & ~on_cpu))
    groups = np.array_split(np.arange(len(steps)), min(columns, len(steps)))
    assert raster.step[-1] == len(steps)
    offsets = [length * i // bins for i in range(bins + 1)]
    assert origin == 0
    for column in range(raster.shares.shape[1]):
        mine = range(raster.step[column], raster.step[column + 1])
        assert abs(len(mine) - len(groups[column])) <= 1
        for index, (a, b) in enumerate(pairwise(offsets)):
            expected = np.zeros(len(states))
            for step in mine:
                stop = [*starts, end][step + 1]
                expected += states[:, min(starts[step] + a, stop) : min(starts[step] + b, stop)].sum(axis=1)
            whole = max(1, len(mine) * (b - a))
            np.testing.assert_allclose(raster.shares[:, column, index], expected / whole)


def test_a_steady_run_gives_flat_bands_and_its_context() -> None:
    seen = scene(steady_trace(100))
    raster = step_raster(
        seen.trace, seen.devices[0], columns=10, bins=100, length_ns=usual_length(seen.trace, seen.devices[0])
    )
    assert raster.step.tolist() == list(range(0, 101, 10))
    assert raster.context.tolist()[:2] == [4, 14]  # 128 and 448 tokens of 32 requests
    assert raster.longest_ns == 10 * MS
    active = raster.shares[:2].sum(axis=(0, 2)) * raster.length_ns / 100
    np.testing.assert_allclose(active, 6.9 * MS)


@pytest.mark.parametrize("kinds", [[], [Kind.CPU_WORK], [Kind.GPU_H2D]])
def test_a_trace_without_steps_gives_no_columns(kinds: list[Kind]) -> None:
    builder = TraceBuilder()
    for kind in kinds:
        builder.span(builder.lane(Lane("lane", 0 if kind.on_device else -1)), kind, "x", 0, 5)
    seen = scene(builder.build())
    for states in seen.devices:
        assert usual_length(seen.trace, states) == 0
        assert step_raster(seen.trace, states, 10, 10, 100).shares.shape == (6, 0, 10)


def test_the_real_runs_drift_with_context() -> None:
    from cbprof.formats import load

    path = Path(__file__).parent / "data" / "h200_transformers" / "sync_8b_bs32_8k.json.gz"
    seen = scene(load(path))
    raster = step_raster(
        seen.trace, seen.devices[0], columns=8, bins=200, length_ns=usual_length(seen.trace, seen.devices[0])
    )
    active = raster.shares[:2].sum(axis=(0, 2))
    assert (np.diff(active) > 0).all()
