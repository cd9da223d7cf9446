"""Recording around calls: of a user's function, for good, and of methods of other people's classes, for a while."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from cbprof.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[..., Any]

Hook = Callable[..., Generator[tuple[Any, ...] | None, Any, None]]
"""What is recorded around a call, as a generator function of the call's arguments. Its one ``yield`` stands for the
call: it gives the result, or raises what the call raised, and may hand on other positional arguments. A hook that
returns before it has nothing to record around this call."""

Failed = Callable[[str, Exception], None]
"""Is told the name of a method whose hook failed, and why."""


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


def guarded(hook: Hook, failed: Failed) -> Callable[[Method], Method]:
    """A wrapper that runs ``hook`` around each call of a method, and never stands in the method's way.

    Whatever fails in the hook costs what it records and nothing else: from its first exception on it is out of use,
    ``failed`` is told once, and the method goes on as if there had never been a hook. What the method itself raises is
    raised, and what it returns is returned.
    """

    def wrapper(original: Method) -> Method:
        armed = True

        def disarm(error: Exception) -> None:
            nonlocal armed
            if armed:
                armed = False
                failed(getattr(original, "__qualname__", repr(original)), error)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not armed:
                return original(*args, **kwargs)
            try:
                body = hook(*args, **kwargs)
                given = next(body) or args
            except StopIteration:
                return original(*args, **kwargs)
            except Exception as error:
                disarm(error)
                return original(*args, **kwargs)
            try:
                result = original(*given, **kwargs)
            except BaseException as error:
                if (own := _own_error(body, error)) is not None:
                    disarm(own)
                raise
            try:
                body.send(result)
            except StopIteration:
                return result
            except Exception as error:
                disarm(error)
            else:
                disarm(RuntimeError("the hook yields twice"))
            return result

        return call

    return wrapper


def standing_aside(wrapper: Callable[[Method], Method], failed: Failed) -> Callable[[Method], Method]:
    """``wrapper``, so that it can never stand in the way of the method it wraps: as :func:`guarded`, for a wrapper that
    calls the method itself. It costs a microsecond more."""

    def outer(original: Method) -> Method:
        armed = True

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal armed
            if not armed:
                return original(*args, **kwargs)
            results: list[Any] = []
            errors: list[BaseException] = []

            def followed(*args: Any, **kwargs: Any) -> Any:
                try:
                    result = original(*args, **kwargs)
                except BaseException as error:
                    errors.append(error)
                    raise
                results.append(result)
                return result

            try:
                return wrapper(followed)(*args, **kwargs)
            except Exception as error:
                if errors and error is errors[-1]:
                    raise
                if armed:
                    armed = False
                    failed(getattr(original, "__qualname__", repr(original)), error)
            if errors:
                raise errors[-1]
            return results[-1] if results else original(*args, **kwargs)

        return call

    return outer


def _own_error(body: Generator[Any, Any, None], error: BaseException) -> Exception | None:
    """Raise in the hook what its method raised. What else comes out of it is the hook's own failure."""
    try:
        body.throw(error)
    except StopIteration:
        return None
    except BaseException as raised:
        theirs = raised is error or raised.__cause__ is error  # Python wraps a StopIteration
        return raised if isinstance(raised, Exception) and not theirs else None
    return RuntimeError("the hook yields twice")


class Wrappings:
    """The replacements in force."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Method, Method]] = []

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> bool:
        """Replace the method ``name`` of a class, or the function of a module, that ``owner`` itself defines.

        False if it defines none: something else of that name, such as a property or a static method, stays as it is.
        """
        original = vars(owner).get(name)
        if not (inspect.isfunction(original) if isinstance(owner, type) else callable(original)):
            return False
        original = cast("Method", original)
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
