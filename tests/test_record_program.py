"""The parts of ``cbprof record`` by themselves: the import hook, settings, statuses, names of files, last words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakSet

import pytest

from cbprof.formats import load
from cbprof.record.program.cuda_calls import wrap_cuda
from cbprof.record.program.import_hook import AfterImport
from cbprof.record.program.launch import Ended
from cbprof.record.program.lazy_file import LazyFile, numbered
from cbprof.record.program.outcome import outcome_lines
from cbprof.record.program.session import Session
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import Status, claim, read_all
from cbprof.record.tracer import Tracer
from cbprof.trace import TraceBuilder


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the modules of which the hook tells."""
    told: list[str] = []
    names = ("made_up", "made_up.inner", "json", "never")
    finder = AfterImport({name: lambda module: told.append(module.__name__) for name in names})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    finder.install()
    return told


def test_imports_are_told_once_when_they_are_done(
    hook: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hook == ["json"], "it is loaded already"
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "__init__.py").write_text("done = 1")
    (tmp_path / "made_up" / "inner.py").write_text("import made_up\nassert made_up.done")
    monkeypatch.syspath_prepend(tmp_path)
    import made_up  # type: ignore[import-not-found]
    import made_up.inner  # type: ignore[import-not-found]

    assert hook == ["json", "made_up", "made_up.inner"]
    assert made_up.__spec__.loader is made_up.__loader__
    del sys.modules["made_up.inner"]
    import made_up.inner

    assert hook == ["json", "made_up", "made_up.inner"]
    with pytest.raises(ModuleNotFoundError):
        import never  # type: ignore[import-not-found]  # noqa: F401
    for name in ("made_up", "made_up.inner"):
        del sys.modules[name]


def test_settings_survive_the_environment() -> None:
    settings = Settings("/t.json", "/f", (3, 5), 1.5, on_signal=True, cupti=True)
    assert Settings.from_environment(settings.to_environment()) == settings
    assert Settings.from_environment(Settings("/t.json", "/f").to_environment()) == Settings("/t.json", "/f")
    assert Settings.from_environment({}) is None


def test_statuses_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    status = Status(7, recording=True, cells=(0.5, 1.0), files=("a", "b"), notes=("n",))
    status.write(str(tmp_path))
    Status(3).write(str(tmp_path))
    (tmp_path / "9.status").write_text('{"pid"')
    assert read_all(tmp_path) == [Status(3), status]
    Status(3).write(str(tmp_path / "gone"))


def test_every_trace_of_a_run_has_a_name_of_its_own(tmp_path: Path) -> None:
    assert [claim(str(tmp_path), "a") for _ in range(3)] == [1, 2, 3]
    assert claim(str(tmp_path), "b") == 1
    names = [numbered(Path("/a/b.json.gz"), number).name for number in (1, 2)]
    assert names == ["b.json.gz", "b.2.json.gz"]
    assert numbered(Path("/a/b.json"), 3).name == "b.3.json"
    assert numbered(Path("/a/b"), 2).name == "b.2"


def test_a_file_is_begun_at_the_first_span(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "t.json"), str(tmp_path))
    for recorded, files in ((False, []), (True, ["t.json", "t.json.1"])):
        file = LazyFile(settings)
        tracer = Tracer(file).start()
        if recorded:
            with tracer.cpu("schedule"):
                pass
        tracer.close()
        assert sorted(path.name for path in tmp_path.iterdir()) == files
        assert file.has_device_spans is False


class FakeProfile:
    """Of torch.profiler, which needs a GPU to be of use."""

    def __init__(self, activities: list[object]) -> None:
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        assert self.is_on
        self.is_on = False

    def export_chrome_trace(self, path: str) -> None:
        assert not self.is_on
        Path(path).write_text("{}")


@pytest.mark.parametrize("phases", [0, 1])
def test_the_kernels_of_a_window_shorter_than_the_drains_period_are_kept(
    phases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.profiler.profile", FakeProfile)
    monkeypatch.setattr("cbprof.record.program.profiler.cuda_is_up", lambda: True)
    monkeypatch.setattr("cbprof.record.program.profiler._device_in_use", lambda: None)
    monkeypatch.setattr("cbprof.record.tracer._host", None)
    session = Session(Settings(str(tmp_path / "t.json"), str(tmp_path), cupti=True), Status(7))
    session.begin()
    tracer = Tracer(tmp_path / "ours.json", device="none").start()
    for _ in range(phases):
        with tracer.cpu("schedule"):
            pass
    status = session.end(complete=True)
    assert status.notes == ()
    assert status.files == (str(tmp_path / "t.json"),) * phases
    assert status.cupti == (str(tmp_path / "t.cupti.json.gz"),)
    assert (tmp_path / "t.cupti.json.gz").exists()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Off until it is toggled; it profiles too, as if there was a GPU."""
    monkeypatch.setattr("torch.profiler.profile", FakeProfile)
    monkeypatch.setattr("cbprof.record.program.profiler.cuda_is_up", lambda: True)
    monkeypatch.setattr("cbprof.record.program.profiler._device_in_use", lambda: None)
    monkeypatch.setattr("cbprof.record.tracer._host", None)
    monkeypatch.setattr("cbprof.record.tracer._guests", WeakSet())
    settings = Settings(str(tmp_path / "t.json"), str(tmp_path), on_signal=True, cupti=True)
    session = Session(settings, Status(7))
    session.begin()
    yield session
    session._tracer.close()


def test_a_recording_says_of_engines_only_what_it_saw(session: Session, tmp_path: Path) -> None:
    ours, plain = Tracer(engine="mine", mode="sync", meta={"model": "m"}), Tracer(device="none")
    for tracer in (ours, plain):
        session._order("start")
        with tracer.cpu("schedule"):
            pass
        session._order("stop")
    session.end(complete=True)
    first, second = load(tmp_path / "t.json").meta, load(tmp_path / "t.2.json").meta
    assert (first.engine, first.mode, first.model) == ("mine", "sync", "m")
    assert (second.engine, second.mode, second.model) == (None, None, None)
    assert (second.base_time_ns or 0) > (first.base_time_ns or 0) > 0


def test_an_engine_that_has_ended_is_not_recorded_again(session: Session) -> None:
    tracer = Tracer(device="none")
    session.toggle()
    session.flush()
    with tracer.cpu("schedule"):
        pass
    session.engine_ends(complete=True)
    session.toggle()
    session.flush()
    with tracer.cpu("schedule"):
        pass
    assert session.end(complete=True).spans == 1


@pytest.mark.parametrize(
    ("method", "failure"), [("stop", "the kernels were lost"), ("export_chrome_trace", "the kernels were not written")]
)
def test_a_profiler_that_fails_takes_nothing_with_it(
    method: str, failure: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left\non device")

    monkeypatch.setattr(FakeProfile, method, fail)
    tracer = Tracer(device="none")
    session._order("start")
    with tracer.cpu("schedule"):
        pass
    status = session.end(complete=True)
    assert status.notes == (f"{failure}: [Errno 28] No space left on device",)
    assert (status.files, status.cupti, status.spans) == ((str(tmp_path / "t.json"),), (), 1)
    assert load(tmp_path / "t.json").complete


class FakeCuda(ModuleType):
    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self.synchronize = lambda device=None: device
        self.Stream = type("Stream", (), {"synchronize": lambda self: None})


def test_calls_that_a_phase_covers_are_not_told_twice() -> None:
    cuda, sink, covered = FakeCuda(), TraceBuilder(), [False]
    before = cuda.synchronize
    tracer = Tracer(sink)
    wrappings = wrap_cuda(cuda, tracer, lambda: covered[0])
    assert cuda.synchronize(device=3) == 3  # off
    tracer.start()
    cuda.synchronize()
    covered[0] = True
    cuda.Stream().synchronize()
    tracer.close()
    assert sink.build().names == ("cudaDeviceSynchronize",)
    wrappings.undo()
    assert cuda.synchronize is before


def ended(*processes: Status, **how: Any) -> Ended:
    return Ended(**{"pid": 7, "code": 0, "signal": 0, **how}, processes=processes)


RECORDED = Status(7, files=("t.json",), device_spans=True, torch=True)
ASKED = Settings("/t.json", "/f")


@pytest.mark.parametrize(
    ("what", "asked", "said"),
    [
        (ended(RECORDED), ASKED, ["wrote t.json", "see it: cbprof report t.json, or cbprof plot t.json"]),
        (
            ended(RECORDED._replace(cupti=("t.cupti.json.gz",), device_spans=False)),
            ASKED,
            [
                "wrote t.json",
                "and the kernels, t.cupti.json.gz: cbprof report t.cupti.json.gz",
                "see it: cbprof report t.json, or cbprof plot t.json",
            ],
        ),
        (
            ended(RECORDED, Status(8, files=("t.2.json",), notes=("transformers 6 has no x",), forks=2)),
            ASKED,
            [
                "transformers 6 has no x",
                "process 8 forked 2 times: only the parent is recorded; start others anew (spawn, or a command), or "
                "give each a cbprof.Tracer of its own",
                "wrote t.json t.2.json",
                "see it: cbprof report t.json, or cbprof plot t.json",
            ],
        ),
        (
            ended(Status(7, torch=True), code=4),
            ASKED,
            [
                "the program exited with 4",
                "nothing was recorded: the program used neither transformers' continuous batching nor a "
                "synchronisation or graph of torch.cuda; mark the phases of your own engine with cbprof.Tracer, or "
                "record with --cupti",
            ],
        ),
        (
            ended(Status(7, torch=True, cupti=("t.cupti.json.gz",))),
            ASKED,
            [
                "wrote the kernels, t.cupti.json.gz: cbprof report t.cupti.json.gz; there was no phase to record",
            ],
        ),
        (
            ended(Status(7, torch=True, vllm=True)),
            ASKED,
            [
                "nothing was recorded: the program imported vLLM, but made no engine: no LLM, AsyncLLM or server came "
                "to be"
            ],
        ),
        (
            ended(Status(7, torch=True, vllm=True, role="front end")),
            ASKED,
            [
                "nothing was recorded: vLLM's engine core never began in a process that can be recorded: it failed to "
                "start, or was started by a Python that ignores PYTHONPATH and where cbprof is not installed"
            ],
        ),
        (
            ended(Status(7, vllm=True, role="front end"), Status(8, vllm=True, role="engine core")),
            ASKED,
            ["nothing was recorded: vLLM made an engine, which got no request"],
        ),
        (
            ended(Status(7, torch=True, sglang=True)),
            ASKED,
            [
                "nothing was recorded: SGLang is not recorded by phases: take a window of its own profiler "
                "(docs/engines.md), or record with --cupti"
            ],
        ),
        (
            ended(Status(7, steps=1, torch=True)),
            ASKED._replace(steps=(5, 6)),
            ["nothing was recorded: steps 5:6 were never reached: the program made 1 step"],
        ),
    ],
)
def test_outcome_lines(
    what: Ended, asked: Settings, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for process in what.processes:
        for file in (*process.files, *process.cupti, *process.lost, process.part):
            Path(file or "none").touch()
    assert outcome_lines(what, asked) == said


def test_a_file_that_is_not_there_is_not_said_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not any("wrote" in line for line in outcome_lines(ended(RECORDED), ASKED))
