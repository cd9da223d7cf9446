"""The batches and requests of vLLM in our terms. An object that it does not know costs the facts of that batch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from cbprof.record.recorder import Recorder
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
    """The life of the requests: when they came, and which got a token. Theirs have names, ours have numbers.

    Everything is called on the drain's thread, in the order in which it happened.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = count()
        self.accepted_drafts = 0
        """Tokens beyond the one that each request gets in a step."""

    def arrived(self, recorder: Recorder, name: str, time_ns: int) -> None:
        """The scheduler got this request."""
        if name not in self._numbers:
            recorder.write_arrival(self._number(name), time_ns)

    def _number(self, name: str) -> int:
        """The number of a request; a new one for one that came before the recording began."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = next(self._next)
        return number

    def updated(self, recorder: Recorder, outputs: Any, time_ns: int) -> None:
        """``update_from_output`` gave these at ``time_ns``, by client."""
        try:
            for client in outputs.values():
                got = [output for output in client.outputs if output.new_token_ids]
                over = [output.request_id for output in client.outputs if output.finish_reason is not None]
                produced = [self._number(output.request_id) for output in got]
                accepted = [self._number(each.request_id) for each in got for _ in each.new_token_ids[1:]]
                finished = [self._number(name) for name in over]
                recorder.write_tokens(time_ns, produced, accepted, finished)
                self.accepted_drafts += len(accepted)
                for name in over:
                    del self._numbers[name]
        except _STRANGE:
            return
