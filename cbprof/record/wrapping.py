"""Recording around calls: of a user's function, for good, and of methods of other people's classes, for a while."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from cbprof.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[..., Any]


def with_context(function: Callable[P, R], context: Callable[[], AbstractContextManager[object]]) -> Callable[P, R]:
    """``function``, with a fresh ``context()`` open during each call; of an ``async`` one, until it returns.

    Raises :class:`UsageError` for a generator: its call returns before any of it has run.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{function.__name__} is a generator, and a call of it runs nothing yet: mark phases inside it instead"
        )
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            with context():
                return await function(*args, **kwargs)

        return cast("Callable[P, R]", awaited)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with context():
            return function(*args, **kwargs)

    return called


class Wrappings:
    """The replacements in force."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Method, Method]] = []

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> bool:
        """Replace the callable ``name`` that ``owner``, a class or module, itself defines. False if it defines none."""
        original = vars(owner).get(name)
        if not callable(original):
            return False
        replacement = wraps(original)(wrapper(original))
        setattr(owner, name, replacement)
        self._replaced.append((owner, name, original, replacement))
        return True

    def undo(self) -> None:
        """Put back the originals, the last first, except where somebody else has replaced ours since then."""
        while self._replaced:
            owner, name, original, replacement = self._replaced.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
