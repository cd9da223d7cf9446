"""Which clock a device gets: what a user may ask for, and what is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Literal

from cbprof.errors import UsageError
from cbprof.record.clocks.base import BlockingClock, DeviceClock, NoClock
from cbprof.record.clocks.cuda import CudaClock

ClockOf = Callable[[int], DeviceClock]
"""Makes the clock of a device, by its index, when it is first needed."""

DeviceChoice = Literal["auto", "cuda", "host", "none"] | DeviceClock | ClockOf
"""What may be asked for; see :class:`~cbprof.record.tracer.Tracer`."""


def choose_clock(device: DeviceChoice) -> ClockOf:
    """Where the clocks come from. Raises :class:`UsageError` for what is not known, and for CUDA where it is not."""
    if device == "cuda" and not _has_cuda():
        raise UsageError('device="cuda": torch sees no CUDA device; use device="host" or "none"')
    if isinstance(device, str):
        if device not in _CHOICES:
            raise UsageError(f'device={device!r}: give "auto", "cuda", "host", "none", or a clock')
        return _CHOICES[device]
    if callable(device):
        return device
    return lambda index: device


def no_clock(device: int) -> DeviceClock:
    """No times of any device: spans of the host alone."""
    return NoClock()


def host_clock(device: int) -> DeviceClock:
    """The host plays the device."""
    return BlockingClock()


def cuda_clock(device: int) -> DeviceClock:
    """CUDA events, with a small pool, which grows with what is in flight."""
    return CudaClock(device, pairs=256)


def cuda_or_no_clock(device: int) -> DeviceClock:
    return cuda_clock(device) if cuda_is_there() else no_clock(device)


def cuda_or_host_clock(device: int) -> DeviceClock:
    return cuda_clock(device) if cuda_is_there() else host_clock(device)


_CHOICES: Mapping[str, ClockOf] = {
    "auto": cuda_or_no_clock,
    "cuda": cuda_clock,
    "host": host_clock,
    "none": no_clock,
}


def cuda_is_there() -> bool:
    """Whether the program has loaded torch and torch sees a GPU. Loads nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def cuda_is_up() -> bool:
    """Whether the program has made its CUDA context. Loads nothing."""
    is_initialized = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)  # torch may be half imported
    return is_initialized is not None and bool(is_initialized())


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
