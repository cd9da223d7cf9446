"""``cbprof run``: serve a workload, record it, say where the time went."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.metrics import MetricsPort, Told, endpoint
from cbprof.cli.options import format_lengths, parse_lengths, parse_window, refuse_with
from cbprof.cli.workloads import Texts, listed_requests
from cbprof.cli.writing import check_is_new, check_output, say
from cbprof.engine.config import EngineConfig
from cbprof.engine.placement import Placement
from cbprof.engine.workload import Workload
from cbprof.errors import UsageError
from cbprof.files import with_infix

if TYPE_CHECKING:
    from cbprof.engine.config import Mode
    from cbprof.record.recorder import Recorder
    from cbprof.record.session import RecordedRun


class EngineChoice(StrEnum):
    """Whose continuous batching serves the workload."""

    cbprof = "cbprof"
    transformers = "transformers"


class ModeChoice(StrEnum):
    """Which loop serves the workload."""

    sync = "sync"
    async_ = "async"
    multi = "multi"
    both = "both"


def run(
    context: typer.Context,
    mode: Annotated[
        ModeChoice, typer.Option(help="One batch after the other, one batch ahead, bursts; both: the first two.")
    ] = (ModeChoice.both),
    steps_per_sync: Annotated[
        int | None,
        typer.Option(help="Batches of a burst in multi: the host looks at tokens after the last. [default: 4]"),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Batches in flight in async: how far the host runs ahead. [default: 2]")
    ] = None,
    engine: Annotated[
        EngineChoice, typer.Option(help="The reference engine, or transformers' own continuous batching.")
    ] = EngineChoice.cbprof,
    model: Annotated[
        str, typer.Option(help="tiny, llama-1b, llama-8b, qwen3-8b (random weights), a folder, or a hub id.")
    ] = EngineConfig.model,
    device: Annotated[
        str,
        typer.Option(help="cuda; host: a process that plays the GPU (transformers: cpu); auto: cuda if there is one."),
    ] = EngineConfig.device,
    dtype: Annotated[
        str, typer.Option(help="bfloat16, float16, float32, float64; auto: by device.")
    ] = EngineConfig.dtype,
    batch: Annotated[int, typer.Option("--batch", "-b", help="Most requests in one step.")] = EngineConfig.max_batch,
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", help="Requests to serve. [default: --batch]")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="A text to go on with, by the checkpoint's tokenizer; can be repeated.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="A file of texts to go on with, one a line.")] = None,
    requests_from: Annotated[
        Path | None, typer.Option(help="A file of requests: JSON lines, ShareGPT, or an Azure LLM trace (CSV).")
    ] = None,
    prompt_len: Annotated[str, typer.Option(help="Prompt length in tokens, or lowest:highest.")] = format_lengths(
        Workload.prompt_len
    ),
    new_tokens: Annotated[str, typer.Option(help="Tokens to generate a request, or lowest:highest.")] = format_lengths(
        Workload.new_tokens
    ),
    rate: Annotated[
        float, typer.Option(help="Requests a second, arriving at random; 0: all at the start.")
    ] = Workload.rate,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = Workload.temperature,
    stop_token: Annotated[list[int] | None, typer.Option(help="Token id that ends a request; can be repeated.")] = None,
    ignore_end: Annotated[
        bool, typer.Option("--ignore-end", help="Go on past the token with which a checkpoint ends what it writes.")
    ] = Workload.ignore_end,
    max_batch_tokens: Annotated[int, typer.Option(help="Most tokens in one step.")] = EngineConfig.max_batch_tokens,
    prefill_chunk: Annotated[
        int, typer.Option(help="Most tokens of one request in one step.")
    ] = EngineConfig.prefill_chunk,
    block_size: Annotated[int, typer.Option(help="Tokens in a KV block.")] = EngineConfig.block_size,
    blocks: Annotated[
        int, typer.Option(help="KV blocks in the cache; 0: enough for a full batch.")
    ] = EngineConfig.num_blocks,
    seed: Annotated[int, typer.Option(help="Seed of weights, prompts and sampling.")] = EngineConfig.seed,
    fuse: Annotated[
        bool, typer.Option(help="Merge projections and fuse small kernels (Llama, Qwen2, Qwen3).")
    ] = EngineConfig.fuse,
    compiled: Annotated[
        bool, typer.Option("--compile", help="The model's own modules through torch.compile instead.")
    ] = EngineConfig.compiled,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The trace; .gz compresses it. With both: NAME.sync and NAME.async.")
    ] = Path("trace.json"),
    cupti: Annotated[
        str | None,
        typer.Option(metavar="FIRST:LAST", help="Profile these steps with CUPTI too, into NAME.cupti.json.gz."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1, help="Serve so often, with the modes by turns, and tell the spread. Run 2 is NAME.2, and so on."
        ),
    ] = 1,
    metrics: MetricsPort = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an older trace of that name.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live line.")] = False,
) -> None:
    """Serve a workload, record it, and say where the time went.

    Without a GPU a process of its own plays the device, so that everything can be tried on a laptop. With `--mode both`
    the same requests are served twice and the tokens compared, in 16 bits and where arrivals, stop tokens or preemption
    make batches differ only their number, or nothing; the exit code is 1 if they differ. Under torchrun every
    rank runs a replica on its own device, serves its share of the requests and writes NAME.rank00003.json.

    Examples:

        cbprof run

        cbprof run --mode async --model llama-8b --batch 32 --prompt-len 128 --new-tokens 512 -o h200.json.gz

        cbprof run --batch 8 --requests 64 --prompt-len 4:64 --new-tokens 8:128 --rate 20

        cbprof run --model Qwen/Qwen3-0.6B --mode async --prompt "The capital of France is" --new-tokens 32

        cbprof run --model llama-1b --requests-from AzureLLMInferenceTrace_conv.csv --batch 32

        cbprof run --mode async --slots 3

        cbprof run --mode multi --steps-per-sync 8

        cbprof run --repeat 3 -o a.json

        cbprof run --engine transformers --mode sync --temperature 0

        torchrun --nproc-per-node 2 -m cbprof run --mode async
    """
    placement = Placement.from_environment(os.environ)
    texts = Texts(model)
    listed = listed_requests(
        context,
        texts,
        prompt=prompt,
        prompts=prompts,
        requests_from=requests_from,
        new_tokens=parse_lengths(new_tokens)[1],
    )
    workload = Workload(
        requests=batch * placement.world_size if requests is None else requests,
        prompt_len=parse_lengths(prompt_len),
        new_tokens=parse_lengths(new_tokens),
        rate=rate,
        temperature=temperature,
        stop_tokens=tuple(stop_token or ()),
        ignore_end=ignore_end,
        seed=seed,
        rank=placement.rank,
        world_size=placement.world_size,
        listed=listed,
    )
    config = EngineConfig(
        model=model,
        dtype=dtype,
        device=device,
        device_index=placement.local_rank,
        max_batch=batch,
        max_batch_tokens=max_batch_tokens,
        prefill_chunk=prefill_chunk,
        max_context=workload.longest,
        block_size=block_size,
        num_blocks=blocks,
        slots=_slots(mode, slots, steps_per_sync),
        seed=seed,
        fuse=fuse,
        compiled=compiled,
    )
    if engine is EngineChoice.transformers:
        refuse_with(context, "--engine transformers", "fuse", "compiled", "prefill_chunk", "blocks", "slots")
        if mode is ModeChoice.multi:
            raise UsageError("transformers has no multi-step loop: give --mode sync, async or both")
    if compiled:
        refuse_with(context, "--compile", "fuse")
    check_output(output)
    paths_of: dict[ModeChoice, dict[Mode, Path]] = {
        ModeChoice.sync: {"sync": output},
        ModeChoice.async_: {"async": output},
        ModeChoice.multi: {"multi": output},
        ModeChoice.both: {"sync": with_infix(output, "sync"), "async": with_infix(output, "async")},
    }
    paths = {each: placement.path(path) for each, path in paths_of[mode].items()}
    rounds = [paths, *({each: with_infix(path, f"{n}") for each, path in paths.items()} for n in range(2, repeat + 1))]
    check_is_new((path for each in rounds for path in each.values()), force=force)
    if placement.world_size > 1:
        _keep_cores_apart(config, placement)
    quiet = quiet or workload.rank > 0
    runs = _serve(engine, config, workload, rounds, cupti=parse_window(cupti), metrics=metrics, quiet=quiet)
    if (prompt or prompts) and runs[-1].outcome is not None:
        texts.show(listed, runs[-1].outcome.tokens)
    raise typer.Exit(_conclude(runs, len(paths)) if not workload.rank else _conclude_in_brief(runs, workload.rank))


def _slots(mode: ModeChoice, slots: int | None, steps_per_sync: int | None) -> int:
    """How many batches may be in flight."""
    if slots is not None and mode in {ModeChoice.sync, ModeChoice.multi}:
        raise UsageError("--slots is for the async loop: add --mode async or both, or leave it out")
    if mode is not ModeChoice.multi:
        if steps_per_sync is not None:
            raise UsageError("--steps-per-sync is for the multi-step loop: add --mode multi, or leave it out")
        if slots is not None and slots < 2:
            raise UsageError(f"--slots is {slots}: async has two batches in flight at least; --mode sync has one")
        return EngineConfig.slots if slots is None else slots
    if (slots := 4 if steps_per_sync is None else steps_per_sync) < 1:
        raise UsageError(f"--steps-per-sync is {slots}: it must be at least 1, which is the sync order")
    return slots


def _serve(
    engine: EngineChoice,
    config: EngineConfig,
    workload: Workload,
    rounds: list[dict[Mode, Path]],
    *,
    cupti: tuple[int, int] | None,
    metrics: int | None,
    quiet: bool,
) -> list[RecordedRun]:
    """Run each mode, and again as often as there are ``rounds``, until one is interrupted."""
    from rich.console import Console

    from cbprof.cli.live import can_draw
    from cbprof.cli.progress import spinner, token_progress
    from cbprof.engine.engine import check_installed, has_cuda, resolve
    from cbprof.engine.model.wanted import check_wanted
    from cbprof.record.session import open_engine

    check_installed()
    check_wanted(config.model, config.dtype, config.max_context)
    if cupti is not None and (config.device in {"host", "cpu"} or not has_cuda()):
        raise UsageError("--cupti needs a CUDA device: without one there are no kernels to see")
    if engine is EngineChoice.cbprof:
        config = resolve(config)
    console = Console(stderr=True, quiet=quiet)
    told: Told = {}

    def measured(mode: Mode, progress: Callable[[Recorder], None]) -> Callable[[Recorder], None]:
        def watch(recorder: Recorder) -> None:
            progress(recorder)
            if metrics is not None:
                told[mode] = {"mode": mode}, recorder.meter().figures

        return watch

    said = {"repeat": {"of": len(rounds), "id": token_hex(8)}} if len(rounds) > 1 else {}
    runs: list[RecordedRun] = []
    with ExitStack() as stack:
        stack.enter_context(endpoint(metrics, told, quiet=quiet))
        with spinner(console, f"loading {config.model}"):
            opened = stack.enter_context(open_engine(engine.value, config, rounds[0]))
        for mode, path in (each for paths in rounds for each in paths.items()):
            with token_progress(mode, workload.most_tokens, shown=can_draw() and not quiet) as progress:
                runs.append(opened.record(workload, mode, path, cupti=cupti, watch=measured(mode, progress), said=said))
            if runs[-1].interrupted:
                break
    return runs


def _conclude(runs: list[RecordedRun], n_modes: int) -> int:
    """Print the numbers, whether the tokens agree, and what to type next. Of ``n_modes`` runs each is a round."""
    from rich.console import Console

    from cbprof.analysis.gate.runs import Runs
    from cbprof.analysis.summary import summarize
    from cbprof.formats import load
    from cbprof.render.tables.runs import gain_line, spread_sheet
    from cbprof.render.tables.summary import comparison_table, summary_table
    from cbprof.render.terminal.pictures import run_strips

    console = Console()
    traces = [load(run.path) for run in runs]
    summaries = [summarize(trace) for trace in traces]
    console.print(summary_table(summaries[0]) if n_modes == 1 or len(runs) == 1 else comparison_table(*summaries[:2]))
    console.print(run_strips(traces[:n_modes]))
    if len(runs) > n_modes:
        groups = {traces[first].mode or "": Runs.of(traces[first::n_modes]) for first in range(n_modes)}
        console.print(spread_sheet(groups).to_rich())
        if n_modes == 2:
            console.print(gain_line(groups["sync"], groups["async"]))
    differ = _differ(runs)
    tokens = [run.outcome.tokens for run in runs if run.outcome is not None]
    if len(tokens) > 1:
        console.print(_compared(runs, tokens, differ=differ), soft_wrap=True)
    names = " ".join(str(run.path) for run in runs)
    for run in runs:
        if run.interrupted:
            say(f"interrupted: {run.path} holds the run so far")
    firsts = " ".join(str(run.path) for run in runs[:n_modes])
    say(f"wrote {names}", f"see it: cbprof plot {firsts}")
    if any(run.interrupted for run in runs):
        return 130
    return int(differ)


def _differ(runs: list[RecordedRun]) -> bool:
    """Whether the runs differ in what must be equal."""
    from cbprof.engine.equality import differs, weakest

    return differs(
        weakest(run.equality for run in runs), [run.outcome.tokens for run in runs if run.outcome is not None]
    )


def _compared(runs: list[RecordedRun], tokens: list[dict[int, list[int]]], *, differ: bool) -> str:
    """What was compared, and how it came out."""
    from cbprof.engine.equality import weakest

    equality = weakest(run.equality for run in runs)
    if equality.compared == "nothing":
        return f"tokens: not compared, since {equality.why}"
    if equality.compared == "lengths":
        what = "the number of them DIFFERS" if differ else "as many of each request"
        return f"tokens: {what}; no more is compared, since {equality.why}"
    distinct = min(len(set(each)) for run in tokens for each in run.values())
    return f"tokens: {'DIFFER' if differ else 'identical'} (at least {distinct} distinct in each request)"


def _conclude_in_brief(runs: list[RecordedRun], rank: int) -> int:
    """One line, for all ranks but the first; the same exit codes."""
    from cbprof.analysis.summary import summarize
    from cbprof.formats import load
    from cbprof.numbers import duration, percent

    told = []
    for run in runs:
        summary = summarize(load(run.path))
        idle = percent(summary.most_idle.idle_pct if summary.most_idle else None)
        told.append(f"{summary.mode} {duration(summary.wall_ns)}, GPU idle {idle}")
    differ = _differ(runs)
    differing = "; tokens: DIFFER" if differ else ""
    say(f"rank {rank}: {'; '.join(told)}{differing}; wrote {' '.join(str(run.path) for run in runs)}")
    return 130 if any(run.interrupted for run in runs) else int(differ)


def _keep_cores_apart(config: EngineConfig, placement: Placement) -> None:
    """Of ranks on one machine whose devices are processes, not GPUs."""
    from cbprof.engine.engine import has_cuda

    if config.device == "host" or (config.device == "auto" and not has_cuda()):
        placement.take_cores()
