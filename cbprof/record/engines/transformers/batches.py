"""The batches and requests of transformers in our terms. An object that it does not know costs the facts of that batch,
never the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from cbprof.record.tracer import Tracer
from cbprof.trace import BatchPhase

_STRANGE = (AttributeError, TypeError, IndexError)


class Batch(NamedTuple):
    """The facts of a scheduled batch; the arguments of :meth:`Tracer.batch`."""

    tokens: int
    requests: int
    context: int
    phase: BatchPhase


def facts(futures: Sequence[Any]) -> Batch | None:
    """The facts of a list of ``FutureRequestState``, before the batch is prepared; None if they are something else."""
    try:
        tokens = context = decodes = 0
        for future in futures:
            state, length = future.state, future.query_length
            start = state.position_offset
            tokens += length
            context += start + length
            decodes += start >= len(state.initial_tokens)
    except _STRANGE:
        return None
    phase: BatchPhase = "decode" if decodes == len(futures) else "mixed" if decodes else "prefill"
    return Batch(tokens, len(futures), context, phase)


class Requests:
    """The life of the requests: when they came, and which got a token. Theirs have names, ours have numbers."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._numbers: dict[str, int] = {}
        self._next = count()

    def seen(self, futures: Sequence[Any]) -> None:
        """These ``FutureRequestState`` are in a batch; those that are new came when their state was made."""
        for future in futures:
            name = future.state.request_id
            if name not in self._numbers:
                self._numbers[name] = next(self._next)
                created_s = getattr(future.state, "created_time", None)  # of time.perf_counter
                self._tracer.arrived(self._numbers[name], None if created_s is None else round(created_s * 1e9))

    def producing(self, output: Any) -> list[Any]:
        """The states that get a token out of ``output``, the result of ``prepare_batch_update``.

        To be asked before they are updated: a request that ended in the batch before still rides in this one.
        """
        try:
            return [future.state for future in output[0] if future.has_new_token and not _is_over(future.state)]
        except _STRANGE:
            return []

    def updated(self, states: Sequence[Any]) -> None:
        """These states have got their token."""
        if not states or not self._tracer.on:
            return
        numbers = [self._numbers.get(state.request_id, -1) for state in states]
        over = [state.request_id for state in states if _is_over(state)]
        self._tracer.tokens(numbers, [self._numbers.pop(name, -1) for name in over])


def _is_over(state: Any) -> bool:
    """Finished, failed, or set back to the queue: no token of its batch counts."""
    return state.status.name in {"FINISHED", "FAILED", "PENDING"}
