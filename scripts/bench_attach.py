"""transformers' continuous batching with and without cbprof attached, in turn, and the reference engine beside it.

    python scripts/bench_attach.py --model llama-8b --batch 32 --prompt-len 128 --new-tokens 512 --pairs 3

Prints where the time of each goes, and for transformers what attaching costs: the ratio of the steady times of
neighbouring runs, attached / not. Steady is from the 9th batch to the last, by a clock that is read in both: captures
and warm-up vary by more than the cost. The same requests throughout, greedy, so that the tokens can be compared; the
two engines round differently and are not compared with each other. Async needs a CUDA device; without one only sync
is run.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from cbprof.analysis.gate.compare import ratio_of_sums
from cbprof.analysis.summary import Summary, summarize
from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Engine
from cbprof.engine.workload import Workload
from cbprof.formats import load
from cbprof.record.attach import attach
from cbprof.record.engines.transformers.serve import TransformersEngine
from cbprof.record.session import record
from cbprof.record.wrapping import Wrappings

Tokens = dict[int, list[int]]

WARM_UP = 8
"""Batches before the steady part."""


@dataclass
class Measured:
    """One engine in one mode. ``plain_ns`` and ``attached_ns``: steady times of neighbouring runs."""

    summary: Summary | None = None
    steps: int = 0
    plain_ns: list[int] = field(default_factory=list)
    attached_ns: list[int] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return sorted(a / b for a, b in zip(self.attached_ns, self.plain_ns, strict=True))


class StopWatch:
    """Reads the clock whenever transformers updates a batch."""

    def __init__(self) -> None:
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

        self.marks: list[int] = []
        Wrappings().wrap(ContinuousBatchProcessor, "update_batch", self._marking)

    def _marking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update_batch(*args: Any, **kwargs: Any) -> Any:
            self.marks.append(time.perf_counter_ns())
            return original(*args, **kwargs)

        return update_batch

    def steady_ns(self) -> int:
        """From the first batch after the warm-up to the last, since this was asked before."""
        steady_ns = self.marks[-1] - self.marks[WARM_UP]
        self.marks.clear()
        return steady_ns


def bench(
    model: Annotated[str, typer.Option(help="As in cbprof run.")] = "tiny",
    device: Annotated[str, typer.Option(help="cuda, or auto.")] = "auto",
    batch: Annotated[int, typer.Option(help="Requests, all in one batch.")] = 16,
    prompt_len: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 32,
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate a request.")] = 128,
    pairs: Annotated[int, typer.Option(help="Pairs of runs in each mode; 8 or more give an interval.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Keep the traces in this folder.")] = None,
) -> None:
    """Measure what attaching costs, and lay two engines side by side."""
    import torch

    console = Console(width=130)
    workload = Workload(requests=batch, prompt_len=(prompt_len,) * 2, new_tokens=(new_tokens,) * 2, temperature=0.0)
    config = EngineConfig(
        model=model, device=device, max_batch=batch, max_batch_tokens=4096, max_context=workload.longest
    )
    modes: tuple[Mode, ...] = ("sync", "async") if torch.cuda.is_available() else ("sync",)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    console.print(f"{where}, torch {torch.__version__}, {model}, batch {batch}, {new_tokens} new tokens, {pairs} pairs")
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        measured = {
            f"transformers {mode}": each for mode, each in _transformers(config, workload, modes, pairs, folder)
        }
        gc.collect()
        measured |= {f"cbprof {mode}": each for mode, each in _own(config, workload, modes, folder)}
    console.print(_table(measured))


def _transformers(
    config: EngineConfig, workload: Workload, modes: tuple[Mode, ...], pairs: int, folder: Path
) -> list[tuple[Mode, Measured]]:
    """Pairs of runs, attached and not, of which either goes first in turn."""
    found = []
    watch = StopWatch()
    with TransformersEngine(config, modes) as engine:
        for mode in modes:
            path, measured = folder / f"transformers.{mode}.json.gz", Measured()
            engine.serve(workload.make_requests(engine.vocab_size), mode)  # warm up
            watch.steady_ns()
            for pair in range(pairs):
                for attached in (pair % 2 == 0, pair % 2 == 1):
                    requests = workload.make_requests(engine.vocab_size)
                    if attached:
                        with attach("transformers", path, meta={"model": config.model}):
                            outcome = engine.serve(requests, mode)
                    else:
                        outcome = engine.serve(requests, mode)
                    (measured.attached_ns if attached else measured.plain_ns).append(watch.steady_ns())
                    measured.tokens.append(outcome.tokens)
            trace = load(path)
            measured.summary, measured.steps = summarize(trace), len(trace.steps)
            found.append((mode, measured))
    return found


def _own(
    config: EngineConfig, workload: Workload, modes: tuple[Mode, ...], folder: Path
) -> list[tuple[Mode, Measured]]:
    """One recorded run of the reference engine in each mode, after one to warm up."""
    found = []
    with Engine(config) as engine:
        for mode in modes:
            engine.serve(workload.make_requests(engine.vocab_size), mode)
            run = record(engine, workload, mode, folder / f"cbprof.{mode}.json.gz")
            assert run.outcome is not None
            trace = load(run.path)
            found.append((mode, Measured(summarize(trace), len(trace.steps), tokens=[run.outcome.tokens])))
    return found


def _table(measured: dict[str, Measured]) -> Table:
    """One column an engine and mode."""
    table = Table("", *measured)
    sync = {name.split()[0]: each for name, each in measured.items() if name.endswith(" sync")}
    rows: list[tuple[str, list[str]]] = [("wall, s", []), ("steps", []), ("GPU idle, %", []), ("speed-up bound", [])]
    for each in measured.values():
        assert each.summary is not None
        device = each.summary.devices[0]
        assert device.window is not None
        assert device.idle_pct is not None
        cells = (
            f"{device.window.length_ns / 1e9:.3f}",
            f"{each.steps:,}",
            f"{device.idle_pct:.3f}",
            f"{device.window.length_ns / device.active_ns:.4f}",
        )
        for (_, row), cell in zip(rows, cells, strict=True):
            row.append(cell)
    for label, row in rows:
        table.add_row(label, *row)
    table.add_section()
    for name, waiting in _phases(measured):
        times = [_us_a_step(each, name, waiting) for each in measured.values()]
        table.add_row(f"{name}{' (waiting)' if waiting else ''}, us a step", *times)
    table.add_section()
    same = [all(tokens == sync[name.split()[0]].tokens[0] for tokens in each.tokens) for name, each in measured.items()]
    table.add_row("tokens of all runs equal", *map(str, same))
    table.add_row("attached / plain, median of pairs", *(_median(each) for each in measured.values()))
    table.add_row("attached / plain, sum of all", *(_interval(each) for each in measured.values()))
    return table


def _median(measured: Measured) -> str:
    ratios = measured.ratios
    return f"{median(ratios):.4f} ({ratios[0]:.3f} to {ratios[-1]:.3f})" if ratios else ""


def _interval(measured: Measured) -> str:
    """With the 95 % interval of a bootstrap over pairs."""
    ratio = ratio_of_sums(np.array(measured.plain_ns, np.int64), np.array(measured.attached_ns, np.int64))
    if ratio is None:
        return ""
    return f"{ratio.value:.4f}" + (f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio.low is not None else "")


def _phases(measured: dict[str, Measured]) -> list[tuple[str, bool]]:
    """The phases that any of them has, those that take most time first."""
    total: dict[tuple[str, bool], int] = {}
    for each in measured.values():
        assert each.summary is not None
        for phase in each.summary.phases:
            key = phase.name, phase.waiting
            total[key] = max(total.get(key, 0), phase.total_ns)
    return sorted(total, key=lambda key: -total[key])


def _us_a_step(measured: Measured, name: str, waiting: bool) -> str:
    assert measured.summary is not None
    found = [phase for phase in measured.summary.phases if (phase.name, phase.waiting) == (name, waiting)]
    return f"{found[0].total_ns / measured.steps / 1e3:,.1f}" if found else ""


if __name__ == "__main__":
    typer.run(bench)
