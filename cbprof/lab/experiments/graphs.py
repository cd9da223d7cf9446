"""Graphs: what one memory pool saves, and what a replay saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbprof.lab.arithmetic import MULTIPLIER, SHIFT
from cbprof.lab.finding import Figure, Finding, NamedTrace, Table, needs_cuda
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, host_spans
from cbprof.numbers import duration, percent, ratio
from cbprof.trace import Kind, Trace

if TYPE_CHECKING:
    import torch

LARGE, FEW_LAYERS = 1 << 24, 32
"""For memory: intermediate results of 64 MB."""

SMALL, MANY_LAYERS = 1 << 12, 300
"""For launches: 900 kernels that each take next to no time."""

COUNTS = (1, 2, 4)
REPEATS = 5


def graphs(lab: Lab) -> Finding:
    """A graph for each slot and shape: in one memory pool they cost little more than one, and a replay is one launch.

    The graphs run one after the other, so the intermediate results of one may lie where those of another lay. That
    holds only as long as they do take turns: two that share a pool and run at once overwrite each other.
    """
    if not lab.on_cuda:
        return needs_cuda("graphs", "there are no CUDA graphs to capture without one")
    own, shared = ({count: _memory_of(count, share=share) for count in COUNTS} for share in (False, True))
    eager, replay, equal = _record_launches(lab)
    launch_eager, launch_replay = (host_spans(trace, "launch").median_ns for trace in (eager, replay))
    run_eager, run_replay = (device_spans(trace, Kind.GPU_COMPUTE).median_ns for trace in (eager, replay))
    wrong_own, wrong_shared = (_wrong_when_at_once_pct(share=share) for share in (False, True))

    most = COUNTS[-1]
    figures: dict[str, Figure] = {
        "launch_eager_ns": launch_eager,
        "launch_replay_ns": launch_replay,
        "run_eager_ns": run_eager,
        "run_replay_ns": run_replay,
        "kernels": 3 * MANY_LAYERS,
        "wrong_at_once_own_pools_pct": wrong_own,
        "wrong_at_once_shared_pool_pct": wrong_shared,
    }
    figures |= {f"own_pools_{count}_bytes": own[count] for count in COUNTS}
    figures |= {f"shared_pool_{count}_bytes": shared[count] for count in COUNTS}
    return Finding(
        "graphs",
        f"{most} graphs take {_megabytes(own[most])} in pools of their own and {_megabytes(shared[most])} in a shared "
        f"one; {3 * MANY_LAYERS} kernels are launched one by one in {duration(launch_eager)}, as a graph in "
        f"{duration(launch_replay)} ({ratio(launch_eager / launch_replay)} as fast)",
        ok=equal and shared[most] < own[most] and launch_replay < launch_eager and wrong_own == 0,
        table=Table(
            ("", "own pools", "shared pool"),
            [
                *((f"memory for {count}", _megabytes(own[count]), _megabytes(shared[count])) for count in COUNTS),
                ("wrong values, two run at once", percent(wrong_own), percent(wrong_shared)),
                ("", "eager", "replay"),
                ("host launches in", duration(launch_eager), duration(launch_replay)),
                ("device runs for", duration(run_eager), duration(run_replay)),
            ],
        ),
        figures=figures,
        traces=(NamedTrace("eager", eager), NamedTrace("replay", replay)),
    )


def layers(x: torch.Tensor, count: int) -> torch.Tensor:
    """Some layers: three kernels each, and a new tensor for each result, as in a model."""
    for _ in range(count):
        x = x * MULTIPLIER
        x = x ^ (x >> SHIFT)
    return x


def _capture(x: torch.Tensor, result: torch.Tensor, count: int, pool: Any) -> torch.cuda.CUDAGraph:
    """Capture ``layers``; what must outlive the replay is copied to ``result``, which lies outside of the pool."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result.copy_(layers(x, count))
    return graph


def _memory_of(count: int, *, share: bool) -> int:
    """Bytes that the allocator takes from the device for ``count`` graphs."""
    import torch

    x, result = (torch.ones(LARGE, dtype=torch.int32, device="cuda") for _ in range(2))
    layers(x[:SMALL], 1)  # loads the kernels, which a capture must not
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.graph_pool_handle() if share else None
    captured = [_capture(x, result, FEW_LAYERS, pool) for _ in range(count)]
    taken = torch.cuda.memory_reserved() - before
    del captured
    torch.cuda.empty_cache()
    return taken


def _record_launches(lab: Lab) -> tuple[Trace, Trace, bool]:
    """The same kernels launched one by one, and as a graph; and whether both gave the same."""
    import torch

    x = torch.arange(SMALL, dtype=torch.int32, device="cuda")
    result = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    graph = _capture(x, result, MANY_LAYERS, None)
    traces, results = [], []
    for replayed in (False, True):
        recording = lab.recording_of_any_stream(mode="replay" if replayed else "eager")
        with recording as tracer, torch.cuda.stream(stream):
            for step in range(REPEATS):
                with tracer.gpu("compute", stream, launch="launch", step=step):
                    if replayed:
                        graph.replay()
                    else:
                        result.copy_(layers(x, MANY_LAYERS))
                with tracer.wait("wait", step=step):
                    stream.synchronize()
        traces.append(recording.trace)
        results.append(result.clone())
        result.zero_()
        torch.cuda.synchronize()
    return traces[0], traces[1], torch.equal(*results)


def _wrong_when_at_once_pct(*, share: bool) -> float:
    """Two graphs on two streams at once: the share of wrong values, in per cent."""
    import torch

    pool = torch.cuda.graph_pool_handle() if share else None
    inputs = [torch.full((LARGE,), number, dtype=torch.int32, device="cuda") for number in (1, 2)]
    results = [torch.zeros_like(x) for x in inputs]
    pair = [_capture(x, result, FEW_LAYERS, pool) for x, result in zip(inputs, results, strict=True)]
    torch.cuda.synchronize()
    for graph in pair:
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.replay()
    torch.cuda.synchronize()
    right = [layers(x, FEW_LAYERS) for x in inputs]
    wrong = [(result != answer).double().mean().item() for result, answer in zip(results, right, strict=True)]
    return 100 * sum(wrong) / len(wrong)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
