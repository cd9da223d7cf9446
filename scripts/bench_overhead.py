"""What recording costs: the same run with and without the recorder, in turn, and once under torch.profiler.

    python scripts/bench_overhead.py --model llama-8b --batch 32 --new-tokens 256

Prints, for each mode, the ratio of wall times of neighbouring runs, instrumented / not: its median and its extremes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cbprof.cli.progress import token_progress
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Engine
from cbprof.engine.workload import Workload
from cbprof.record.session import record


def bench(
    model: Annotated[str, typer.Option(help="As in cbprof run.")] = "tiny",
    device: Annotated[str, typer.Option(help="As in cbprof run.")] = "auto",
    batch: Annotated[int, typer.Option(help="Requests, all in one batch.")] = 16,
    prompt_len: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 32,
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate a request.")] = 256,
    pairs: Annotated[int, typer.Option(help="Pairs of runs in each mode.")] = 5,
    profiler: Annotated[bool, typer.Option(help="Also once under torch.profiler, on a CUDA device.")] = True,
    live: Annotated[bool, typer.Option(help="Draw the live line of `cbprof run` while recording, on stderr.")] = False,
) -> None:
    """Measure the overhead of the recorder."""
    import torch

    console = Console(width=100)
    workload = Workload(requests=batch, prompt_len=(prompt_len,) * 2, new_tokens=(new_tokens,) * 2)
    config = EngineConfig(
        model=model, device=device, max_batch=batch, max_batch_tokens=4096, max_context=workload.longest
    )
    table = Table("mode", "plain, s", "recorded, s", "recorded / plain", "lowest", "highest", "torch.profiler / plain")
    modes: tuple[Mode, ...] = ("sync", "async")
    with Engine(config) as engine, tempfile.TemporaryDirectory() as folder:
        console.print(f"{engine.device.name}, torch {torch.__version__}, {model}, {pairs} pairs a mode")
        for mode in modes:
            plain_s(engine, workload, mode)  # warm up
            plain, recorded = [], []
            for pair in range(pairs):
                # Whoever goes second finds the clocks warmer: take turns.
                for instrumented in (pair % 2 == 0, pair % 2 == 1):
                    if instrumented:
                        recorded.append(recorded_s(engine, workload, mode, Path(folder), live=live))
                    else:
                        plain.append(plain_s(engine, workload, mode))
            ratios = sorted(a / b for a, b in zip(recorded, plain, strict=True))
            under_profiler = "-"
            if profiler and engine.config.device == "cuda":
                under_profiler = f"{profiled_s(engine, workload, mode) / median(plain):.3f}"
            table.add_row(
                mode,
                f"{median(plain):.4f}",
                f"{median(recorded):.4f}",
                f"{median(ratios):.5f}",
                f"{ratios[0]:.5f}",
                f"{ratios[-1]:.5f}",
                under_profiler,
            )
    console.print(table)


def plain_s(engine: Engine, workload: Workload, mode: Mode) -> float:
    """Seconds that the loop takes when nobody watches."""
    return engine.serve(workload.make_requests(engine.vocab_size), mode).wall_ns / 1e9


def recorded_s(engine: Engine, workload: Workload, mode: Mode, folder: Path, *, live: bool) -> float:
    """Seconds that the loop takes while it is recorded, and shown if ``live``, terminal or not."""
    if live:
        with token_progress(mode, workload.most_tokens, shown=True) as watch:
            outcome = record(engine, workload, mode, folder / "trace.json", watch=watch).outcome
    else:
        outcome = record(engine, workload, mode, folder / "trace.json").outcome
    assert outcome is not None
    return outcome.wall_ns / 1e9


def profiled_s(engine: Engine, workload: Workload, mode: Mode) -> float:
    """Seconds of a run under torch.profiler, without its start and stop."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        return plain_s(engine, workload, mode)


if __name__ == "__main__":
    typer.run(bench)
