"""vLLM recorded from outside, on a stand-in: the same tokens, every phase on its batch, one trace of all processes."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from typer.testing import CliRunner
from vllm_stand_in import STAND_IN, TOKENS, hooked, importable, renamed, serve

from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.formats import load, save
from cbprof.formats.processes import merged, recording_in
from cbprof.record.clocks.base import BlockingClock, SharedClock, Times
from cbprof.record.engines.vllm import attach, batches
from cbprof.record.engines.vllm import core as core_module
from cbprof.record.engines.vllm import loop as loop_module
from cbprof.record.engines.vllm import runner as runner_module
from cbprof.record.engines.vllm.points import POINTS
from cbprof.record.garbage import ELSEWHERE
from cbprof.record.tracer import Tracer
from cbprof.trace import NONE, Kind, RequestEvent, Trace, TraceBuilder

STEPS = 10
"""Of both calls together, in sync."""

EACH_STEP = ("iteration", "schedule", "prepare", "inputs", "compute", "sample", "wait", "update")


def steps_of(trace: Trace, name: str, *, device: bool = False) -> list[int]:
    """The steps of the spans of a name, each once, in the order of their starts."""
    if name not in trace.names:
        return []
    mask = (trace.name_id == trace.names.index(name)) & (trace.on_device == device) & (trace.step != NONE)
    return list(dict.fromkeys(int(step) for step in trace.step[mask]))


def starts(trace: Trace) -> dict[tuple[str, int], int]:
    """When the host was first at a phase of a step."""
    found: dict[tuple[str, int], int] = {}
    for row in range(len(trace)):
        if not trace.on_device[row]:
            found.setdefault((trace.name_of(row), int(trace.step[row])), int(trace.start_ns[row]))
    return found


@pytest.mark.parametrize("runner", [1, 2])
@pytest.mark.parametrize("ahead", [False, True])
def test_every_phase_is_recorded_on_its_batch(runner: int, ahead: bool) -> None:
    sink, notes = TraceBuilder(), list[str]()
    tracer = Tracer(sink, device=BlockingClock())
    with importable(STAND_IN), hooked(tracer, notes) as hooks:
        with tracer:
            assert serve(method="", runner=runner, ahead=ahead) == TOKENS
        said = hooks.describe()
    trace = sink.build()
    assert notes == []
    assert (said["mode"], said["model"], said["dtype"]) == ("async" if ahead else "sync", "toy", "float32")
    assert said["graphs"] == ({"none": STEPS} if runner == 1 else {"none": 2, "full": STEPS - 2})
    for name in EACH_STEP:
        assert steps_of(trace, name) == list(range(STEPS)), name
    assert steps_of(trace, "compute", device=True) == list(range(STEPS))
    assert ("fetch" in trace.names) == (ahead or runner == 2)
    assert {"capture", "warmup", "deliver"} <= set(trace.names)

    steps = trace.steps
    assert list(steps.tokens) == [6, 3, 3, 3, 3, 3, 2, 2, 2, 2]
    assert list(steps.context) == [6, 9, 12, 15, 18, 3, 5, 7, 9, 11]
    assert list(steps.phase) == [0, 1, 1, 1, 1] * 2
    counts = Counter(int(event) for event in trace.requests.event)
    assert counts == {
        RequestEvent.ARRIVE: 5,
        RequestEvent.FIRST: 5,
        RequestEvent.TOKEN: 20,
        RequestEvent.FINISH: 5,
    }
    at = starts(trace)
    for step in range(4):  # async means that batch N + 1 is launched before the results of N are waited for
        assert (at["compute", step + 1] < at["wait", step]) == ahead
        assert (at["compute", step + 1] < at["update", step]) == ahead


class Stream:
    """Of a device that is played."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number
        self.device_index = 0


class NotedClock(SharedClock):
    """Notes where its pairs of points lie."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[int, int]] = []

    def begin(self, stream: Any) -> tuple[int, int]:
        return stream.cuda_stream, time.perf_counter_ns()

    def end(self, stream: Any, handle: tuple[int, int]) -> Times:
        self.pairs.append((handle[0], stream.cuda_stream))
        return Times(handle[1], time.perf_counter_ns())

    def resolve(self, handle: Times) -> Times:
        return handle


@pytest.mark.parametrize("runner", [1, 2])
@pytest.mark.parametrize("ahead", [False, True])
def test_on_a_gpu_compute_ends_behind_sampling_and_copies_have_their_stream(
    runner: int, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sink, notes = NotedClock(), TraceBuilder(), list[str]()
    monkeypatch.setattr(runner_module, "cuda_is_there", lambda: True)
    monkeypatch.setattr(attach, "cuda_is_up", lambda: True)
    fake = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: Stream(1), get_device_name=lambda: "GPU"))
    monkeypatch.setitem(sys.modules, "torch", fake)
    tracer = Tracer(sink, device=clock)
    with importable(STAND_IN), hooked(tracer, notes) as hooks, tracer:
        assert serve(method="", runner=runner, ahead=ahead, copy_stream=Stream(2)) == TOKENS
    trace = sink.build()
    assert notes == []
    copies = ahead or runner == 2
    assert Counter(clock.pairs) == Counter({(1, 1): STEPS} | ({(1, 2): STEPS} if copies else {}))
    assert steps_of(trace, "launch") == steps_of(trace, "compute", device=True) == list(range(STEPS))
    assert steps_of(trace, "d2h", device=True) == (list(range(STEPS)) if copies else [])
    ends = {(trace.name_of(row), int(trace.step[row])): int(trace.end_ns[row]) for row in range(len(trace))}
    for step in range(STEPS):
        assert ends["launch", step] <= ends["compute", step]
        if copies:
            assert ends["fetch", step] <= ends["sample", step]
    graphs = [facts["graph"] for facts in trace.extra.values() if "graph" in facts]
    assert Counter(graphs) == ({"none": STEPS} if runner == 1 else {"none": 2, "full": STEPS - 2})
    said = {
        1: f"none of {STEPS} steps replayed",
        2: f"2 of {STEPS} steps ran without a graph: a batch of 3 to 6 tokens",
    }
    assert hooks.remark().startswith(said[runner])


def test_it_is_left_as_it_was() -> None:
    with importable(STAND_IN):
        before = methods()
        assert len(before) > 30
        with hooked(Tracer(TraceBuilder()), []):
            assert not set(methods().values()) & set(before.values())
            assert serve(method="") == TOKENS  # nobody records
        assert methods() == before


def methods() -> dict[str, Any]:
    """Everything that may be wrapped, as it is now."""
    found = {}
    for point in POINTS:
        try:
            module = import_module(point.module)
        except ModuleNotFoundError:
            continue
        owner = getattr(module, point.owner) if point.owner else module
        found[f"{point.module}.{point.owner}.{point.method}"] = vars(owner)[point.method]
    return found


def names_that_are_read() -> set[str]:
    """Attributes and arguments of vLLM's objects that the hooks look at."""
    text = "".join(inspect.getsource(module) for module in (attach, batches, core_module, loop_module, runner_module))
    read = set(re.findall(r"getattr\([^,()]+(?:\([^()]*\))?, \"(\w+)\"", text))
    read |= set(re.findall(r"kwargs\.get\(\"(\w+)\"", text)) | set(runner_module.COPY_EVENTS)
    read |= set(re.findall(r"\b(?:output|request|cached|core|each|client)\.(\w+)", inspect.getsource(batches)))
    return read | {"has_work"}


NAMES = sorted({name for point in POINTS for name in (point.owner, point.method) if name} | names_that_are_read())
NOT_THEIRS = {name for name in NAMES if name.startswith("__")} | {"result"}  # Python's own, and its futures'


def test_the_names_that_are_read_are_found() -> None:
    assert {"total_num_scheduled_tokens", "num_output_tokens", "new_token_ids", "copy_event", "vllm_config"} <= set(
        NAMES
    )


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_THEIRS])
def test_another_name_costs_at_most_its_phase(name: str, ahead: bool, tmp_path: Path) -> None:
    sink, notes = TraceBuilder(), list[str]()
    tracer = Tracer(sink, device=BlockingClock())
    with importable(renamed(name, tmp_path / "renamed")), hooked(tracer, notes), tracer:
        for runner in (1, 2):
            assert serve(method="", runner=runner, ahead=ahead) == TOKENS
    if any(name == point.method and not point.optional for point in POINTS if point.module in str(notes)):
        assert any(f"{name} in vllm" in note or f".{name}" in note for note in notes)
    assert len(sink) > 100  # the others go on


class Strange:
    """Of no use to anybody."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        raise TypeError("strange")


class Seen:
    """What a hook sees of an object of vLLM's: one of its attributes is of another type."""

    def __init__(self, theirs: Any, name: str) -> None:
        object.__setattr__(self, "_theirs", theirs)
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            return Strange()
        found = getattr(self._theirs, name)
        return [Seen(each, self._name) for each in found] if isinstance(found, list) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._theirs, name, value)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("name", sorted(names_that_are_read()))
def test_another_type_costs_at_most_its_phase(name: str, ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = attach.guarded

    def strange(hook: Callable[..., Generator[Any, Any, None]], failed: Any) -> Any:
        def seen(*args: Any, **kwargs: Any) -> Generator[Any, Any, None]:
            given = {key: Strange() if key == name else value for key, value in kwargs.items()}
            body = hook(*(Seen(each, name) for each in args), **given)
            next(body)
            try:
                result = yield
            except BaseException as error:
                body.throw(error)
            else:
                with pytest.raises(StopIteration):
                    body.send(result if isinstance(result, dict | bool | None) else Seen(result, name))

        def until_it_returns(*args: Any, **kwargs: Any) -> Generator[Any, Any, None]:
            try:
                yield from seen(*args, **kwargs)
            except RuntimeError as error:
                if not isinstance(error.__cause__, StopIteration):
                    raise

        return guarded(until_it_returns, failed)

    monkeypatch.setattr(attach, "guarded", strange)
    sink = TraceBuilder()
    tracer = Tracer(sink, device=BlockingClock())
    with importable(STAND_IN), hooked(tracer, []), tracer:
        for runner in (1, 2):
            assert serve(method="", runner=runner, ahead=ahead) == TOKENS
    assert len(sink) > 100


class Descriptor:
    """A method that is no function, such as one that is compiled."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.method if instance is None else self.method.__get__(instance, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)


def test_methods_that_are_no_functions_are_let_be_and_named() -> None:
    with importable(STAND_IN):
        names = list(methods())
    for name in names:
        with importable(STAND_IN):
            module, owner, method = name.rsplit(".", 2)
            if not owner:
                continue
            theirs = getattr(import_module(module), owner)
            setattr(theirs, method, Descriptor(vars(theirs)[method]))
            notes: list[str] = []
            with hooked(Tracer(TraceBuilder(), device=BlockingClock()), notes):
                assert serve(method="") == TOKENS
            assert any(f"{owner}.{method}" in note for note in notes), name


SCRIPT = """
import json, os, sys
from vllm.entrypoints import serve
if __name__ == "__main__":
    print(json.dumps(serve(**json.loads(sys.argv[1]))))
"""


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``cbprof record`` of the stand-in, in an empty folder."""

    def run(how: str, *options: str, script: str = SCRIPT, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script)
        search = os.pathsep.join([str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "cbprof", "record", *options, "--", sys.executable, "script.py", how]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": search, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.mark.parametrize(
    ("how", "workers"),
    [('"method": "fork"', 0), ('"method": "fork"', 1), ('"method": "spawn", "runner": 2, "ahead": true', 2)],
)
def test_the_processes_of_a_program_make_one_trace(record: Any, how: str, workers: int, tmp_path: Path) -> None:
    done = record(f'{{{how}, "workers": {workers}}}', "-o", "t.json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(TOKENS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "t.json"], done.stderr
    trace = load(tmp_path / "t.json")
    assert trace.complete
    assert trace.mode == ("async" if "ahead" in how else "sync")
    hosts = {lane.name for lane in trace.lanes if not lane.on_device}
    assert {"front end", "engine core", "engine core sender", *(f"worker {rank}" for rank in range(workers))} <= hosts
    assert trace.devices == tuple(range(max(workers, 1)))
    for name in EACH_STEP:
        assert steps_of(trace, name) == list(range(STEPS)), name
    for device in trace.devices:
        assert list(trace.step[trace.mask(kinds=[Kind.GPU_COMPUTE], device=device)]) == list(range(STEPS))
    assert list(trace.steps.tokens) == [6, 3, 3, 3, 3, 3, 2, 2, 2, 2]
    assert summarize(trace).devices[0].idle_pct is not None
    at = starts(trace)
    for step in range(STEPS):  # on one clock
        assert at["schedule", step] < at["prepare", step] < at["compute", step] < at["update", step]


def test_what_is_killed_while_it_shuts_down_is_whole(record: Any, tmp_path: Path) -> None:
    done = record('{"method": "fork"}', "-o", "t.json", STAND_IN_KILLED="1")
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "t.json")
    assert trace.complete
    assert steps_of(trace, "update") == list(range(STEPS))


LINGERS = """
import json, os, time
folder = json.loads(os.environ["CBPROF_RECORD"])["folder"]
for number in range(2):
    if not os.fork():
        os.setsid()
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            try:
                open(f"{folder}/{os.getpid()}.{time.monotonic_ns()}", "w").close()
            except OSError:
                break
        os._exit(0)
"""


def test_processes_that_outlive_the_program_do_not_cost_its_trace(record: Any, tmp_path: Path) -> None:
    """They write into the folder of statuses while it is removed."""
    (tmp_path / "lingers.py").write_text(LINGERS)
    script = SCRIPT + "    import lingers\n"
    done = record('{"method": ""}', "-o", "t.json", script=script)
    assert done.returncode == 0, done.stderr
    assert "wrote t.json" in done.stderr
    assert load(tmp_path / "t.json").complete


def test_an_engine_core_that_fails_leaves_its_trace(record: Any, tmp_path: Path) -> None:
    done = record('{"method": "fork", "workers": 1}', "-o", "t.json", STAND_IN_FAILS="1")
    assert done.returncode != 0
    assert "the engine core failed" in done.stderr
    trace = load(tmp_path / "t.json")
    assert not trace.complete
    assert steps_of(trace, "update") == list(range(5))


def test_a_folder_of_what_processes_left_is_one_trace(record: Any, tmp_path: Path) -> None:
    """As they lie there when ``cbprof record`` itself is killed; one of them unfinished."""
    parts = tmp_path / "parts"
    parts.mkdir()
    record('{"method": "fork", "workers": 1}', "-o", "t.json")
    whole = load(tmp_path / "t.json")
    elsewhere = [lane for lane in whole.lanes if lane.name.endswith(ELSEWHERE.name)]
    origin_ns = [process["origin_ns"] for process in whole.meta.extra["processes"]]
    assert origin_ns == sorted(origin_ns)
    for number, process in enumerate(whole.meta.extra["processes"]):
        part = TraceBuilder()
        for lane in (lane for lane in whole.lanes if lane not in elsewhere):
            if (lane.name.startswith(process["role"]) and not lane.on_device) or (lane.on_device and number == 2):
                rows = [row for row in range(len(whole)) if whole.lanes[whole.lane_id[row]] == lane]
                for row in rows:
                    part.span(
                        part.lane(lane),
                        Kind(int(whole.kind[row])),
                        whole.name_of(row),
                        int(whole.start_ns[row]) - (origin_ns[number] - origin_ns[0]),
                        int(whole.dur_ns[row]),
                        step=int(whole.step[row]),
                        link=int(whole.link[row]),
                    )
        meta = whole.meta.changed(extra={"process": process})
        save(part.build(meta), parts / f"t.process-{process['pid']}.json")
    last = max(parts.iterdir())
    text = last.read_text()
    last.with_name(last.name + ".part").write_text(text[: text.index('"cbprof_end"')])
    last.unlink()

    result = CliRunner().invoke(app, ["report", str(parts), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["devices"]
    again = merged([load(part) for part in recording_in(parts).parts])  # type: ignore[union-attr]
    kept = ~numpy.isin(whole.lane_id, [whole.lanes.index(lane) for lane in elsewhere])
    assert sorted(again.start_ns.tolist()) == sorted(whole.start_ns[kept].tolist())
    assert {lane.name for lane in again.lanes} == {lane.name for lane in whole.lanes if lane not in elsewhere}
    (parts / "other.json").write_text("{}")
    assert recording_in(parts) is None


ATTACHED = """
import json, sys, cbprof
from pathlib import Path
from vllm.entrypoints import LLM, serve
from cbprof.record.program import child
if __name__ == "__main__":
    how = json.loads(sys.argv[1])
    with cbprof.attach("vllm", path="t.json") as attachment:
        child.begin()  # as vLLM's plug-in does, in the process that is recorded already
        print(json.dumps(serve(**how)))
    assert attachment.path == Path("t.json").absolute()
    assert json.dumps(serve(**how))  # not recorded any more
    with cbprof.attach("vllm", path="u.json"):
        llm = LLM(**how)
        llm.generate([[1, 2, 3]], 4)
    llm.generate([[1, 2, 3]], 4)  # an engine that goes on
    llm.shutdown()
"""


@pytest.mark.parametrize("how", ['"method": ""', '"method": "fork"', '"method": "spawn", "workers": 1'])
def test_attached_inside_a_program(how: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ATTACHED)
    search = os.pathsep.join([str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "script.py", f"{{{how}}}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == list(TOKENS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "t.json", "u.json"]
    first, second = load(tmp_path / "t.json"), load(tmp_path / "u.json")
    assert first.complete
    assert steps_of(first, "update") == steps_of(first, "compute", device=True) == list(range(STEPS))
    assert len(steps_of(second, "update")) == 4


INLINE = '{"method": ""}'


def test_the_plug_in_is_found_by_vllm_and_does_nothing_unless_asked() -> None:
    (entry,) = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["entry-points"][
        "vllm.general_plugins"
    ].items()
    module, function = entry[1].split(":")
    before = list(sys.meta_path)
    getattr(import_module(module), function)()
    assert sys.meta_path == before


def test_the_plug_in_records_where_python_was_told_not_to_look(tmp_path: Path) -> None:
    """``python -S`` loads no sitecustomize, but vLLM loads its plug-ins."""
    info = tmp_path / "site" / "cbprof_plugin-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: cbprof-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\ncbprof = cbprof.record.program.child:begin\n")
    packages = [str(Path(numpy.__file__).parents[1]), str(Path(__file__).parents[1])]
    (tmp_path / "script.py").write_text(f"import sys; sys.path += {packages}\n" + SCRIPT)
    search = os.pathsep.join([str(STAND_IN), str(info.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "cbprof", "record", "-o", "t.json", "--", sys.executable, "-S", "script.py", INLINE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*packages[1:], search])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert steps_of(load(tmp_path / "t.json"), "update") == list(range(STEPS)), done.stderr
