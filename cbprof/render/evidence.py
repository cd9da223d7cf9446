"""What the spans of a device are evidence of, and how steps are known, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cbprof.analysis.accounting.steps import StepSource
from cbprof.meta import Evidence
from cbprof.numbers import percent

DEVICE_PROCESS = "host process"
"""What the reference engine without a GPU calls its device. In other engines the host computes by itself."""

_IN_SHORT: Mapping[Evidence, str] = MappingProxyType(
    {
        "cuda_events": "event spans on the stream; holes inside a span are not seen",
        "cupti": "a profiler's records of kernels and copies",
        "emulated": "no GPU, {player} plays the device",
        "predicted": "computed from another trace, not measured",
        "unknown": "unknown means: the file does not say how it was measured",
    }
)

_IN_A_SENTENCE: Mapping[Evidence, str] = MappingProxyType(
    {
        "cuda_events": "GPU activity is the time between CUDA events on a stream; holes inside such a span are not "
        "seen.",
        "cupti": "GPU activity is the union of a profiler's records of the device; where no record says what the "
        "host did, it is not known to work or to be idle.",
        "emulated": "No GPU: {player} plays the device; active means that it was running the operation.",
        "predicted": "Predicted from another trace, not measured.",
        "unknown": "How GPU activity was measured is unknown: the file does not say.",
    }
)


def in_short(evidence: Evidence, device: str | None, *, ran: bool = True) -> str:
    """For a row of a table. ``device``: what the trace calls it, if anything; ``ran``: it has a span in the trace."""
    if evidence == "cupti" and not ran:
        return "records of the host alone; no work of a device is in the trace"
    return _IN_SHORT[evidence].format(player=_player(device))


def in_a_sentence(evidence: Evidence, device: str | None) -> str:
    """For a caption. ``device`` as above."""
    return _IN_A_SENTENCE[evidence].format(player=_player(device))


def step_source_in_short(source: StepSource) -> str:
    """For a row of a table, such as ``graph launches, 98.3 % of the steps alike``."""
    if source.confidence is None:
        return source.name
    return f"{source.name}, {percent(100 * source.confidence)} of the steps alike"


def _player(device: str | None) -> str:
    return "a process of its own" if device == DEVICE_PROCESS else "the host"
