"""``cbprof predict``: what would async batching, or a change, bring?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbprof.cli.reading import NoCache, read_trace
from cbprof.cli.writing import check_output

if TYPE_CHECKING:
    from cbprof.analysis.predict.predict import Prediction
    from cbprof.trace import Trace


def predict(
    trace: Annotated[Path, typer.Argument(help="A trace.json or trace.json.gz, of a sync or an async run.")],
    gpu_speed: Annotated[float, typer.Option(help="What if the GPU computed this many times as fast?")] = 1.0,
    scale: Annotated[
        list[str] | None,
        typer.Option(help="What if a host phase took this share of its time? Can be repeated.", metavar="PHASE=FACTOR"),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="What if a host phase were gone? Can be repeated.", metavar="PHASE")
    ] = None,
    slots: Annotated[int, typer.Option(help="Batches in flight: 2 is async batching, 1 the sync order.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the predicted trace, to plot or to report on.")
    ] = None,
    no_cache: NoCache = False,
) -> None:
    """Predict the async run from a sync trace, or what a change would bring to either.

    The measured durations are replayed in the order of the async loop. What-ifs compose. A phase takes what is nested
    in it along.

    Examples:

        cbprof predict trace.json

        cbprof predict trace.json --gpu-speed 2 --scale schedule=0.5 --drop update -o predicted.json
    """
    from cbprof.analysis.predict.predict import predict as predict_trace
    from cbprof.formats import save

    if output is not None:
        check_output(output, inputs=[trace])
    measured = read_trace(trace, no_cache=no_cache)
    prediction = predict_trace(
        measured,
        slots=slots,
        gpu_speed=gpu_speed,
        scale=dict(_parse_scale(text) for text in scale or ()),
        drop=drop or (),
    )
    if output is not None:
        save(prediction.trace, output)
    if json:
        from json import dumps

        typer.echo(dumps({"file": str(trace), **prediction.to_json()}, indent=1))
        return
    _print_table(measured, prediction, title=str(trace))
    if output is not None:
        typer.echo(f"wrote {output}\nsee it: cbprof plot {trace} {output}")


def _print_table(measured: Trace, prediction: Prediction, *, title: str) -> None:
    """The prediction, beside the one without its changes where it has any."""
    from rich.console import Console

    from cbprof.analysis.predict.predict import predict as predict_trace
    from cbprof.analysis.summary import summarize
    from cbprof.render.tables.predict import Case, predict_table

    name = "predicted async" if prediction.measured_mode != "async" else "replayed"
    if prediction.what_if.changes_nothing:
        cases = [(name, prediction)]
    else:
        cases = [(name, predict_trace(measured)), ("what if", prediction)]
    summarized = [Case(name, each, summarize(each.trace)) for name, each in cases]
    Console().print(predict_table(summarize(measured), summarized, title=title))


def _parse_scale(text: str) -> tuple[str, float]:
    """``"schedule=0.5"`` is ("schedule", 0.5)."""
    name, _, factor = text.rpartition("=")
    try:
        if name:
            return name, float(factor)
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is not a phase and a factor: give for example --scale schedule=0.5")
