"""One step's work: which tokens of which requests. No tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from cbprof.engine.request import Request


class Row(NamedTuple):
    """Tokens ``start`` to ``start + tokens`` of one request.

    ``samples``: the last of them is the request's last token, so that its logits give the next one.
    ``carry``: the row of the previous batch whose sampled token is this row's input, or -1 if the host knows it.
    ``seat``: the request's row in the block table, as of now.
    """

    request: Request
    start: int
    tokens: int
    samples: bool
    carry: int
    seat: int

    @property
    def is_decode(self) -> bool:
        """Whether it works on a token that was generated, rather than on a prompt, or on one computed again."""
        return self.tokens == 1 and self.start >= self.request.prompt_length


@dataclass(frozen=True)
class Batch:
    """Requests packed one behind the other, ragged: each brings as many tokens as it has to offer."""

    step: int
    rows: tuple[Row, ...]

    @cached_property
    def num_tokens(self) -> int:
        return sum(row.tokens for row in self.rows)

    @property
    def num_requests(self) -> int:
        return len(self.rows)

    @cached_property
    def context(self) -> int:
        """Sum of the context lengths of all rows, this batch's tokens included."""
        return sum(row.start + row.tokens for row in self.rows)

    @cached_property
    def phase(self) -> Literal["prefill", "decode", "mixed"]:
        decodes = sum(row.is_decode for row in self.rows)
        return "decode" if decodes == len(self.rows) else "mixed" if decodes else "prefill"
