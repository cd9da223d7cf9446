"""``cbprof run``: serve a workload, record it, say where the time went."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.ranges import parse_lengths
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.engine.config import EngineConfig, Mode
    from cbprof.engine.workload import Workload
    from cbprof.record.session import RecordedRun


class ModeChoice(StrEnum):
    """Which loop serves the workload."""

    sync = "sync"
    async_ = "async"
    both = "both"


def run(
    mode: Annotated[ModeChoice, typer.Option(help="One batch after the other, one batch ahead, or both.")] = (
        ModeChoice.both
    ),
    model: Annotated[
        str, typer.Option(help="tiny, llama-1b, llama-8b, qwen3-8b (random weights), a folder, or a hub id.")
    ] = "tiny",
    device: Annotated[
        str, typer.Option(help="cuda; host: a process that plays the GPU; auto: cuda if there is one.")
    ] = "auto",
    dtype: Annotated[str, typer.Option(help="bfloat16, float16, float32, float64; auto: by device.")] = "auto",
    batch: Annotated[int, typer.Option("--batch", "-b", help="Most requests in one step.")] = 16,
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", help="Requests to serve. [default: --batch]")
    ] = None,
    prompt_len: Annotated[str, typer.Option(help="Prompt length in tokens, or lowest:highest.")] = "32",
    new_tokens: Annotated[str, typer.Option(help="Tokens to generate a request, or lowest:highest.")] = "256",
    rate: Annotated[float, typer.Option(help="Requests a second, arriving at random; 0: all at the start.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 1.0,
    stop_token: Annotated[list[int] | None, typer.Option(help="Token id that ends a request; can be repeated.")] = None,
    max_batch_tokens: Annotated[int, typer.Option(help="Most tokens in one step.")] = 2048,
    prefill_chunk: Annotated[int, typer.Option(help="Most tokens of one request in one step.")] = 2048,
    block_size: Annotated[int, typer.Option(help="Tokens in a KV block.")] = 16,
    blocks: Annotated[int, typer.Option(help="KV blocks in the cache; 0: enough for a full batch.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of weights, prompts and sampling.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The trace; .gz compresses it. With both: NAME.sync and NAME.async.")
    ] = Path("trace.json"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Serve a workload with the reference engine, record it, and say where the time went.

    Without a GPU a process of its own plays the device, so that everything can be tried on a laptop. With `--mode both`
    the same requests are served twice and the tokens compared; the exit code is 1 if they differ.

    Examples:

        cbprof run

        cbprof run --mode async --model llama-8b --batch 32 --prompt-len 128 --new-tokens 512 -o h200.json.gz

        cbprof run --batch 8 --requests 64 --prompt-len 4:64 --new-tokens 8:128 --rate 20
    """
    from cbprof.engine.config import EngineConfig
    from cbprof.engine.workload import Workload

    workload = Workload(
        requests=batch if requests is None else requests,
        prompt_len=parse_lengths(prompt_len),
        new_tokens=parse_lengths(new_tokens),
        rate=rate,
        temperature=temperature,
        stop_tokens=tuple(stop_token or ()),
        seed=seed,
    )
    config = EngineConfig(
        model=model,
        dtype=dtype,
        device=device,
        max_batch=batch,
        max_batch_tokens=max_batch_tokens,
        prefill_chunk=prefill_chunk,
        max_context=workload.longest,
        block_size=block_size,
        num_blocks=blocks,
        seed=seed,
    )
    if output.is_dir() or not output.name:
        raise UsageError(f"{output} is a folder: give --output the name of a file")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no folder {output.parent}: create it, or choose another --output")
    paths_of: dict[ModeChoice, dict[Mode, Path]] = {
        ModeChoice.sync: {"sync": output},
        ModeChoice.async_: {"async": output},
        ModeChoice.both: {"sync": _with_infix(output, "sync"), "async": _with_infix(output, "async")},
    }
    paths = paths_of[mode]
    raise typer.Exit(_serve(config, workload, paths, quiet=quiet))


def _serve(config: EngineConfig, workload: Workload, paths: dict[Mode, Path], *, quiet: bool) -> int:
    """Run each mode, print what came of it, and return the exit code."""
    from rich.console import Console

    from cbprof.cli.progress import spinner, token_progress
    from cbprof.engine.engine import Engine
    from cbprof.record.session import record

    console = Console(stderr=True, quiet=quiet)
    runs: dict[Mode, RecordedRun] = {}
    with ExitStack() as stack:
        with spinner(console, f"loading {config.model}"):
            engine = stack.enter_context(Engine(config))
        for mode, path in paths.items():
            with token_progress(console, mode, workload.most_tokens) as watch:
                runs[mode] = record(engine, workload, mode, path, watch=watch)
            if runs[mode].interrupted:
                break
    return _conclude(list(runs.values()))


def _conclude(runs: list[RecordedRun]) -> int:
    """Print the numbers, whether the tokens agree, and what to type next."""
    from rich.console import Console

    from cbprof.analysis.summary import summarize
    from cbprof.formats import load
    from cbprof.render.table import comparison_table, summary_table

    console = Console()
    summaries = [summarize(load(run.path)) for run in runs]
    console.print(summary_table(summaries[0]) if len(runs) == 1 else comparison_table(*summaries))
    differ = False
    outcomes = [run.outcome for run in runs if run.outcome is not None]
    if len(outcomes) == 2:
        differ = outcomes[0].tokens != outcomes[1].tokens
        distinct = min(len(set(tokens)) for outcome in outcomes for tokens in outcome.tokens.values())
        console.print(f"tokens: {'DIFFER' if differ else 'identical'} (at least {distinct} distinct in each request)")
    names = " ".join(str(run.path) for run in runs)
    for run in runs:
        if run.interrupted:
            console.print(f"interrupted: {run.path} holds the run so far")
    console.print(f"wrote {names}\nsee it: cbprof plot {names}", soft_wrap=True)
    if any(run.interrupted for run in runs):
        return 130
    return int(differ)


def _with_infix(path: Path, infix: str) -> Path:
    """``trace.json.gz`` with ``sync`` is ``trace.sync.json.gz``."""
    suffixes = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return path.with_name(path.name.removesuffix(suffixes) + f".{infix}{suffixes}")
