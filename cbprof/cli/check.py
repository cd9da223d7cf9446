"""``cbprof check``: limits that a trace must keep, for CI."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cbprof.cli.options import parse_steps
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import show
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from cbprof.analysis.gate.check import Limits

TABLE = "[tool.cbprof.check]"


class CheckFormat(StrEnum):
    """How the results are printed."""

    text = "text"
    github = "github"


def check(
    trace: Annotated[Path, typer.Argument(help="The trace to check.", metavar="TRACE")],
    max_idle: Annotated[str | None, typer.Option(help="Largest idle share of a GPU, such as 1%.")] = None,
    max_gap: Annotated[str | None, typer.Option(help="Longest gap without GPU activity, such as 2ms.")] = None,
    max_step_p99: Annotated[
        str | None, typer.Option(help="99th percentile of the time per step, such as 20ms.")
    ] = None,
    max_ttft_p99: Annotated[
        str | None, typer.Option(help="99th percentile of the time to the first token, such as 500ms.")
    ] = None,
    max_itl_p99: Annotated[
        str | None, typer.Option(help="99th percentile of the time between two tokens of a request, such as 30ms.")
    ] = None,
    min_tokens_per_s: Annotated[str | None, typer.Option(help="Lowest rate of generated tokens.")] = None,
    no_hazards: Annotated[
        bool | None, typer.Option("--no-hazards/--hazards", help="Fail where a race between batches is found.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Only these steps, first:last (last not included).")] = None,
    config: Annotated[
        Path | None, typer.Option(help="File with limits. [default: the nearest pyproject.toml that has any]")
    ] = None,
    layout: Annotated[
        CheckFormat, typer.Option("--format", help="text: a line a limit; github: annotations of a workflow.")
    ] = CheckFormat.text,
    junit: Annotated[Path | None, typer.Option(help="Also write the results as JUnit XML.", metavar="FILE")] = None,
    no_cache: NoCache = False,
) -> None:
    """Hold a trace against limits: exit code 0 where it keeps them all, 1 where it breaks one.

    Limits also come from `[tool.cbprof.check]` in pyproject.toml, such as `max-idle = "1%"`; options go before them.
    A trace that is incomplete, or whose idle time is unknown, fails.

    Examples:

        cbprof check trace.json --max-idle 1% --max-gap 2ms --no-hazards

        cbprof check trace.json --config pyproject.toml --format github --junit cbprof.xml
    """
    from cbprof.analysis.gate.check import Limits

    texts = {
        "max-idle": max_idle,
        "max-gap": max_gap,
        "max-step-p99": max_step_p99,
        "max-ttft-p99": max_ttft_p99,
        "max-itl-p99": max_itl_p99,
        "min-tokens-per-s": min_tokens_per_s,
    }
    given = Limits.parse({name: text for name, text in texts.items() if text is not None}, "option")
    configured = find_limits(config, Path.cwd())
    limits = Limits({**configured.values, **given.values}, configured.no_hazards if no_hazards is None else no_hazards)
    if not limits:
        raise UsageError(
            "nothing to check: give a limit such as --max-idle 1%, or [tool.cbprof.check] in pyproject.toml"
        )
    results = read(trace, no_cache=no_cache).check(limits, steps=parse_steps(steps))
    if junit is not None:
        results.write_junit(junit)
    if layout is CheckFormat.github:
        typer.echo(results.to_github())
    else:
        show(results)
    raise typer.Exit(int(not results.passed))


def find_limits(config: Path | None, start: Path) -> Limits:
    """The limits of ``config``; without it, of the nearest pyproject.toml from ``start`` upwards that has the table.

    None are found where there is no such file. Raises UsageError where ``config`` lacks the table, or where a file is
    not TOML, or a limit not a limit.
    """
    from cbprof.analysis.gate.check import Limits

    if config is not None:
        table = _table(config)
        if table is None:
            raise UsageError(f"{config}: has no table {TABLE}: add it, or give the limits as options")
        return Limits.parse(table, f"{config} {TABLE}")
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        table = _table(path) if path.is_file() else None
        if table is not None:
            return Limits.parse(table, f"{path} {TABLE}")
    return Limits({})


def _table(path: Path) -> dict[str, Any] | None:
    try:
        document: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for key in ("tool", "cbprof", "check"):
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None
