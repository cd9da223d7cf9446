"""The engines that ``cbprof run`` records, behind one face: ours, and transformers' own continuous batching."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.engine import Engine, Outcome
from cbprof.engine.hooks import NoHooks
from cbprof.engine.placement import rank_facts
from cbprof.engine.workload import Workload
from cbprof.record.attach import attach
from cbprof.record.cupti import CuptiWindow
from cbprof.record.engines.transformers.serve import TransformersEngine
from cbprof.record.recorder import Recorder
from cbprof.record.session import RecordedRun, record

Watch = Callable[[Recorder], None]


class Recordable(Protocol):
    """An engine that is open, with its model."""

    @property
    def config(self) -> EngineConfig: ...

    def record(
        self, workload: Workload, mode: Mode, path: Path, *, cupti: tuple[int, int] | None, watch: Watch | None
    ) -> RecordedRun:
        """Serve ``workload`` and write its trace to ``path``; see :func:`cbprof.record.session.record`."""


def open_engine(name: str, config: EngineConfig, modes: Collection[Mode]) -> AbstractContextManager[Recordable]:
    """The engine ``cbprof`` or ``transformers``. Raises :class:`UsageError` for what it cannot do."""
    return _Transformers(config, modes) if name == "transformers" else _Own(config)


class _Own(Engine):
    def record(
        self, workload: Workload, mode: Mode, path: Path, *, cupti: tuple[int, int] | None, watch: Watch | None
    ) -> RecordedRun:
        return record(self, workload, mode, path, cupti=cupti, watch=watch)


class _Transformers(TransformersEngine):
    def record(
        self, workload: Workload, mode: Mode, path: Path, *, cupti: tuple[int, int] | None, watch: Watch | None
    ) -> RecordedRun:
        requests = workload.make_requests(self.vocab_size)
        window = None if cupti is None else CuptiWindow(NoHooks(), *cupti)
        meta: dict[str, Any] = {
            "model": self.config.model,
            "workload": {"batch": self.config.max_batch, **vars(workload)},
            **rank_facts(workload.rank, workload.world_size),
        }
        attachment = attach("transformers", path, meta=meta, step_begins=None if window is None else window.step_begins)
        outcome: Outcome | None = None
        with attachment:
            recorder = attachment.tracer.recorder
            if watch is not None and recorder is not None:
                watch(recorder)
            try:
                outcome = self.serve(requests, mode)
            except KeyboardInterrupt:
                if recorder is None or not recorder.token_count:
                    raise
                attachment.complete = False
            finally:
                if window is not None and recorder is not None and (facts := window.finish(path, recorder.origin_ns)):
                    attachment.tracer.meta["cupti"] = facts
        # Sampling takes from one stream of random numbers, of which the warm-up of async uses more.
        return RecordedRun(path, outcome, comparable=workload.temperature == 0)
