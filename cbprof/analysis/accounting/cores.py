"""Whether the host had the cores that its work asked for: time in the kernel's run queue, which no phase names."""

from __future__ import annotations

from collections.abc import Iterator

from cbprof.meta import Meta
from cbprof.numbers import duration, percent

MUCH_WAITING_PCT = 10
"""A thread that stands in line for less of its work than this is not short of cores."""


def short_of_cores(meta: Meta) -> Iterator[str]:
    """A sentence where the busiest thread of the host often stood in line for a core; none where nobody counted it."""
    busiest = max(meta.threads, key=lambda thread: thread.run_ns + thread.wait_ns, default=None)
    if busiest is None:
        return
    work_ns = max(1, busiest.run_ns + busiest.wait_ns)
    share = 100 * busiest.wait_ns / work_ns
    if share >= MUCH_WAITING_PCT:
        yield (
            f"the host was short of cores: its thread {busiest.lane} was runnable but not running "
            f"{percent(share)} of its work ({duration(busiest.wait_ns)})"
        )
