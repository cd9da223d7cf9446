"""What a terminal shows of a prediction: the measured run, the predicted one, and one with changes, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cbprof.analysis.predict.predict import Prediction
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.analysis.summary import Summary
from cbprof.names import plain
from cbprof.numbers import count, counted, duration, percent, rate, ratio
from cbprof.render.evidence import in_short
from cbprof.render.panel import HEADER, LABEL, framed
from cbprof.render.sheet import Sheet
from cbprof.render.tables.statebar import StateBar, StateLegend
from cbprof.render.tables.summary import TOP_CAUSES, causes_in_words, for_the_host

ORDERS = {"sync": "sync", "async": "async", "multi": "multi-step"}
"""The loops in words."""


class Case(NamedTuple):
    """A prediction, the summary of its trace, and what its column is called."""

    name: str
    prediction: Prediction
    summary: Summary


def predict_table(measured: Summary, cases: Sequence[Case], *, title: str | None = None) -> RenderableType:
    """The figures of at least one prediction beside those of the run that it was made from. ``title``: its file."""
    last = cases[-1]
    parts: list[RenderableType] = [figures_sheet(measured, cases).to_rich(), "", _bars(measured, cases)]
    if last.summary.most_idle is not None:
        parts += [StateLegend(last.summary.most_idle.known_states), ""]
    if (still := _still_waited_for(last)) is not None:
        parts += [still.to_rich(), ""]
    return framed(
        Group(*parts, *_conclusions(measured, last)),
        [f"prediction from {title}" if title else "prediction", measured.device_name],
        measured.engine,
    )


def figures_sheet(measured: Summary, cases: Sequence[Case]) -> Sheet:
    """The figures of the predictions beside those of the run that they were made from."""
    first = cases[0].prediction
    rows = (
        ("wall time", duration(first.measured_wall_ns), *(duration(c.prediction.predicted_wall_ns) for c in cases)),
        ("  likely", "", *(" to ".join(map(duration, c.prediction.interval_ns)) for c in cases)),
        (
            "time per step",
            duration(first.measured_wall_ns / max(1, first.n_steps)),
            *(duration(c.prediction.predicted_wall_ns / max(1, c.prediction.predicted_steps)) for c in cases),
        ),
        ("tokens/s", rate(measured.tokens_per_s), *(rate(c.summary.tokens_per_s) for c in cases)),
        ("GPU idle", percent(first.measured_idle_pct), *(percent(c.prediction.predicted_idle_pct) for c in cases)),
        *_without_captures(measured, cases),
        *_latency(measured, cases),
        ("as fast", "", *(ratio(c.prediction.speedup) for c in cases)),
        ("steps held up by the host", "", *(count(len(c.prediction.host_bound_steps)) for c in cases)),
    )
    columns = ("", f"measured {first.measured_mode or 'run'}", *(case.name for case in cases))
    return Sheet(columns, rows, "", cases[-1].prediction.notes)


def _without_captures(measured: Summary, cases: Sequence[Case]) -> Iterator[tuple[str, ...]]:
    """Idle time apart from what graph captures cost, where there are any."""
    if any(case.prediction.one_off_ns for case in cases):
        devices = [summary.most_idle for summary in (measured, *(case.summary for case in cases))]
        idle = (None if device is None else device.idle_pct_excl_one_off for device in devices)
        yield ("  captures apart", *(percent(share) for share in idle))


def _latency(measured: Summary, cases: Sequence[Case]) -> Iterator[tuple[str, ...]]:
    """What a loop that is faster may cost its users, and one that looks at the tokens less often does."""
    found = [summary.latency for summary in (measured, *(case.summary for case in cases))]
    if all(each is not None and each.ttft_p99_ns is not None for each in found):
        yield ("first token, p99", *(duration(each.ttft_p99_ns) for each in found if each is not None))
    if all(each is not None and each.itl_p99_ns is not None for each in found):
        yield ("token to token, p99", *(duration(each.itl_p99_ns) for each in found if each is not None))


def _bars(measured: Summary, cases: Sequence[Case]) -> Table:
    """The states on one scale of time. The legend below gives the shares of the last."""
    named = [("measured", measured), *((case.name, case.summary) for case in cases)]
    longest = max(*(summary.wall_ns for _, summary in named), 1)
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    for name, summary in named:
        if summary.most_idle is not None:
            grid.add_row(Text(name, LABEL), StateBar(summary.most_idle.known_states, summary.wall_ns / longest))
    return grid


def _still_waited_for(case: Case) -> Sheet | None:
    device, steps = case.summary.most_idle, max(1, case.prediction.predicted_steps)
    if device is None or not device.gaps.total_ns:
        return None
    rows = [
        (name, duration(ns / steps), duration(ns), percent(100 * ns / device.gaps.total_ns))
        for name, ns in list(causes_in_words(device.causes).items())[:TOP_CAUSES]
    ]
    return Sheet(("the GPU would still wait for", "per step", "in all", "of idle"), rows)


def _conclusions(measured: Summary, case: Case) -> list[Text]:
    prediction = case.prediction
    lines = []
    if not prediction.what_if.changes_nothing:
        lines.append(Text.assemble(("what if      ", LABEL), plain(in_words(prediction.what_if))))
    whom = for_the_host(measured.most_idle) if measured.most_idle is not None else ""
    bound = prediction.measured_wall_ns / prediction.ceiling_ns if prediction.ceiling_ns else None
    lines.append(
        Text.assemble(
            ("ceiling      ", LABEL),
            f"{duration(prediction.ceiling_ns)} if the GPU never waited{whom}: ",
            (f"at most {ratio(bound)} as fast", HEADER),
        )
    )
    if prediction.one_off_ns:
        lines.append(
            Text.assemble(
                ("once         ", LABEL), f"{duration(prediction.one_off_ns)} of graph captures, for every slot"
            )
        )
    if (doubt := prediction.doubts[0]).high_ns or doubt.low_ns:
        low, high = (percent(100 * abs(side) / prediction.predicted_wall_ns) for side in doubt[1:])
        sides = f"{high} either way" if low == high else f"up to {low} less, {high} more"
        lines.append(Text.assemble(("least sure   ", LABEL), f"{doubt.what}: {sides}"))
    lines.append(
        Text.assemble(
            ("predicted by ", LABEL), f"replaying the measured durations in the {ORDERS[prediction.what_if.mode]} order"
        )
    )
    lines.append(Text.assemble(("measured by  ", LABEL), plain(in_short(measured.evidence, measured.device_name))))
    return lines + [Text(f"! {plain(note)}", style="yellow") for note in (*measured.warnings, *prediction.notes)]


def in_words(what_if: WhatIf) -> str:
    """The changes, such as ``a GPU 2x as fast, schedule x 0.5, without detokenize``."""
    parts = []
    if what_if.together:
        parts.append(f"a look at the tokens every {counted(what_if.slots, 'step')}")
    elif what_if.slots != WhatIf().slots:
        parts.append(counted(what_if.slots, "slot"))
    if what_if.gpu_speed != 1:
        parts.append(f"a GPU {what_if.gpu_speed:g}x as fast")
    parts += [f"{name} x {factor:g}" for name, factor in what_if.scale.items() if factor]
    parts += [f"without {name}" for name, factor in what_if.scale.items() if not factor]
    return ", ".join(parts) or "nothing changed but the order"
