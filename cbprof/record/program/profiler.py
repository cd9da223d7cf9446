"""torch.profiler beside a recording: the kernels themselves, for what event spans cannot see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.record.cupti import cupti_path

if TYPE_CHECKING:
    from torch.profiler import profile


class Profiler:
    """Runs torch.profiler on the thread that starts and stops it, which sees the kernels of every thread."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._profile: profile | None = None

    def start_where_cuda_is_up(self) -> None:
        """Start, once the program uses CUDA: we never make its context for it, lest it forks later."""
        if self._profile is not None or not cuda_is_up():
            return
        from torch.profiler import ProfilerActivity, profile

        self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        self._profile.start()

    def stop(self, trace: Path | None) -> None:
        """Stop, and write beside ``trace``; where no trace was begun, nowhere."""
        running, self._profile = self._profile, None
        if running is None:
            return
        running.stop()
        if trace is not None:
            path = cupti_path(trace)
            running.export_chrome_trace(str(path))
            self.files.append(str(path))


def cuda_is_up() -> bool:
    """Whether the program has made its CUDA context."""
    is_initialized = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)  # torch may be half imported
    return is_initialized is not None and bool(is_initialized())
