"""What a terminal shows of the orderings of a run: one line a rule, then what was found."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from cbprof.analysis.hazards.clock_errors import ErrorBound
from cbprof.analysis.hazards.hazards import Hazards, RuleResult, Verdict
from cbprof.names import plain
from cbprof.numbers import count, duration, signed_duration
from cbprof.render.panel import LABEL, framed
from cbprof.render.sheet import Sheet
from cbprof.render.theme import STATES

STYLES = {
    Verdict.FOUND: f"bold {STATES['cpu_only'].color}",
    Verdict.POSSIBLE: "yellow",
    Verdict.NOT_SEEN: STATES["overlap"].color,
    Verdict.NOT_CHECKED: LABEL,
}


def hazard_table(hazards: Hazards, *, title: str | None = None, mode: str | None = None) -> RenderableType:
    """All rules with their verdicts; below, examples and missing orderings. ``title``: the file."""
    table = rules_sheet(hazards).to_rich({verdict.value: style for verdict, style in STYLES.items()})
    return framed(Group(table, "", *_details(hazards)), [f"hazards of {title}" if title else "hazards", mode], None)


def rules_sheet(hazards: Hazards) -> Sheet:
    """One row a rule: how many pairs were compared, and what was found."""
    rows = [
        (
            result.rule.text,
            count(result.n_pairs) if result.n_pairs else "",
            "" if result.worst_margin_ns is None else signed_duration(result.worst_margin_ns),
            result.verdict.value,
        )
        for result in hazards.rules
    ]
    return Sheet(("what must come first", "pairs", "least margin", "hazard"), rows)


def _details(hazards: Hazards) -> Iterator[Text]:
    for result in hazards.rules:
        if result.missing is not None:
            yield Text.assemble(("missing  ", STYLES[Verdict.FOUND]), plain(result.missing.text))
        if result.examples:
            yield _examples(result)
    if any(result.verdict is Verdict.NOT_CHECKED for result in hazards.rules):
        why = f"the trace has no {', no '.join(hazards.lacking)}" if hazards.lacking else "too few steps"
        yield Text.assemble(("not checked  ", LABEL), why)
    yield _error("host against device", hazards.bounds.clock, "device spans start before their launch")
    yield _error("device against device", hazards.bounds.device, "spans overlap on one stream")
    if not hazards.edges_known:
        yield Text.assemble(
            ("waits  ", LABEL), "the file does not say which events were waited for: a race that timing hid is not seen"
        )


def _examples(result: RuleResult) -> Text:
    """Which pairs are out of order, and by how much."""
    beyond = f"{count(result.n_found)} beyond the clock error" if result.n_found else ""
    within = (
        f"{count(result.n_possible)} within it"
        if result.n_found
        else f"{count(result.n_possible)} within the clock error"
    )
    counted = ", ".join(part for part in (beyond, within if result.n_possible else "") if part)
    steps = "; ".join(
        f"step {example.earlier_step}"
        + (f" to {example.later_step}" if example.later_step != example.earlier_step else "")
        + f" by {duration(example.late_ns)}"
        for example in result.examples
    )
    style = STYLES[Verdict.FOUND if result.n_found else Verdict.POSSIBLE]
    return Text.assemble((f"{result.rule.text}: ", style), f"{counted}: {steps}")


def _error(which: str, bound: ErrorBound, impossible: str) -> Text:
    if bound.stated:
        source = "as the file states"
    elif bound.impossible:
        source = f"derived: {count(bound.impossible)} {impossible}"
    else:
        source = f"not stated, and no {impossible}"
    return Text.assemble(("clock error  ", LABEL), f"{which} {duration(bound.ns)}, {source}")
