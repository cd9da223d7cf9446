"""``cbprof predict``: what would async batching, or a change, bring?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbprof.api import Recording
from cbprof.cli.reading import NoCache, read
from cbprof.cli.writing import check_output, say, show


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
    slots: Annotated[
        int | None, typer.Option(help="Batches in flight: 1 is the sync order. [default: 2, async batching]")
    ] = None,
    steps_per_sync: Annotated[
        int | None, typer.Option(help="The multi-step order instead: the host looks at tokens every so many steps.")
    ] = None,
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

        cbprof predict trace.json --steps-per-sync 4

        cbprof predict trace.json --gpu-speed 2 --scale schedule=0.5 --drop update -o predicted.json
    """
    if output is not None:
        check_output(output, inputs=[trace])
    scales = dict(_parse_scale(text) for text in scale or ())
    recording = read(trace, no_cache=no_cache)
    prediction = recording.predict(
        slots=slots, steps_per_sync=steps_per_sync, gpu_speed=gpu_speed, scale=scales, drop=drop or ()
    )
    if output is not None:
        Recording(prediction.full.trace, sources=recording.files).save(output, flows=False)
    show(prediction, json=json)
    if output is not None and not json:
        say(f"wrote {output}", f"see it: cbprof plot {trace} {output}")


def _parse_scale(text: str) -> tuple[str, float]:
    """``"schedule=0.5"`` is ("schedule", 0.5)."""
    name, _, factor = text.rpartition("=")
    try:
        if name:
            return name, float(factor)
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is not a phase and a factor: give for example --scale schedule=0.5")
