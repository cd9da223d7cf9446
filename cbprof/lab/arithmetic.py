"""The work that the lab's devices do: plain integer arithmetic, of any length and with one right answer everywhere.

::

    state = 0
    repeat `rounds` times:  state = mix(state xor chunk)        the chunks of the input, over and over

The input is read from the first round to the last, as a model reads its block tables in every layer: whoever
overwrites it on the way changes the answer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MULTIPLIER = 0x31848BAB
"""Odd, so that no bit is lost, and below 2**31, so that it is an int32 everywhere. Overflow wraps."""

SHIFT = 15

Ints = npt.NDArray[np.int32]


def churn(state: Ints, inputs: Ints, rounds: int) -> None:
    """Change ``state`` (int32, ``[n]``) in place by ``rounds`` rounds over the whole chunks of ``inputs`` (``[m]``).

    numpy lets go of the interpreter lock inside each operation on an array of this size, so that the child's other
    queues go on meanwhile.
    """
    chunks = inputs[: len(inputs) // len(state) * len(state)].reshape(-1, len(state))
    shifted = np.empty_like(state)
    for number in range(rounds):
        state ^= chunks[number % len(chunks)]
        state *= np.int32(MULTIPLIER)
        np.right_shift(state, SHIFT, out=shifted)
        state ^= shifted
