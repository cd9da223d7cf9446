"""A slot: the buffers of one batch in flight, pinned on the host and private on the device, and its events.

Sync needs one. Async needs two: while batch N runs from one, batch N+1 is prepared in the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cbprof.engine.batch import Batch
from cbprof.engine.blocks import BlockManager
from cbprof.engine.devices.base import Device, Event, IntArray, Stream
from cbprof.engine.hooks import Hooks
from cbprof.engine.layout import PLACEHOLDER
from cbprof.engine.noise import position_keys, request_keys


class Slot:
    """The inputs of one batch, on their way to the device, and its output, on the way back.

    ``inputs_ready``   the inputs are on the device: compute may read them
    ``outputs_ready``  the output is computed: the copy back may read it
    ``done``           the output is on the host: the host may read it, and rewrite the inputs
    """

    def __init__(self, index: int, device: Device, blocks: BlockManager, seed: int) -> None:
        self.index = index
        self._device = device
        self._blocks = blocks
        self._seed = seed
        buffers = device.slots[index]
        self.output: IntArray = buffers.output
        cut = {name: buffers.inputs[f.offset : f.stop].reshape(f.shape) for name, f in device.layout.fields.items()}
        self._input_ids, self._carry, self._positions = cut["input_ids"], cut["carry"], cut["positions"]
        self._write_at, self._block_table = cut["write_at"], cut["block_table"]
        self._query_start, self._context, self._sample_at = cut["query_start"], cut["context"], cut["sample_at"]
        self._noise_key, self._temperature = cut["noise_key"], cut["temperature"].view(np.float32)
        self._seated = np.full(device.layout.max_requests, -1, np.int32)
        self._seat_keys = np.zeros(device.layout.max_requests, np.uint32)
        self._scratch = blocks.num_blocks * blocks.block_size
        self._bucket = 0
        self.inputs_ready = device.event("inputs_ready")
        self.outputs_ready = device.event("outputs_ready")
        self.done = device.event("done")

    def prepare(self, batch: Batch) -> None:
        """Write a batch into the pinned host buffer, as :mod:`cbprof.engine.layout` says.

        Vectorised over tokens; the only Python loops are over rows. Tokens beyond the batch, up to the bucket, write
        their keys and values to the scratch block behind the cache.
        """
        rows, tokens = len(batch.rows), batch.num_tokens
        riders, starts, counts, _, carries, seats = zip(*batch.rows, strict=True)
        request_ids = [request.id for request in riders]
        first_ids = [request.ids.item(start) for request, start in zip(riders, starts, strict=True)]
        start, count, carry, seat, request, first_id = np.array(
            (starts, counts, carries, seats, request_ids, first_ids), np.int32
        )
        self._bucket = bucket = next(size for size in self._device.buckets if size >= tokens)

        ends = np.cumsum(count, dtype=np.int32)
        begins = ends - count
        self._query_start[0] = 0
        self._query_start[1 : rows + 1] = ends
        self._query_start[rows + 1 :] = tokens
        self._context[:rows] = start + count
        self._context[rows:] = 0
        self._sample_at[:rows] = ends - 1
        self._sample_at[rows:] = 0
        self._noise_key[:rows] = position_keys(self._request_keys(seat, request), start + count)
        self._temperature[:rows] = [request.temperature for request in riders]
        np.take(self._blocks.tables, seat, axis=0, out=self._block_table[:rows])

        row = np.repeat(np.arange(rows, dtype=np.int32), count)
        position = np.arange(tokens, dtype=np.int32) - np.repeat(begins - start, count)
        size = self._blocks.block_size
        self._positions[:tokens] = position
        self._positions[tokens:bucket] = 0
        self._write_at[:tokens] = self._block_table[row, position // size] * size + position % size
        self._write_at[tokens:bucket] = self._scratch

        # A row that carries brings one token, and only the device knows it; a prefill row brings several known ones.
        self._input_ids[begins] = np.where(carry < 0, first_id, PLACEHOLDER)
        for r in np.flatnonzero(count > 1):
            self._input_ids[begins[r] : ends[r]] = riders[r].ids[start[r] : start[r] + count[r]]
        self._input_ids[tokens:bucket] = PLACEHOLDER
        self._carry[:bucket] = -1
        self._carry[begins] = carry

    def _request_keys(self, seat: IntArray, request: IntArray) -> npt.NDArray[np.uint32]:
        """The part of the noise keys that is the requests': made anew only when a seat has changed hands."""
        if (self._seated[seat] != request).any():
            self._seated[seat] = request
            self._seat_keys[seat] = request_keys(self._seed, request)
        return self._seat_keys[seat]

    def copy_in(self, stream: Stream) -> None:
        self._device.run("h2d", self.index, stream)

    def launch(self, stream: Stream) -> None:
        self._device.run("step", self.index, stream, self._bucket)

    def copy_out(self, stream: Stream) -> None:
        self._device.run("d2h", self.index, stream)


def order(event: Event, first: Stream, then: Stream, step: int, hooks: Hooks) -> None:
    """What is queued on ``then`` from now on runs after what is queued on ``first`` so far."""
    event.record(first)
    hooks.recorded(event, first, step)
    then.wait(event)
    hooks.waited(event, then, step)


def mark(event: Event, stream: Stream, step: int, hooks: Hooks) -> None:
    """Note the end of what is queued on ``stream`` so far, for the host to wait for later."""
    event.record(stream)
    hooks.recorded(event, stream, step)


def block(event: Event, step: int, hooks: Hooks) -> None:
    """Block the host until ``event`` has happened."""
    event.synchronize()
    hooks.waited(event, None, step)
