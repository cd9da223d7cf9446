"""One run of a report, with all that is known of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cbprof.analysis.hazards.hazards import Hazards, find_hazards
from cbprof.analysis.predict.predict import Prediction, predict
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import CbprofError
from cbprof.render.panel import plain
from cbprof.render.picture.scene import Scene, scene
from cbprof.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """``name``: of the file. ``prediction``: the async order, None where the run is async already or cannot tell.

    ``hazards``: None where the trace has nothing that could be out of order.
    """

    name: str
    scene: Scene
    summary: Summary
    prediction: Prediction | None
    hazards: Hazards | None

    @property
    def trace(self) -> Trace:
        return self.scene.trace

    @property
    def label(self) -> str:
        """What to call the run where there are several."""
        return plain(self.trace.mode or self.name)


def reported(trace: Trace, name: str) -> Reported:
    """Analyse a trace for a report."""
    prediction, hazards = None, None
    if trace.devices and not trace.is_profile:
        if trace.mode != "async" and trace.evidence != "predicted":
            with suppress(CbprofError):  # spans that do not say which step they belong to, for example
                prediction = predict(trace)
        with suppress(CbprofError):
            hazards = find_hazards(trace)
    return Reported(plain(Path(name).name), scene(trace), summarize(trace), prediction, hazards)
