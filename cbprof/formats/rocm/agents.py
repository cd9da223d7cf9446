"""The agents of ROCm: which of them are GPUs, and by which number each goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbprof.formats.records.rows import Findings
from cbprof.trace import Int64


class Agent(NamedTuple):
    """A CPU or a GPU. ``number``: among the GPUs that its process sees. ``place``: the machine, and the number of the
    agent there, which is the same in all processes.
    """

    is_gpu: bool
    number: int
    place: tuple[int, int]
    model: str


Agents = Mapping[int, Agent]
"""By the number that records have for an agent."""


def device_numbers(agents: Agents, used: Iterable[int], found: Findings) -> dict[int, int]:
    """The device of each agent that worked: its number among the GPUs, unless two GPUs go by one; then a free one."""
    gpus: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for key in used:
        gpus[agents[key].number].add(agents[key].place)
    if all(len(places) == 1 for places in gpus.values()):
        return {key: agents[key].number for key in used}
    found.warnings.append("the processes number the GPUs differently: devices go by their order on the machines")
    order = sorted({place for places in gpus.values() for place in places})
    return {key: order.index(agents[key].place) for key in used}


def models(agents: Agents, devices: Mapping[int, int]) -> dict[str, str]:
    """The models of the GPUs that worked, by their devices."""
    named = {device: agents[key].model for key, device in devices.items() if agents[key].model}
    return {str(device): named[device] for device in sorted(named)}


def are_gpus(agents: Agents, keys: Int64) -> npt.NDArray[np.bool_]:
    """Which of these keys are those of a GPU."""
    return np.isin(keys, [key for key, agent in agents.items() if agent.is_gpu])
