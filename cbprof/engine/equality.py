"""Which parts of two runs of the same requests must be equal, whatever the loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cbprof.engine.workload import Workload

Compared = Literal["tokens", "lengths", "nothing"]
_BY_STRENGTH: tuple[Compared, ...] = ("tokens", "lengths", "nothing")

_EXACT = ("float32", "float64")
"""Numbers so fine that the other rows of a batch, which change how sums are rounded, hardly ever change a token."""


@dataclass(frozen=True)
class Equality:
    """What can be compared, and why no more than that; ``why`` is empty for the tokens themselves."""

    compared: Compared
    why: str = ""


def what_must_be_equal(dtype: str, workload: Workload, *, preempted: bool) -> Equality:
    """Of two runs of ``workload``: the tokens, or how many there are, or nothing.

    Requests that are all there at the start, end by length and fit the cache ride in the same batches in every loop:
    then all tokens are equal on every device. Otherwise batches differ from run to run, and tokens are compared where
    rounding cannot tell batches apart. A stop token that is or is not sampled changes lengths, too. ``workload`` has
    the end tokens of the checkpoint among its own.
    """
    causes = [
        cause
        for cause, is_there in (
            ("arrivals", workload.rate > 0),
            ("stop tokens", bool(workload.stop_tokens)),
            ("preemption", preempted),
        )
        if is_there
    ]
    if not causes or dtype in _EXACT:
        return Equality("tokens")
    why = f"{' and '.join(causes)} made batches differ, and {dtype} is rounded by batch"
    return Equality("nothing" if workload.stop_tokens else "lengths", why)


def weakest(equalities: Iterable[Equality]) -> Equality:
    """What can be compared among several runs."""
    return max(equalities, key=lambda each: _BY_STRENGTH.index(each.compared))


def differs(equality: Equality, tokens: Sequence[dict[int, list[int]]]) -> bool:
    """Whether runs, each with the tokens of every request, differ in what must be equal."""
    if equality.compared == "nothing":
        return False
    if equality.compared == "tokens":
        return any(each != tokens[0] for each in tokens)
    lengths = [{request: len(got) for request, got in each.items()} for each in tokens]
    return any(each != lengths[0] for each in lengths)
