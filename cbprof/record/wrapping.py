"""Methods of other people's classes, replaced while we watch, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Method = Callable[..., Any]


class Wrappings:
    """The replacements in force. What is not there cannot be replaced, and is left to the caller to tell."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Method, Method]] = []

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> bool:
        """Replace the attribute ``name`` that ``owner`` (a class or a module) itself defines. False if it has none."""
        original = vars(owner).get(name)
        if not callable(original):
            return False
        replacement = wraps(original)(wrapper(original))
        setattr(owner, name, replacement)
        self._replaced.append((owner, name, original, replacement))
        return True

    def undo(self) -> None:
        """Put back what was replaced, the last first. What somebody else has replaced since then stays theirs."""
        while self._replaced:
            owner, name, original, replacement = self._replaced.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
