"""A model of a few integers for the child of the host device: numpy only, so that a child starts in a moment.

``step`` does what its bucket says. ``GATED`` blocks until the test writes a byte to the gate (a named pipe), which
makes "the device is late" a fact instead of a matter of luck.
"""

import os
from dataclasses import dataclass

import numpy as np

from cbprof.engine.devices.host.wire import Setup
from cbprof.errors import UsageError

ECHO, GATED, FAIL, REFUSE, DIE = range(5)


@dataclass(frozen=True)
class ToySpec:
    gate: str


@dataclass(frozen=True)
class ToyFacts:
    pid: int
    blocks: int


class ToyModel:
    def __init__(self, setup: Setup) -> None:
        self.facts = ToyFacts(os.getpid(), setup.num_blocks)
        self.inputs = [np.zeros(setup.layout.input_size, np.int32) for _ in range(setup.slots)]
        self.outputs = [np.zeros(setup.layout.output_size, np.int32) for _ in range(setup.slots)]
        self._gate = os.open(setup.spec.gate, os.O_RDONLY)

    def step(self, slot: int, bucket: int) -> None:
        if bucket == GATED:
            os.read(self._gate, 1)
        elif bucket == FAIL:
            raise ValueError("the toy\n  is broken")
        elif bucket == REFUSE:
            raise UsageError("the toy refuses; ask for something else")
        elif bucket == DIE:
            os._exit(7)
        self.outputs[slot][:] = self.inputs[slot][: len(self.outputs[slot])] + 1


def refuse_to_load(setup: Setup) -> ToyModel:
    raise UsageError("no such toy; choose another")


def fail_to_load(setup: Setup) -> ToyModel:
    raise MemoryError("toys\nare large")


def exit_while_loading(setup: Setup) -> ToyModel:
    os._exit(9)
