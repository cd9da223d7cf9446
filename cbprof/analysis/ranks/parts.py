"""Files that hold parts of one recording, such as those of SGLang for prefill and for decode: they are not two ranks.

::

    EXTEND    |== prefill ==================|. . . . . . . . . . . .
    DECODE    |dec|. . . . nothing of it . . . . . . . . . . |decode|

Each shows as idle what the other one recorded. What the two together say is bounded by what is kept of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cbprof.analysis.ranks.rank import Rank
from cbprof.numbers import percent


def parts_of_recordings(files: Sequence[tuple[str, Rank]]) -> list[list[int]]:
    """The places of those that are parts of one recording; ``files``: the folder and the rank of each.

    One process is profiled once at a time: what has its id of a recording, its rank and its device is of that process.
    """
    found: dict[tuple[object, ...], list[int]] = {}
    for place, (folder, rank) in enumerate(files):
        if rank.recording is not None:
            found.setdefault((folder, rank.recording, rank.rank, rank.device), []).append(place)
    return [places for places in found.values() if len(places) > 1]


def warnings_of_parts(names: Mapping[int, str], ranks: Sequence[Rank], parts: Sequence[list[int]]) -> Iterator[str]:
    """What to know of them. ``names``: of the files."""
    for places in parts:
        listed = ", ".join(names[place] for place in places[:-1])
        idle = most_idle_pct([ranks[place] for place in places])
        bound = "" if idle is None else f"; together they say that the GPU was idle {percent(idle)} at most"
        yield (
            f"{listed} and {names[places[-1]]} are parts of one recording of one process, not ranks: each shows as "
            f"idle what another one recorded, and its figures do not hold{bound}"
        )


def most_idle_pct(parts: Sequence[Rank]) -> float | None:
    """The largest share of the time from the first start to the last end in which the GPU can have been idle.

    It was active at least as long as in any part; of two parts at least as long as both together, less the time in
    which both recorded. None where the work of a part is unknown.
    """
    active = [None if rank.idle_ns is None else rank.window_ns - rank.idle_ns for rank in parts]
    known = [ns for ns in active if ns is not None]
    start, end = min(rank.start_ns for rank in parts), max(rank.end_ns for rank in parts)
    if len(known) < len(parts) or end <= start:
        return None
    twice = sum(rank.window_ns for rank in parts) - (end - start)  # recorded by two, if no time was recorded by none
    least = max(*known, sum(known) - max(0, twice)) if len(parts) == 2 else max(known)
    return 100 * (end - start - least) / (end - start)
