"""What to serve: how many requests, how long, when they arrive, how they are sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from cbprof.engine.config import check_seed
from cbprof.errors import UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    from numpy.random import Generator

    from cbprof.engine.request import Request


class Listed(NamedTuple):
    """A request that is not drawn: its tokens, or how many there are, random ones then; and when it arrives."""

    prompt: int | tuple[int, ...]
    new_tokens: int
    arrival_ns: int = 0

    @property
    def prompt_len(self) -> int:
        return self.prompt if isinstance(self.prompt, int) else len(self.prompt)


@dataclass(frozen=True)
class Workload:
    """A reproducible set of requests.

    Lengths are (lowest, highest), drawn evenly. ``rate`` is requests a second, arriving at random (Poisson); 0 means
    that all are there at the start. ``ignore_end``: a checkpoint's own end tokens end nothing. ``temperature`` 0 is
    greedy. Prompts are random token ids. Of ``world_size`` ranks that serve it together, ``rank`` has the requests
    whose number leaves ``rank`` when divided by ``world_size``. ``listed`` requests are served as they are; the number,
    lengths and rate are theirs then, whatever is given.
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
    listed: tuple[Listed, ...] = ()

    def __post_init__(self) -> None:
        if self.listed:
            self._take_over_listed()
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

    def _take_over_listed(self) -> None:
        """Say of the listed requests what is said of drawn ones."""
        prompts, new = [each.prompt_len for each in self.listed], [each.new_tokens for each in self.listed]
        last_ns = max(each.arrival_ns for each in self.listed)
        said = {
            "requests": len(self.listed),
            "prompt_len": (min(prompts), max(prompts)),
            "new_tokens": (min(new), max(new)),
            "rate": len(self.listed) / (last_ns / 1e9) if last_ns else 0.0,
        }
        for name, value in said.items():
            object.__setattr__(self, name, value)

    def facts(self) -> dict[str, Any]:
        """What a trace says of its workload; of listed requests a digest, by which two lists are told apart."""
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "listed"}
        return {**said, "listed": sha256(repr(self.listed).encode()).hexdigest()[:16]} if self.listed else said

    @property
    def longest(self) -> int:
        """The most tokens that any request can have, prompt included."""
        if self.listed:
            return max(each.prompt_len + each.new_tokens for each in self.listed)
        return self.prompt_len[1] + self.new_tokens[1]

    @property
    def most_tokens(self) -> int:
        """The most tokens that can be generated, on this rank."""
        if self.listed:
            return sum(each.new_tokens for each in self.listed[self.rank :: self.world_size])
        return len(range(self.rank, self.requests, self.world_size)) * self.new_tokens[1]

    def ended_by(self, end_tokens: tuple[int, ...]) -> Workload:
        """The workload for a model that ends with these tokens."""
        added = tuple(token for token in end_tokens if token not in self.stop_tokens)
        return self if self.ignore_end else replace(self, stop_tokens=self.stop_tokens + added)

    def make_requests(self, vocab_size: int) -> list[Request]:
        """Fresh requests, those of this rank; the same ones on every call.

        Raises :class:`UsageError` for a listed token that the model does not have.
        """
        import numpy as np

        from cbprof.engine.request import Request

        rng = np.random.default_rng(self.seed)
        if self.listed:
            return [self._listed_request(index, vocab_size, rng) for index in range(self.requests)][
                self.rank :: self.world_size
            ]
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

    def _listed_request(self, index: int, vocab_size: int, rng: Generator) -> Request:
        from cbprof.engine.request import Request

        prompt, new_tokens, arrival_ns = self.listed[index]
        tokens = rng.integers(vocab_size, size=prompt).tolist() if isinstance(prompt, int) else prompt
        if max(tokens) >= vocab_size:
            raise UsageError(f"request {index} has the token {max(tokens)}, but the model has {vocab_size} tokens")
        return Request(
            id=index,
            prompt=tokens,
            max_new_tokens=new_tokens,
            temperature=self.temperature,
            stop_tokens=self.stop_tokens,
            arrival_ns=arrival_ns,
        )
