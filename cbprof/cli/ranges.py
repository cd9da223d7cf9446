"""Ranges on the command line."""

from __future__ import annotations

import typer


def parse_lengths(text: str) -> tuple[int, int]:
    """``"128"`` is (128, 128); ``"16:2048"`` is (16, 2048)."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a length: give a number such as 128, or a range 16:2048") from None


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
