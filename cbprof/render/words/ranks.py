"""What a fleet of traces says, as a paragraph."""

from __future__ import annotations

from collections.abc import Iterator

from cbprof.analysis.accounting.blame import CAUSES
from cbprof.analysis.ranks.clocks import Skew
from cbprof.analysis.ranks.report import LONGEST_OWN_TIME, Job, Part, RanksReport, SlowRank
from cbprof.analysis.ranks.waits import StepWaits
from cbprof.names import plain
from cbprof.numbers import count, duration, percent, ratio

MOST_NAMED = 3
MOST_REASONS = 2
A_UNIT = {"step": "a step", "run": "in all"}
IN_WORDS = {cause.label: words for cause, words in CAUSES.items()}


def sentences(report: RanksReport) -> list[str]:
    """One thing a sentence, the most important first. Parts of one recording are not compared with each other."""
    if report.parts and report.n_ranks == 1:
        return [_files(report)]
    return [_files(report), *_idle(report), *_slow(report), *_waits(report), *_slowest(report), *_skew(report)]


def whose(report: RanksReport, row: int) -> str:
    """A rank by its number, with its folder where another has the same, or by its file where both lie in one folder."""
    found = report.rows[row]
    alike = [other for other in report.rows if other.rank.rank == found.rank.rank]
    if len(alike) == 1 or found.rank.rank is None:
        return plain(found.label)
    folder = found.file.folder
    if sum(other.file.folder == folder for other in alike) > 1:
        return plain(found.file_label)
    return plain(f"{found.label} of {folder.rpartition('/')[2]}")


def _files(report: RanksReport) -> str:
    ranks, files, failed = report.n_ranks, report.n_files, len(report.failed)
    text = f"{_number(ranks, 'rank')} in {_number(files, 'file')}"
    return f"{text}; {count(failed)} of the files could not be used." if failed else f"{text}."


def _idle(report: RanksReport) -> Iterator[str]:
    known = [index for index, row in enumerate(report.rows) if row.rank.idle_pct is not None]
    if report.idle is None or not known:
        return
    if len(known) == 1:
        yield f"Its GPU waited {percent(report.idle.median)} of the time."
        return
    most = max(known, key=lambda index: report.rows[index].rank.idle_pct or 0)
    yield (
        f"The GPU waited {percent(report.idle.median)} of the time on the median rank, from "
        f"{percent(report.idle.min)} to {percent(report.idle.max)} ({whose(report, most)})."
    )


def _slow(report: RanksReport) -> Iterator[str]:
    if report.median_row is None or len(report.rows) < 2:
        return
    if not report.slow:
        yield f"No rank is more than 2 % slower than the median rank, {_own(report, report.median_row)}."
        return
    for index, slow in enumerate(report.slow[:MOST_NAMED]):
        begin = "The slowest is " if not index else "Next comes "
        median = f", which takes {_own(report, report.median_row)}" if not index else ""
        yield (
            f"{begin}{whose(report, slow.row)} with {duration(round(slow.own_ns))} {A_UNIT[report.unit]}, "
            f"{ratio(slow.times)} the median rank{median}: {reasons(report, slow)}."
        )


def reasons(report: RanksReport, slow: SlowRank) -> str:
    """What a slow rank does more of than the median rank."""
    median_ns = slow.own_ns / slow.times
    more = slow.own_ns - median_ns
    said = ", ".join(_reason(part) for part in slow.why[:MOST_REASONS])
    return f"of the {duration(round(more))} more, {said}" if said else f"{duration(round(more))} more in small parts"


def _reason(part: Part) -> str:
    return f"{duration(round(part.more_ns))} are {in_words(part.label)}"


def in_words(label: str) -> str:
    """A part of a rank's time, or a cause of its idle time, as all text calls it."""
    return plain(IN_WORDS.get(label, label))


def _own(report: RanksReport, row: int) -> str:
    return f"{duration(round(report.own_ns(row)))} {A_UNIT[report.unit]}"


def _waits(report: RanksReport) -> Iterator[str]:
    """Of the job that one rank costs most."""
    found = [(job, job.waits) for job in report.jobs if job.waits is not None and job.waits.last]
    if not found:
        return
    job, waits = max(found, key=lambda each: each[1].last[0].alone_ns)
    last = waits.last[0]
    share = 100 * last.alone_ns / max(1, waits.paced_ns)
    if share < 1:
        return
    name = whose(report, job.rows[last.row])
    together = "the others wait for it" if job.skew else "if the ranks stepped together, they would wait for it"
    yield (
        f"In {count(last.n_slowest)} of {count(waits.n_groups)} {_steps(waits)} {name} is the slowest: {together}, "
        f"{duration(last.alone_ns)} in all ({percent(share)})."
    )


def _steps(waits: StepWaits) -> str:
    return "steps" if waits.steps_each == 1 else f"groups of {waits.steps_each} steps"


def _slowest(report: RanksReport) -> Iterator[str]:
    """What the collectives tell; own times have their sentence already."""
    if report.slowest is not None and report.slowest.why != LONGEST_OWN_TIME:
        yield f"The others wait for {whose(report, report.slowest.row)}: {report.slowest.why}."


def _skew(report: RanksReport) -> Iterator[str]:
    """Of the job whose ranks are furthest apart."""
    found = [(job, job.skew) for job in report.jobs if job.skew is not None]
    if not found:
        return
    job, skew = max(found, key=lambda each: each[1].start_p50_ns)
    latest = max(range(len(skew.late_ns)), key=skew.late_ns.__getitem__)
    yield (
        f"Ranks start a collective {duration(skew.start_p50_ns)} apart in the median, {duration(skew.start_max_ns)} at "
        f"most; {whose(report, job.rows[latest])} comes {duration(round(skew.late_ns[latest]))} after the first on "
        f"average. {clocks(report, job, skew)}"
    )


def clocks(report: RanksReport, job: Job, skew: Skew) -> str:
    """How the clocks differ, and how good the correction is."""
    furthest = max(range(len(skew.clocks)), key=lambda index: abs(skew.clocks[index].offset_ns))
    drift = skew.most_drift
    by = f"By the ends of {_number(skew.n_matched, 'collective')}"
    if skew.most_offset_ns <= skew.end_p50_ns and not drift:
        return f"{by}, the clocks agree; the ends are {_ends(skew)}."
    drifted = (
        "their drift cannot be told" if drift is None else f"drift by up to {duration(round(drift * 1e9))} a second"
    )
    return (
        f"{by}, clocks differ by up to "
        f"{duration(round(skew.most_offset_ns))} ({whose(report, job.rows[furthest])}) and {drifted}; "
        f"with that taken off, the ends are {_ends(skew)}."
    )


def _ends(skew: Skew) -> str:
    return f"{duration(skew.end_p50_ns)} apart in the median, {duration(skew.end_max_ns)} at most"


def job_name(job: Job) -> str:
    return plain(job.folder.rpartition("/")[2] or job.folder or ".")


def _number(value: int, what: str) -> str:
    return f"{count(value)} {what}" if value == 1 else f"{count(value)} {what}s"
