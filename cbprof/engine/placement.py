"""Which of several processes this one is, as launchers such as torchrun say in the environment.

Each rank runs a replica on a device of its own, serves its share of the requests and writes a trace of its own.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cbprof.errors import UsageError
from cbprof.files import with_infix

RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"


@dataclass(frozen=True)
class Placement:
    """Rank ``rank`` of ``world_size``; on its machine it is ``local_rank`` of ``local_world_size``, where known.

    By default, a process alone.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size or self.local_rank < 0:
            raise UsageError(
                f"{RANK}={self.rank}, {LOCAL_RANK}={self.local_rank}, {WORLD_SIZE}={self.world_size} make no sense: "
                f"a rank is less than {WORLD_SIZE}; start with torchrun, or unset them"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The placement that :data:`RANK`, :data:`LOCAL_RANK` and :data:`WORLD_SIZE` state.

        A process is alone if one of them is not set. Some launchers mark that by rank -1 in a world of 1.
        Raises :class:`UsageError` for values that contradict each other.
        """
        values = [environment.get(name, "") for name in (RANK, LOCAL_RANK, WORLD_SIZE)]
        if not all(values):
            return cls()
        try:
            rank, local_rank, world_size = map(int, values)
            local = environment.get(LOCAL_WORLD_SIZE)
            local_world_size = int(local) if local else None
        except ValueError:
            raise UsageError(
                f"{RANK}, {LOCAL_RANK} and {WORLD_SIZE} must be numbers, not {', '.join(values)}; unset them, or start "
                "with torchrun"
            ) from None
        if world_size == 1 and -1 in (rank, local_rank) and max(rank, local_rank) <= 0:
            return cls()
        return cls(rank, local_rank, world_size, local_world_size)

    @classmethod
    def or_alone(cls, environment: Mapping[str, str]) -> Self:
        """:meth:`from_environment` for a recorder, which must not stop its program: it warns instead of raising, and
        records as a process alone."""
        try:
            return cls.from_environment(environment)
        except UsageError as error:
            # Always of this line, so that it is shown once, however often and from wherever we look.
            warnings.warn(f"recorded as a process alone: {error}", RuntimeWarning, stacklevel=1)
            return cls()

    @property
    def facts(self) -> dict[str, int]:
        """See :func:`rank_facts`."""
        return rank_facts(self.rank, self.world_size)

    def path(self, path: Path) -> Path:
        """The file of this rank: ``trace.rank00003.json.gz`` for ``trace.json.gz``; of a process alone, ``path``.

        A rank that stands in the name already is replaced.
        """
        if self.world_size == 1:
            return path
        alone = path.with_name(re.sub(r"\.rank\d{5}(?=\.|$)", "", path.name))
        return with_infix(alone, f"rank{self.rank:05d}")

    def take_cores(self) -> None:
        """Keep this process and its children on their share of the machine's cores, if each rank can have one.

        For ranks whose devices are processes: each keeps a core for its device, and all would pick the same one.
        """
        if not hasattr(os, "sched_setaffinity") or not self.local_world_size:
            return
        cores = sorted(os.sched_getaffinity(0))
        share = len(cores) // self.local_world_size
        if share and self.local_rank < self.local_world_size:
            os.sched_setaffinity(0, cores[self.local_rank * share : (self.local_rank + 1) * share])


def rank_facts(rank: int, world_size: int) -> dict[str, int]:
    """The metadata of a rank's trace: its rank and the number of ranks; empty for a process alone."""
    return {"rank": rank, "world_size": world_size} if world_size > 1 else {}
