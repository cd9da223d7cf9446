"""Options: how their texts are read, and which of them do not go together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.errors import UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    from cbprof.api import Recording


class Format(StrEnum):
    """How a table is printed."""

    text = "text"
    md = "md"


Label = Annotated[
    list[str] | None,
    typer.Option("--label", help="What to call a run, in place of its file; once for each trace, in order."),
]


def labelled(recordings: Sequence[Recording], labels: Sequence[str] | None) -> list[Recording]:
    """The recordings with these labels. Raises UsageError where there is not one for each."""
    if not labels:
        return list(recordings)
    if len(labels) != len(recordings):
        numbers = f"{counted(len(labels), 'label')} for {counted(len(recordings), 'trace')}"
        raise UsageError(f"--label: {numbers}; give it once for each trace, or not at all")
    return [replace(each, label=label) for each, label in zip(recordings, labels, strict=True)]


def refuse_with(context: typer.Context, chosen: str, *names: str) -> None:
    """Raise UsageError if one of these parameters was typed beside ``chosen``, which ignores it.

    ``names`` are those of the command's function; ``chosen`` is what the user typed, such as ``--json``.
    """
    for given in _typed(context, names):
        raise UsageError(f"{given} has no effect with {chosen}: leave out one of them")


def refuse_without(context: typer.Context, needed: str, *names: str) -> None:
    """Raise UsageError if one of these parameters was typed without ``needed``, which alone heeds it."""
    for given in _typed(context, names):
        raise UsageError(f"{given} has no effect without {needed}: add {needed}, or leave out {given}")


def _typed(context: typer.Context, names: Collection[str]) -> Iterator[str]:
    """What was typed of these parameters: not their defaults, nor variables of the environment."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            switched_off = context.params[parameter.name] is False
            yield max(parameter.secondary_opts if switched_off else parameter.opts, key=len)


def parse_lengths(text: str) -> tuple[int, int]:
    """``"128"`` is (128, 128); ``"16:2048"`` is (16, 2048)."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a length: give a number such as 128, or a range 16:2048") from None


def format_lengths(lengths: tuple[int, int]) -> str:
    """The inverse of :func:`parse_lengths`."""
    low, high = lengths
    return str(low) if low == high else f"{low}:{high}"


def parse_steps(text: str | None) -> tuple[int | None, int | None] | None:
    """``"0:1000"`` is (0, 1000); ``"7000:"`` is (7000, None)."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        steps = int(first) if first else None, int(last) if last else None
    except ValueError:
        colon = ""
    if not colon:
        raise typer.BadParameter(f"{text!r} is not a range of steps: give first:last, such as 100:200, or 100:")
    return steps


def parse_window(text: str | None) -> tuple[int, int] | None:
    """``"100:120"`` is (100, 120): a range of steps with both ends."""
    steps = parse_steps(text)
    if steps is None:
        return None
    first, last = steps
    if first is None or last is None or not 0 <= first < last:
        raise typer.BadParameter(f"{text!r} is not a window of steps: give first:last, such as 100:120")
    return first, last
