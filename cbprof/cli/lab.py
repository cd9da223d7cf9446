"""``cbprof lab``: the ideas of asynchronous batching, each as a small experiment that measures itself."""

from __future__ import annotations

from os.path import exists, isdir  # unlike Path's, False for any name that cannot be
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.options import refuse_with
from cbprof.cli.writing import say
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.lab.finding import Finding


def lab(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="The experiments; --list names them.", metavar="NAME", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All experiments, in order.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="What there is to see.")] = False,
    device: Annotated[
        str, typer.Option(help="cuda; host: a process that plays the GPU; auto: cuda if there is one.")
    ] = "auto",
    model: Annotated[str, typer.Option(help="What the engine serves on CUDA: a preset, a folder, or a hub id.")] = (
        "llama-1b"
    ),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for the page, timelines, traces and figures.")
    ] = Path("lab"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys, and nothing else.")] = False,
) -> None:
    """Make an idea of asynchronous batching happen, and measure it.

    Each experiment records itself, is drawn, and checks its own outcome: what is wrong by design must come out wrong.
    The exit code is 1 where one did not come out as it must.

    Examples:

        cbprof lab --list

        cbprof lab no-events events

        cbprof lab --all -o out/
    """
    from cbprof.lab.catalog import EXPERIMENTS, experiment, lesson

    if listed:
        refuse_with(context, "--list", "names", "every", "device", "model", "output", "json")
        for name in EXPERIMENTS:
            _list(name, lesson(name)[0])
        return
    if every:
        refuse_with(context, "--all", "names")
    if device == "host":
        refuse_with(context, "--device host", "model")
    chosen = list(EXPERIMENTS) if every else list(names or ())
    if not chosen:
        raise UsageError("which experiment? Give names (cbprof lab --list), or --all")
    for name in chosen:
        experiment(name)
    if exists(output) and not isdir(output):
        raise UsageError(f"{output} is a file: give --output the name of a folder")
    findings = _run(chosen, device, model, output, json=json)
    raise typer.Exit(int(not all(finding.ok for finding in findings)))


def _list(name: str, lesson: str) -> None:
    """The name, and what it shows beside it, or below it where the terminal is narrow."""
    from shutil import get_terminal_size
    from textwrap import fill

    columns = get_terminal_size().columns
    indent = " " * (16 if columns >= 70 else 2)
    told = fill(lesson, max(46, columns), initial_indent=indent, subsequent_indent=indent)
    typer.echo(f"{name:<15} {told.lstrip()}" if columns >= 70 else f"{name}\n{told}")


def _run(names: list[str], device: str, model: str, output: Path, *, json: bool) -> list[Finding]:
    """Run the experiments on one device, show each as it is done, and write all of them."""
    from rich.console import Console

    from cbprof.lab.catalog import experiment
    from cbprof.lab.lab import Lab
    from cbprof.lab.page import to_json, write_findings
    from cbprof.lab.terminal import shown

    console = Console(quiet=json)
    findings = []
    with Lab(device, model=model) as lab:
        for name in names:
            findings.append(experiment(name)(lab))
            console.print(shown(findings[-1]))
        page = write_findings(findings, output, lab.device.name)
        if json:
            from json import dumps

            typer.echo(dumps(to_json(findings, lab.device.name), indent=1))
    if not json:
        say(f"wrote {page}")
    return findings
