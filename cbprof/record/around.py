"""A function with a context around each of its calls, be it ``async`` or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from cbprof.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


def around(function: Callable[P, R], context: Callable[[], AbstractContextManager[object]]) -> Callable[P, R]:
    """``function``, each call of which stands in a fresh ``context()``; of an ``async`` one, until it returns.

    Raises :class:`UsageError` for a generator, whose call runs none of it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{function.__name__} is a generator, whose call runs none of it: mark phases inside instead")
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
