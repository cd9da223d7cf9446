"""What ``cbprof record`` tells the program that it starts: one environment variable, which its children inherit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple, Self

VARIABLE = "CBPROF_RECORD"


class Settings(NamedTuple):
    """``out``: the trace, an absolute path. ``folder``: where the processes of the run say how they are doing.

    ``steps`` (first, last): record only these. ``seconds``: stop after as long, from the first span on. ``on_signal``:
    begin off; SIGUSR2 toggles in any case. ``cupti``: torch.profiler as well, while it is recorded.
    ``metrics``: the statuses hold the figures of the recording under way.
    """

    out: str
    folder: str
    steps: tuple[int, int] | None = None
    seconds: float | None = None
    on_signal: bool = False
    cupti: bool = False
    metrics: bool = False

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self._asdict())}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """None in a process that is not recorded."""
        text = environment.get(VARIABLE)
        if not text:
            return None
        found = json.loads(text)
        steps = found.pop("steps")
        return cls(**found, steps=None if steps is None else (steps[0], steps[1]))
