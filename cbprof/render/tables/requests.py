"""What a terminal, a pull request and a CSV file show of requests, slowest first, or of the steps of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbprof.analysis.requests.lives import IDLE, PARTS, Life, TokenGap
from cbprof.names import plain
from cbprof.numbers import count, counted, duration, percent
from cbprof.render.sheet import Sheet

IN_WORDS = {
    "not_arrived": "the engine to look",
    "queue": "a seat",
    "preempted": "a seat, preempted",
    "other_batch": "a batch without it",
    "prefill": "its prefill",
    "decode": "its decode",
    "others_prefill": "others' prefill",
    "delivery": "delivery",
}

CSV_COLUMNS = (
    *("request", "arrive_ns", "start_ns", "end_ns", "end_to_end_ns", "finished", "tokens", "steps", "ttft_ns"),
    *("itl_p50_ns", "itl_p99_ns", "itl_max_ns", "preemptions", "recomputed_tokens", "dropped_tokens"),
)


def part_in_words(part: str) -> str:
    """``others' prefill``; of an idle device ``GPU idle: schedule``."""
    return f"GPU idle: {plain(part.removeprefix(IDLE))}" if part.startswith(IDLE) else IN_WORDS.get(part, plain(part))


def latency_sheet(lives: Sequence[Life]) -> Sheet:
    """How long each request took, to its first token and between two."""
    rows = [
        (
            str(life.request),
            duration(life.end_to_end_ns),
            duration(life.ttft_ns),
            *(
                duration(life.itl_percentile_ns(percentile)) if len(life.itl_ns) else "-"
                for percentile in (50, 99, 100)
            ),
        )
        for life in lives
    ]
    return Sheet(("request", "in all", "TTFT", "ITL p50", "p99", "max"), rows)


def waits_sheet(lives: Sequence[Life]) -> Sheet:
    """How long each waited for a seat, what preemptions and late ends cost, and what took most of its time."""
    rows = [
        (
            str(life.request),
            duration(life.parts_ns["queue"] if life.parts_ns else None),
            count(life.preemptions),
            count(life.recomputed),
            count(life.dropped),
            _largest(life),
        )
        for life in lives
    ]
    return Sheet(("request", "queue", "preempted", "recomputed", "dropped", "most of it"), rows)


def parts_sheet(life: Life) -> Sheet:
    """Where the time of one request went."""
    parts = life.parts_ns or {}
    whole = life.end_to_end_ns or 1
    rows = [
        (part_in_words(part), duration(ns), percent(100 * ns / whole))
        for part, ns in sorted(parts.items(), key=lambda item: -item[1])
        if ns
    ]
    return Sheet((f"request {life.request}: {duration(life.end_to_end_ns)}", "time", "of it"), rows)


def tokens_sheet(life: Life) -> Sheet:
    """One row a token: when it came, and what passed the time since the one before it."""
    begin = life.start_ns or 0
    rows = [
        (
            f"{index}{f', step {gap.step}' if gap.step >= 0 else ''}: {_delays(gap)}",
            duration(gap.end_ns - begin),
            duration(gap.length_ns),
        )
        for index, gap in enumerate(life.gaps)
    ]
    return Sheet((f"{counted(life.tokens, 'token')}, and what delayed each", "at", "since the last"), rows)


def _delays(gap: TokenGap) -> str:
    """The three largest parts, and the prefill of others beside it."""
    parts = sorted(((ns, part) for part, ns in gap.parts_ns.items() if ns), reverse=True)[:3]
    said = ", ".join(f"{part_in_words(part)} {duration(ns)}" for ns, part in parts)
    return f"{said}; {counted(gap.prefill_tokens, 'token')} of prefill" if gap.prefill_tokens else said


def _largest(life: Life) -> str:
    parts, whole = life.parts_ns, life.end_to_end_ns
    if not parts or not whole:
        return "-"
    part = max(parts, key=lambda each: parts[each])
    return f"{part_in_words(part)} {percent(100 * parts[part] / whole)}"


def csv_rows(lives: Sequence[Life]) -> tuple[tuple[str, ...], Iterator[list[object]]]:
    """The header and the rows: the facts of each request, then a column for each part of its time."""
    idle = sorted({part for life in lives for part in life.parts_ns or () if part not in PARTS})
    parts = (*PARTS, *idle)

    def rows() -> Iterator[list[object]]:
        for life in lives:
            facts = life.to_json()
            told = life.parts_ns
            cells = [facts[name] for name in CSV_COLUMNS] + [
                None if told is None else told.get(each, 0) for each in parts
            ]
            yield ["" if cell is None else cell for cell in cells]

    return (*CSV_COLUMNS, *(f"{part}_ns" for part in parts)), rows()
