"""The batches and requests of vLLM in our terms. An object that it does not know costs the facts of that batch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from cbprof.record.tracer import Tracer
from cbprof.trace import BatchPhase

_STRANGE = (AttributeError, TypeError, ValueError, KeyError, IndexError)


class Batch(NamedTuple):
    """The facts of a scheduled batch; the arguments of :meth:`Tracer.batch`."""

    tokens: int
    requests: int
    context: int
    phase: BatchPhase


def tokens_of(output: Any) -> int:
    """The tokens of a ``SchedulerOutput``; 0 for an empty one, and for what is none."""
    tokens = getattr(output, "total_num_scheduled_tokens", 0)
    return tokens if isinstance(tokens, int) else 0


def facts(output: Any) -> Batch | None:
    """The facts of a ``SchedulerOutput``; None if it is something else."""
    try:
        tokens = output.total_num_scheduled_tokens
        requests = len(output.num_scheduled_tokens)
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        context = tokens + sum(cached.num_computed_tokens) + sum(request.num_computed_tokens for request in new)
        prefills = len(new) + sum(1 for produced in cached.num_output_tokens if not produced)
    except _STRANGE:
        return None
    phase: BatchPhase = "prefill" if prefills >= requests else "mixed" if prefills else "decode"
    return Batch(tokens, requests, context, phase)


def rare_facts(output: Any) -> Mapping[str, int]:
    """What few batches have: requests that were preempted for it, prompt tokens found in the prefix cache, tokens that
    were drafted for it."""
    found: dict[str, int] = {}
    try:
        if preempted := getattr(output, "preempted_req_ids", None):
            found["preempted"] = len(preempted)
        if cached := sum(request.num_computed_tokens for request in output.scheduled_new_reqs):
            found["prefix_cached_tokens"] = cached
        if drafts := getattr(output, "scheduled_spec_decode_tokens", None):
            found["draft_tokens"] = sum(map(len, drafts.values()))
    except _STRANGE:
        pass
    return found


class Requests:
    """The life of the requests: when they came, and which got a token. Theirs have names, ours have numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = count()

    def arrived(self, tracer: Tracer, request: Any) -> None:
        """The scheduler got this ``Request``."""
        name = getattr(request, "request_id", None)
        if isinstance(name, str) and name not in self._numbers:
            self._numbers[name] = number = next(self._next)
            tracer.arrived(number)

    def updated(self, tracer: Tracer, outputs: Any) -> int:
        """``update_from_output`` gave these, by client. How many tokens more than one a request got: the accepted
        drafts."""
        numbers = self._numbers
        accepted = 0
        try:
            for client in outputs.values():
                got = [output for output in client.outputs if output.new_token_ids]
                over = [output.request_id for output in client.outputs if output.finish_reason is not None]
                many = [output for output in got if len(output.new_token_ids) > 1]
                produced = [numbers.get(output.request_id, -1) for output in got]
                finished = [numbers.pop(name, -1) for name in over]
                if many:
                    more = [numbers.get(each.request_id, -1) for each in many for _ in each.new_token_ids[1:]]
                    accepted += len(more)
                    tracer.tokens(produced, [])
                    produced = more
                if produced or finished:
                    tracer.tokens(produced, finished)
        except _STRANGE:
            return 0
        return accepted
