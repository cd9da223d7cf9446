"""A request: its tokens, and how far the engine has got with it. No tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cbprof.engine.devices.base import IntArray


class Request:
    """One prompt and what has been generated for it.

    ::

        ids       p p p p p p g g g ?          p: prompt  g: generated  ?: pending, sampled but not yet read back
        known     |<---- known --->|
        length    |<----- length ---->|        known + pending
        computed  |<- computed ->|             its keys and values are in the cache, or a queued batch puts them there

    The async loop is ahead of the tokens it has seen: ``pending`` counts them, with two slots at most 1 when a batch is
    scheduled and 2 once it is. ``last_step`` and ``last_row``: where the last of them was sampled.
    """

    __slots__ = (
        "arrival_ns", "blocks", "computed", "finished", "id", "ids", "known", "last_row", "last_step", "max_length",
        "pending", "prompt_length", "seat", "stop_tokens", "temperature",
    )  # fmt: skip

    def __init__(
        self,
        id: int,  # noqa: A002
        prompt: Sequence[int] | IntArray,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        stop_tokens: Sequence[int] = (),
        arrival_ns: int = 0,
    ) -> None:
        self.id = id
        self.prompt_length = len(prompt)
        self.max_length = len(prompt) + max_new_tokens
        self.ids = np.zeros(self.max_length, dtype=np.int32)
        self.ids[: len(prompt)] = prompt
        self.temperature = temperature
        self.stop_tokens = frozenset(stop_tokens)
        self.arrival_ns = arrival_ns
        self.known = len(prompt)
        self.pending = 0
        self.computed = 0
        self.blocks: list[int] = []
        self.seat = -1
        self.last_row = -1
        self.last_step = -1
        self.finished = False

    @property
    def length(self) -> int:
        """Tokens of the request, the pending one included."""
        return self.known + self.pending

    @property
    def remaining(self) -> int:
        """Tokens that a step could work on: the rest of the prompt, or the one token just generated."""
        return self.length - self.computed

    def can_ride(self, step: int) -> bool:
        """Whether the batch of ``step`` can go on with it: a token that nobody has seen comes from the batch before."""
        return not self.pending or self.last_step == step - 1

    @property
    def last_token_queued(self) -> bool:
        """True once the batch that yields the last allowed token has been queued: known without its value."""
        return self.length == self.max_length

    @property
    def generated(self) -> list[int]:
        """The tokens generated so far, as known to the host."""
        return [int(token) for token in self.ids[self.prompt_length : self.known]]

    def append(self, token: int) -> None:
        """Read back one token, and finish with it if it is a stop token or the last one allowed."""
        self.ids[self.known] = token
        self.known += 1
        self.finished = token in self.stop_tokens or self.known == self.max_length

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.computed}/{self.length} of {self.max_length}, pending={self.pending})"
