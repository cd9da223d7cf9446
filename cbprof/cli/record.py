"""``cbprof record``: any program, from its start, without a change to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.metrics import MetricsPort, Told, endpoint
from cbprof.cli.options import parse_window, refuse_with
from cbprof.cli.writing import check_is_new, check_output, say
from cbprof.errors import DataError

if TYPE_CHECKING:
    from cbprof.record.program.status import Status


def record(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(help="The program and its arguments, as you would type them.", metavar="-- COMMAND")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace; .gz compresses it.")] = Path("trace.json"),
    steps: Annotated[
        str | None, typer.Option(metavar="FIRST:LAST", help="Record only these steps of the engine.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Record as long, from the first thing there is to record.")
    ] = None,
    on_signal: Annotated[
        bool, typer.Option("--on-signal", help="Begin off; kill -USR2 PID switches on and off.")
    ] = False,
    cupti: Annotated[
        bool, typer.Option("--cupti", help="torch.profiler too, while recording, into NAME.cupti.json.gz.")
    ] = False,
    metrics: MetricsPort = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an older trace of that name.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live line.")] = False,
) -> None:
    """Start a program unchanged and record what is known in it: the continuous batching of transformers, engines that
    use cbprof.Tracer, the synchronisations and graph launches of torch.cuda.

    Arguments, input, output, Ctrl-C, signals and the exit code are the program's; where it ends with 0 and a recording
    could not be written, the exit code is 3. SIGUSR2 ends a recording, and begins another in NAME.2.json.

    Examples:

        cbprof record -- python serve.py --port 8000

        cbprof record --steps 100:200 --cupti -o window.json.gz -- python serve.py

        cbprof record --metrics 9400 -- vllm serve MODEL

        cbprof record --on-signal --seconds 5 -- python -m my.server
    """
    from cbprof.cli.live import live_line
    from cbprof.record.program.launch import exit_like, in_the_way, launch
    from cbprof.record.program.outcome import is_lost, outcome_lines
    from cbprof.record.program.settings import Settings

    if steps is not None:
        refuse_with(context, "--steps", "seconds", "on_signal")
    check_output(output)
    check_is_new(in_the_way(output, os.environ), force=force)
    settings = Settings(
        out=str(output.absolute()),
        folder="",
        steps=parse_window(steps),
        seconds=seconds,
        on_signal=on_signal,
        cupti=cupti,
        metrics=metrics is not None,
    )
    told: Told = {}
    with live_line(quiet=quiet) as line, endpoint(metrics, told, quiet=quiet):

        def watch(pid: int, processes: list[Status]) -> None:
            line.processes(pid, processes)
            told.update(
                {str(each.pid): ({"pid": str(each.pid), "role": each.role}, each.figures.copy) for each in processes}
            )

        ended = launch(command, settings, watch)
    from cbprof.record.program.merge import with_merged_files  # which starts threads: see launch

    ended = ended._replace(processes=with_merged_files(ended.processes))
    say(*(f"cbprof: {words}" for words in outcome_lines(ended, settings)), err=True)
    code = exit_like(ended)
    raise typer.Exit(DataError.exit_code if code == 0 and is_lost(ended) else code)
