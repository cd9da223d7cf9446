"""What to serve: how many requests, how long, when they arrive, how they are sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cbprof.engine.config import check_seed
from cbprof.errors import UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    from cbprof.engine.request import Request


@dataclass(frozen=True)
class Workload:
    """A reproducible set of requests.

    Lengths are (lowest, highest), drawn evenly. ``rate`` is requests a second, arriving at random (Poisson); 0 means
    that all are there at the start. ``ignore_end``: a checkpoint's own end tokens end nothing. ``temperature`` 0 is
    greedy. Prompts are random token ids. Of ``world_size`` ranks that serve it together, ``rank`` has the requests
    whose number leaves ``rank`` when divided by ``world_size``.
    """

    requests: int = 8
    prompt_len: tuple[int, int] = (32, 32)
    new_tokens: tuple[int, int] = (512, 512)
    rate: float = 0.0
    temperature: float = 1.0
    stop_tokens: tuple[int, ...] = ()
    ignore_end: bool = False
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise UsageError(f"{self.requests} requests: there must be at least 1")
        for name in ("prompt_len", "new_tokens"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise UsageError(f"{name.replace('_', ' ')} is {low}:{high}: it must be at least 1, lowest first")
        for name in ("rate", "temperature"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise UsageError(f"{name} is {value}: it must be a number, at least 0")
        check_seed(self.seed)
        if self.requests < self.world_size:
            raise UsageError(
                f"{counted(self.requests, 'request')} for {self.world_size} ranks: give --requests at least as many"
            )

    @property
    def longest(self) -> int:
        """The most tokens that any request can have, prompt included."""
        return self.prompt_len[1] + self.new_tokens[1]

    @property
    def most_tokens(self) -> int:
        """The most tokens that can be generated, on this rank."""
        return len(range(self.rank, self.requests, self.world_size)) * self.new_tokens[1]

    def ended_by(self, end_tokens: tuple[int, ...]) -> Workload:
        """The workload for a model that ends with these tokens."""
        added = tuple(token for token in end_tokens if token not in self.stop_tokens)
        return self if self.ignore_end else replace(self, stop_tokens=self.stop_tokens + added)

    def make_requests(self, vocab_size: int) -> list[Request]:
        """Fresh requests, those of this rank; the same ones on every call."""
        import numpy as np

        from cbprof.engine.request import Request

        rng = np.random.default_rng(self.seed)
        prompt_lens = rng.integers(*self.prompt_len, size=self.requests, endpoint=True)
        new_tokens = rng.integers(*self.new_tokens, size=self.requests, endpoint=True)
        gaps = rng.exponential(1e9 / self.rate, size=self.requests) if self.rate else np.zeros(self.requests)
        arrivals = np.cumsum(gaps).astype(np.int64)
        requests = [
            Request(
                id=index,
                prompt=rng.integers(vocab_size, size=prompt_lens[index], dtype=np.int32),
                max_new_tokens=int(new_tokens[index]),
                temperature=self.temperature,
                stop_tokens=self.stop_tokens,
                arrival_ns=int(arrivals[index]),
            )
            for index in range(self.requests)
        ]
        return requests[self.rank :: self.world_size]
