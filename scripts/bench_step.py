"""One decode step, replayed from its CUDA graph, at several contexts: the lean form of a model, or its own modules.

    python scripts/bench_step.py                               # llama-8b, 32 rows
    python scripts/bench_step.py --profile --plain --compile   # and which kernels it spends its time in; other forms

Every row decodes one token at the same context, over random keys and values in shuffled blocks. The floor is the time
to read the weights and the KV cache once at the speed of a device-to-device copy, measured in the same process.
Needs a CUDA device.
"""

from __future__ import annotations

import gc
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, cast

import typer
from bench_engine import copy_bandwidth
from rich.console import Console
from rich.table import Table

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.spec import ModelSpec

if TYPE_CHECKING:
    from torch.cuda import CUDAGraph

    from cbprof.engine.model.runner import Runner

REPLAYS = 40
PROFILED = 5


def bench(
    model: Annotated[str, typer.Option(help="A preset.")] = "llama-8b",
    rows: Annotated[int, typer.Option(help="Requests in the batch.")] = 32,
    context: Annotated[list[int] | None, typer.Option(help="Tokens a row; can be repeated.")] = None,
    plain: Annotated[bool, typer.Option(help="Also with the model's own modules.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Also with those through torch.compile.")] = False,
    profile: Annotated[bool, typer.Option(help="Kernels by time, at the first and the last context.")] = False,
) -> None:
    """Print milliseconds a step, and how far that is from the floor."""
    import torch

    contexts = context or [128, 2048, 4096, 8192]
    layout = SlotLayout(max_tokens=rows, max_requests=rows, max_blocks=-(-max(contexts) // 16), block_size=16)
    console = Console(width=120)
    bandwidth = copy_bandwidth()
    gc.collect()
    torch.cuda.empty_cache()
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e12:.3f} TB/s")
    specs = {"lean": ModelSpec(model, "bfloat16")}
    specs |= {"plain": ModelSpec(model, "bfloat16", fuse=False)} if plain else {}
    specs |= {"compiled": ModelSpec(model, "bfloat16", compiled=True)} if compiled else {}
    for form, spec in specs.items():
        title = f"{model}, {rows} rows, {form}"
        console.print(measure(spec, layout, contexts, bandwidth, console if profile else None, title=title))
        gc.collect()
        torch.cuda.empty_cache()


def measure(
    spec: ModelSpec,
    layout: SlotLayout,
    contexts: list[int],
    bandwidth: float,
    profile_to: Console | None,
    *,
    title: str,
) -> Table:
    """One form of the model at every context, from one graph."""
    import torch

    from cbprof.engine.model.runner import Runner

    rows = layout.max_requests
    runner = Runner(spec, layout, num_blocks=rows * layout.max_blocks, slots=1, device=torch.device("cuda"))
    for keys, values in runner._cache._layers:
        keys.normal_()
        values.normal_()
    graph = capture(runner, rows)
    facts = runner.facts
    table = Table("context", "ms", "floor, ms", "x floor", title=title)
    for context in contexts:
        decode_at(context, runner, layout)
        ms = step_ms(graph)
        floor = 1e3 * (facts.step_weight_bytes + rows * context * facts.kv_bytes_per_token) / bandwidth
        table.add_row(f"{context:,}", f"{ms:.3f}", f"{floor:.3f}", f"{ms / floor:.3f}")
        if profile_to and context in (contexts[0], contexts[-1]):
            profile_to.print(kernel_table(graph, f"{title}, context {context:,}"))
    table.caption = f"{len(set(runner.outputs[0].tolist()))} distinct tokens"
    return table


def decode_at(context: int, runner: Runner, layout: SlotLayout) -> None:
    """Fill slot 0 with one token a row, at position ``context - 1``."""
    import torch

    from cbprof.engine.model.inputs import view

    rows = layout.max_requests
    at = view(runner.inputs[0], layout, rows)
    blocks = torch.randperm(rows * layout.max_blocks, device="cuda", dtype=torch.int32).view(rows, -1)
    each = torch.arange(rows, device="cuda", dtype=torch.int32)
    last = context - 1
    at.input_ids.copy_(torch.randint(0, runner.facts.vocab_size, (rows,)))
    at.carry.fill_(-1)
    at.positions.fill_(last)
    at.write_at.copy_(blocks[:, last // layout.block_size] * layout.block_size + last % layout.block_size)
    at.query_start.copy_(torch.arange(rows + 1))
    at.context.fill_(context)
    at.sample_at.copy_(each)
    at.noise_key.copy_(torch.randint(0, 2**31 - 1, (rows,)))
    at.temperature.fill_(1.0)
    at.block_table.copy_(blocks)


def capture(runner: Runner, bucket: int) -> CUDAGraph:
    """The step of slot 0 as a graph, the way the CUDA device captures it."""
    import torch

    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        runner.step(0, bucket)
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        runner.step(0, bucket)
    return graph


def step_ms(graph: CUDAGraph) -> float:
    """Milliseconds a replay, the median of several queued one behind the other, as async mode queues them."""
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    for _ in range(3):
        graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(events[3:]))


def kernel_table(graph: CUDAGraph, title: str) -> Table:
    """What one replay runs, by name: calls, and microseconds in total and each; and the time between kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            graph.replay()
        torch.cuda.synchronize()
    spans: list[tuple[int, int, str]] = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
        for event in cast("list[object]", profiler.profiler.kineto_results.events())
        if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    durations: dict[str, list[int]] = {}
    for start, end, name in spans:
        durations.setdefault(name, []).append(end - start)
    table = Table("kernel", "calls", "total, us", "each, us", title=title)
    for name, taken in sorted(durations.items(), key=lambda item: -sum(item[1])):
        total = sum(taken) / PROFILED / 1e3
        table.add_row(name[:80], f"{len(taken) / PROFILED:g}", f"{total:.1f}", f"{statistics.mean(taken) / 1e3:.2f}")
    gaps = [max(0, after[0] - before[1]) for before, after in pairwise(spans)]
    between = [gap for gap in gaps if gap < 20_000]  # longer ones lie between replays
    table.add_row("(between kernels)", f"{len(between) / PROFILED:g}", f"{sum(between) / PROFILED / 1e3:.1f}", "")
    return table


if __name__ == "__main__":
    typer.run(bench)
