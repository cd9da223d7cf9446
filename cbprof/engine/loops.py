"""The loop of each mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cbprof.engine.async_loop import run_async
from cbprof.engine.config import Mode
from cbprof.engine.multi_loop import run_multi
from cbprof.engine.run import Run
from cbprof.engine.sync_loop import run_sync

LOOPS: Mapping[Mode, Callable[[Run], None]] = {"sync": run_sync, "async": run_async, "multi": run_multi}
