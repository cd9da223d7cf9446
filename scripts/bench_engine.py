"""The reference engine against the hardware: sync and async on the same requests, in one process, beside the floor.

    python scripts/bench_engine.py long --out traces/         # 8B, batch 32, prompt 128, 8,192 new tokens
    python scripts/bench_engine.py short small large mixed    # several workloads, one after the other

The floor of a run is the time to read the weights and the KV cache once a step at the speed of a device-to-device
copy, measured in the same process: sum over steps of (weight bytes + sum of contexts x KV bytes a token) / bandwidth.
Needs a CUDA device.
"""

from __future__ import annotations

import gc
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.predict.predict import predict
from cbprof.analysis.summary import Summary, summarize
from cbprof.cli.options import parse_window
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Engine, Outcome
from cbprof.engine.workload import Workload
from cbprof.formats import load
from cbprof.record.session import record
from cbprof.trace import Trace


@dataclass(frozen=True)
class Scenario:
    """A model, its limits and what it serves."""

    what: str
    config: EngineConfig
    workload: Workload


def _scenario(what: str, model: str, batch: int, prompt: int, new_tokens: int) -> Scenario:
    workload = Workload(requests=batch, prompt_len=(prompt, prompt), new_tokens=(new_tokens, new_tokens))
    config = EngineConfig(
        model=model, device="cuda", max_batch=batch, max_batch_tokens=4096, max_context=workload.longest
    )
    return Scenario(what, config, workload)


MIXED = Workload(requests=512, prompt_len=(16, 2048), new_tokens=(16, 1024), rate=20.0)
SCENARIOS = {
    "short": _scenario("8B, batch 32, 512 new tokens", "llama-8b", 32, 128, 512),
    "long": _scenario("8B, batch 32, 8,192 new tokens", "llama-8b", 32, 128, 8192),
    "small": _scenario("1B, batch 32, 1,024 new tokens", "llama-1b", 32, 128, 1024),
    "large": _scenario("8B, batch 256, 1,024 new tokens", "llama-8b", 256, 128, 1024),
    "mixed": Scenario(
        "8B, 512 requests at 20/s, prompt 16-2,048, output 16-1,024, batch 64",
        EngineConfig(model="llama-8b", device="cuda", max_batch=64, max_batch_tokens=2048, max_context=MIXED.longest),
        MIXED,
    ),
}


def bench(
    names: Annotated[list[str], typer.Argument(help=f"Which workloads: {', '.join(SCENARIOS)}.")],
    out: Annotated[Path | None, typer.Option(help="Keep the traces in this folder.")] = None,
    fuse: Annotated[bool, typer.Option(help="With the fused modules, or the model's own.")] = True,
    cupti: Annotated[str | None, typer.Option(help="Profile steps first:last with CUPTI; they do not count.")] = None,
) -> None:
    """Run workloads in both modes and print them beside the floor."""
    import torch

    console = Console(width=110)
    bandwidth = copy_bandwidth()
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e12:.3f} TB/s")
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            scenario = SCENARIOS[name]
            started = time.perf_counter()
            with Engine(replace(scenario.config, fuse=fuse)) as engine:
                loaded_s = time.perf_counter() - started
                table = measure(name, scenario, engine, out or Path(scratch), bandwidth, parse_window(cupti))
                console.print(f"loaded in {loaded_s:.0f} s", table)
            gc.collect()
            torch.cuda.empty_cache()


def copy_bandwidth() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB; the median of ten."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.int32, device="cuda").random_()
    target = torch.empty_like(source)
    times = []
    for _ in range(13):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * source.nbytes / sorted(times[3:])[5]


def measure(
    name: str, scenario: Scenario, engine: Engine, out: Path, bandwidth: float, cupti: tuple[int, int] | None
) -> Table:
    """Both modes of one scenario, as a table."""
    outcomes: dict[Mode, Outcome] = {}
    traces: dict[Mode, Trace] = {}
    modes: tuple[Mode, ...] = ("sync", "async")
    for mode in modes:
        run = record(engine, scenario.workload, mode, out / f"{name}.{mode}.json.gz", cupti=cupti)
        assert run.outcome is not None
        outcomes[mode], traces[mode] = run.outcome, without_profiled_steps(load(run.path))
    summaries = {mode: summarize(trace) for mode, trace in traces.items()}
    floor_s = floor(traces["async"], engine, bandwidth)

    table = Table("", *modes, title=scenario.what, title_justify="left")
    rows = {
        "wall, s": lambda s, t, o: f"{_wall(s):.3f}",
        "GPU idle, %": lambda s, t, o: f"{s.devices[0].idle_pct:.4f}",
        "GPU active, %": lambda s, t, o: f"{100 - s.devices[0].idle_pct:.4f}",
        "wall / floor": lambda s, t, o: f"{_wall(s) / floor_s:.4f}",
        "tokens/s": lambda s, t, o: f"{t.meta.tokens or 0 / _wall(s):,.0f}",
        "steps": lambda s, t, o: f"{counted(t).sum():,}",
        "host work a step, us": lambda s, t, o: f"{host_us(s, counted(t).sum()):.0f}",
        "clock error, us": lambda s, t, o: f"{(t.meta.clock_error_ns or 0) / 1e3:.1f}",
    }
    for label, cell in rows.items():
        table.add_row(label, *(cell(summaries[mode], traces[mode], outcomes[mode]) for mode in modes))
    active_s = summaries["sync"].devices[0].active_ns / 1e9
    distinct = min(len(set(tokens)) for tokens in outcomes["async"].tokens.values())
    lengths = [{r: len(tokens) for r, tokens in outcome.tokens.items()} for outcome in outcomes.values()]
    table.add_section()
    table.add_row("async wall / sync wall", "", f"{_wall(summaries['async']) / _wall(summaries['sync']):.4f}")
    table.add_row("the same, predicted from the sync run", "", f"{1 / predict(traces['sync']).speedup:.4f}")
    table.add_row("async wall / sync GPU active", "", f"{_wall(summaries['async']) / active_s:.4f}")
    table.add_row("floor, s", "", f"{floor_s:.3f}")
    table.add_row("tokens identical", "", str(outcomes["sync"].tokens == outcomes["async"].tokens))
    table.add_row("same number of tokens a request", "", str(lengths[0] == lengths[1]))
    table.add_row("distinct tokens a request, at least", "", str(distinct))
    return table


def _wall(summary: Summary) -> float:
    window = summary.devices[0].window
    assert window is not None
    return window.length_ns / 1e9


def host_us(summary: Summary, steps: int) -> float:
    """Host work a step, without the waits, in microseconds."""
    return sum(phase.total_ns for phase in summary.phases if not phase.waiting) / steps / 1e3


def floor(trace: Trace, engine: Engine, bandwidth: float) -> float:
    """Seconds to read what the steps of ``trace`` must read, at ``bandwidth`` bytes a second."""
    facts = engine.device.facts
    context = trace.steps.context[counted(trace)]
    return (len(context) * facts.step_weight_bytes + int(context.sum()) * facts.kv_bytes_per_token) / bandwidth


def counted(trace: Trace) -> NDArray[np.bool_]:
    """Which rows of the step table are steps that ran without a profiler."""
    first, last = window.steps if (window := trace.meta.cupti) and window.steps else (0, 0)
    return (trace.steps.step < first) | (trace.steps.step >= last)


if __name__ == "__main__":
    typer.run(bench)
