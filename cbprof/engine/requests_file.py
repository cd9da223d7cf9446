"""Requests from a file: texts, or lengths and arrivals as they were once served.

===================  ================================================================================================
JSON lines           an object a line: ``prompt`` (text) or ``prompt_tokens`` (how many), and, if wanted,
                     ``new_tokens`` (how many) and ``arrival_s`` (seconds)
ShareGPT             one JSON list of ``{"conversations": [{"from": "human", "value": ..}, {"from": "gpt", ..}]}``: the
                     first question is the prompt, and the length of its answer the number of new tokens
Azure LLM trace      CSV with the columns ``TIMESTAMP``, ``ContextTokens`` and ``GeneratedTokens``
===================  ================================================================================================
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cbprof.engine.workload import Listed
from cbprof.errors import DataError

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class Wanted(NamedTuple):
    """A request as a file tells it; what it leaves open is None. ``place``: file and line, for errors."""

    place: str
    prompt: str | int
    answer: str | int | None = None
    arrival_ns: int = 0


def read_prompts(path: Path) -> list[Wanted]:
    """A prompt a line, or JSON lines. Raises :class:`DataError`, with the line, for what is neither."""
    lines = _lines(path)
    if lines[0][1].startswith("{"):
        return [_from_json(place, line) for place, line in lines]
    return [Wanted(place, line) for place, line in lines]


def read_requests(path: Path) -> list[Wanted]:
    """The requests of a file in any of the forms above, arrivals counted from the first.

    Raises :class:`DataError`, with file and line, for what is in none of them.
    """
    lines = _lines(path)
    first = lines[0][1]
    if first.startswith("["):
        return list(_from_sharegpt(path))
    if first.startswith("{"):
        wanted = [_from_json(place, line) for place, line in lines]
    elif set(AZURE) <= set(columns := next(csv.reader([first]))):
        wanted = [
            _from_azure(place, dict(zip(columns, next(csv.reader([line])), strict=False))) for place, line in lines[1:]
        ]
    else:
        raise DataError(
            f"{lines[0][0]}: is no request: give JSON lines, a ShareGPT list, or a CSV with {', '.join(AZURE)}"
        )
    if not wanted:
        raise DataError(f"{path}: holds no request below its header")
    begin_ns = min(each.arrival_ns for each in wanted)
    return [each._replace(arrival_ns=each.arrival_ns - begin_ns) for each in wanted]


def to_list(wanted: Iterable[Wanted], encode: Callable[[str], list[int]], new_tokens: int) -> tuple[Listed, ...]:
    """The requests as the engine serves them; ``encode`` makes tokens of a text, and is called for texts only.

    ``new_tokens``: for requests that leave it open. Raises :class:`DataError` for a prompt or an answer of no token.
    """
    listed = []
    for each in wanted:
        prompt = tuple(encode(each.prompt)) if isinstance(each.prompt, str) else each.prompt
        count = len(encode(each.answer)) if isinstance(each.answer, str) else each.answer
        count = new_tokens if count is None else count
        if not prompt or count < 1:
            raise DataError(f"{each.place}: a request needs at least 1 token of a prompt and 1 new token")
        listed.append(Listed(prompt, count, each.arrival_ns))
    return tuple(listed)


def _lines(path: Path) -> list[tuple[str, str]]:
    """The lines that are not empty, each with its place."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text; convert it, or give another file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the name") from None
    lines = [(f"{path}:{number}", line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: is empty; give a request a line")
    return lines


def _from_json(place: str, line: str) -> Wanted:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise DataError(f"{place}: is no JSON object; give one a line")
    prompt = fields.get("prompt", fields.get("prompt_tokens"))
    if "prompt" in fields and not isinstance(prompt, str):
        raise DataError(f'{place}: "prompt" is not text; give "prompt_tokens" for a length')
    if prompt is None:
        raise DataError(f'{place}: has no prompt; give "prompt" (text) or "prompt_tokens" (a number)')
    count = fields.get("new_tokens")
    return Wanted(
        place,
        prompt if isinstance(prompt, str) else _count(place, "prompt_tokens", prompt),
        None if count is None else _count(place, "new_tokens", count),
        _arrival_ns(place, fields.get("arrival_s", 0)),
    )


def _from_sharegpt(path: Path) -> Iterator[Wanted]:
    try:
        conversations = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}") from None
    found = 0
    for number, conversation in enumerate(conversations):
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        for asked, answered in zip(turns or [], (turns or [])[1:], strict=False):
            if (question := _said(asked, "human", "user")) and (answer := _said(answered, "gpt", "assistant")):
                found += 1
                yield Wanted(f"{path}: conversation {number}", question, answer)
                break
    if not found:
        raise DataError(f'{path}: holds no conversation in which "human" is answered by "gpt", as ShareGPT has them')


def _said(turn: Any, *speakers: str) -> str | None:
    value = turn.get("value") if isinstance(turn, dict) and turn.get("from") in speakers else None
    return value if isinstance(value, str) else None


def _from_azure(place: str, row: dict[str, str]) -> Wanted:
    if missing := [name for name in AZURE if not row.get(name)]:
        raise DataError(f"{place}: has no {missing[0]}")
    seconds, _, fraction = row["TIMESTAMP"].partition(".")
    digits = fraction.partition("+")[0].rstrip("Zz")
    try:
        since = datetime.fromisoformat(seconds).replace(tzinfo=None) - datetime(1970, 1, 1)
        arrival_ns = int(since.total_seconds()) * 1_000_000_000 + int(digits[:9].ljust(9, "0"))
        context, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    except (ValueError, TypeError, OverflowError):
        raise DataError(
            f"{place}: is not a time and two numbers: {', '.join(row[name][:40] for name in AZURE)}"
        ) from None
    return Wanted(place, _count(place, AZURE[1], context), _count(place, AZURE[2], generated), arrival_ns)


def _count(place: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise DataError(f"{place}: {name} is {str(value)[:40]}: it must be a whole number, at least 1")
    return value


def _arrival_ns(place: str, value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < 1e9
        or not math.isfinite(value)
    ):
        raise DataError(f"{place}: arrival_s is {str(value)[:40]}: it must be seconds, at least 0")
    return round(value * 1e9)
