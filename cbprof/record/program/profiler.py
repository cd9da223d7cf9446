"""torch.profiler beside a recording: the kernels themselves, for what event spans cannot see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.record.clocks.choice import cuda_is_up
from cbprof.record.cupti import cupti_path, say_rank

if TYPE_CHECKING:
    from torch.profiler import profile


class Profiler:
    """Runs torch.profiler on the thread that starts and stops it, which sees the kernels of every thread."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._profile: profile | None = None
        self._stopped: profile | None = None

    def start_where_cuda_is_up(self) -> None:
        """Start if the program uses CUDA already. We never make its context: a program that forks later would fail."""
        if self._profile is not None or not cuda_is_up():
            return
        import torch
        from torch.profiler import ProfilerActivity, profile

        if (index := _device_in_use()) is not None:
            torch.cuda.set_device(index)  # of this thread, which synchronises with its device when it stops
        self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        self._profile.start()
        say_rank(self._profile)

    def stop(self) -> None:
        """Stop; what was recorded waits for :meth:`write`."""
        profile, self._profile, self._stopped = self._profile, None, None
        if profile is not None:
            profile.stop()
            self._stopped = profile

    def write(self, trace: Path) -> None:
        """Write what was recorded last beside ``trace``."""
        stopped, self._stopped = self._stopped, None
        if stopped is None:
            return
        path = cupti_path(trace)
        stopped.export_chrome_trace(str(path))
        self.files.append(str(path))


def _device_in_use() -> int | None:
    """The first device that the program has a context on; None where this torch does not tell."""
    import torch

    has_context: Callable[[int], bool] | None = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return None
    return next((index for index in range(torch.cuda.device_count()) if has_context(index)), None)
