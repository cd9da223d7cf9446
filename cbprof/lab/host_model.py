"""What the child process computes for the lab: no neural network, but arithmetic as long as one, on numpy alone.

It stands in for the model in both kinds of experiment. On a bare slot it churns the whole input. For the reference
engine it is a language model whose next token is a hash of the request's history, read through the block table from a
cache of token ids: any stale input, lost carry-over or misplaced block changes it.
"""

from __future__ import annotations

import numpy as np

from cbprof.engine.devices.host.wire import Setup
from cbprof.engine.model.spec import ModelFacts
from cbprof.lab.arithmetic import Ints, churn

VOCAB_SIZE = 1009

WIDTH = 1 << 17
"""Integers that are worked on at once: numpy is busy with them for tens of microseconds and needs no lock meanwhile."""

BARE_ROUNDS = 450
"""Rounds of a bare computation: some 10 ms, a hundred times what a command takes from one process to the other."""

STEP_ROUNDS = 120
"""Rounds of a step of the engine: some 3 ms."""


class LabModel:
    """A :class:`~cbprof.engine.devices.host.child.DeviceModel` of integers."""

    def __init__(self, setup: Setup) -> None:
        layout = setup.layout
        self.facts = _facts(setup)
        self.inputs = [np.zeros(layout.input_size, np.int32) for _ in range(setup.slots)]
        self.outputs = [np.zeros(layout.output_size, np.int32) for _ in range(setup.slots)]
        self._layout = layout
        self._cache = np.zeros((setup.num_blocks + 1) * layout.block_size, np.int32)  # and the scratch block
        self._nothing = np.zeros(WIDTH, np.int32)
        self._weights = np.random.default_rng(0).integers(1 << 30, size=layout.max_context, dtype=np.int64)

    def step(self, slot: int, bucket: int) -> None:
        """Run the batch in a slot; without any token (``bucket`` 0), churn its whole input."""
        state = np.zeros(WIDTH, np.int32)
        if bucket:
            rows = self._digest(slot, bucket, state)
            churn(state, self._nothing, STEP_ROUNDS)
            self.outputs[slot][:rows] = (state[:rows] & 0x7FFFFFFF) % VOCAB_SIZE
        else:
            churn(state, self.inputs[slot], BARE_ROUNDS)
            np.bitwise_xor.reduce(state.reshape(self._layout.output_size, -1), axis=1, out=self.outputs[slot])

    def _digest(self, slot: int, bucket: int, state: Ints) -> int:
        """Write the batch's tokens into the cache, and a digest of each row's history into ``state``; how many rows."""
        fields = {
            name: self.inputs[slot][field.offset : field.stop].reshape(field.shape)
            for name, field in self._layout.fields.items()
        }
        carry = fields["carry"][:bucket]
        ids = np.where(carry >= 0, self.outputs[slot - 1][carry], fields["input_ids"][:bucket])
        self._cache[fields["write_at"][:bucket]] = ids

        rows = int(np.count_nonzero(fields["context"]))
        context, table = fields["context"][:rows], fields["block_table"][:rows]
        history = self._cache.reshape(-1, self._layout.block_size)[table].reshape(rows, -1)
        is_history = np.arange(self._layout.max_context) < context[:, None]
        digest = np.where(is_history, (history + 1) * self._weights, 0).sum(axis=1)
        state[:rows] = (digest % (1 << 31)).astype(np.int32) ^ fields["noise_key"][:rows]
        return rows


def lab_model(setup: Setup) -> LabModel:
    """The factory that the child is told to use."""
    return LabModel(setup)


def _facts(setup: Setup) -> ModelFacts:
    """The facts of a model that has neither layers nor weights."""
    return ModelFacts(
        name=setup.spec.name,
        architecture="integer hash",
        dtype=setup.spec.dtype,
        vocab_size=VOCAB_SIZE,
        layers=0,
        heads=0,
        kv_heads=0,
        head_dim=0,
        max_context=setup.layout.max_context,
        parameters=0,
        step_weight_bytes=0,
        kv_bytes_per_token=4,
        stop_tokens=(),
    )
