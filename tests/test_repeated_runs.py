"""Several runs before and after: medians, whether they are apart, baselines in files, and what CI reads."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import cbprof
from test_compare import run

from cbprof.analysis.gate.compare import FailIf
from cbprof.analysis.gate.runs import RunFigures, Runs, change_of, judge, median_run
from cbprof.api import compare_baseline, load, load_runs
from cbprof.engine.config import EngineConfig
from cbprof.engine.engine import Outcome
from cbprof.engine.equality import Equality
from cbprof.engine.scheduler import Counters
from cbprof.engine.workload import Workload
from cbprof.errors import DataError, UsageError
from cbprof.formats import save
from cbprof.record.session import RecordedRun


def runs(*times: float | None, workload: dict[str, object] | None = None) -> Runs:
    """Runs that took so long a token, and were idle for as many per cent."""
    facts = {"model": "tiny"} if workload is None else workload
    return Runs(tuple(RunFigures(each, None, each, each, each) for each in times), "emulated", "host", facts)


@pytest.mark.parametrize(
    ("condition", "before", "after", "passed"),
    [
        ("slower:10%", (10,), (12,), False),
        ("slower:20%", (10,), (12,), True),
        ("slower:10%", (10, 11, 12), (13, 14, 15), False),  # 11 to 14, and nine of nine pairs are worse
        ("slower:10%", (10, 11, 15), (13, 14, 16), True),  # 11 to 14, and one run before was as slow
        ("slower:30%", (10, 11, 12), (13, 14, 15), True),
        ("slower:0%", (13, 14, 15), (10, 11, 12), True),
        ("idle:2pp", (10, 11, 12), (13, 14, 15), False),
        ("idle:3pp", (10, 11, 12), (13, 14, 15), True),
        ("longest-gap:10%", (10, 11, 12), (13, 14, None), False),  # what is unknown cannot be promised
        ("slower:10%", (0, 0, 0), (1, 1, 1), False),
    ],
)
def test_a_limit_is_broken_where_the_median_rose_and_the_runs_are_apart(
    condition: str, before: tuple[float, ...], after: tuple[float, ...], passed: bool
) -> None:
    assert judge(FailIf.parse(condition), runs(*before), runs(*after)).passed is passed


def test_one_bad_run_of_many_changes_nothing() -> None:
    found = change_of("slower", runs(*range(100, 120)), runs(*range(200, 219), 1))
    assert found is not None
    assert (found.before, found.after, found.worse_pct) == (109.5, 208.5, 95.0)
    assert found.apart


def test_the_workload_is_a_condition_too() -> None:
    condition = FailIf.parse("workload")
    assert judge(condition, runs(1), runs(2)).passed
    assert not judge(condition, runs(1), runs(2, workload={"model": "big"})).passed
    assert not judge(condition, runs(1, workload={}), runs(2, workload={})).passed, "unknown"


def test_the_median_run_is_the_one_in_the_middle() -> None:
    assert [median_run(runs(*times)) for times in ((3, 1, 2), (4, 1, 3, 2), (5,), (3, None))] == [2, 3, 0, 0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs of one recording each before and after, a stray one of another, and a single run."""
    for name, hosts in {"before": (20, 24, 22), "after": (40, 44, 42)}.items():
        for number, host in enumerate(hosts, 1):
            said = {"of": 3, "id": name}
            infix = "" if number == 1 else f".{number}"
            save(run(host=host, device="host process", repeat=said), tmp_path / f"{name}{infix}.json")
    save(run(host=20, repeat={"of": 2, "id": "mine"}), tmp_path / "stray.json")
    save(run(host=90, repeat={"of": 2, "id": "older"}), tmp_path / "stray.2.json")
    save(run(host=20, device="host process"), tmp_path / "one.json")
    return tmp_path


def test_the_first_of_several_runs_stands_for_all_of_one_recording(folder: Path) -> None:
    assert [each.name for each in load_runs(folder / "before.json")] == [
        str(folder / f"before{infix}.json") for infix in ("", ".2", ".3")
    ]
    assert len(load_runs(folder / "stray.json")) == 1, "what an older recording left is not its"


def test_compare_takes_all_runs(folder: Path) -> None:
    done = cbprof("compare", "before.json", "after.json", "--fail-if", "idle:2pp", "--json", cwd=folder)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["files"] == ["before.3.json", "after.3.json"], "the median ones"
    assert [len(document["runs"][side]) for side in ("before", "after")] == [3, 3]
    assert document["runs"]["changes"]["idle"]["worse_pct"] == 100
    shown = cbprof("compare", "before.json", "after.json", "--fail-if", "idle:50pp", cwd=folder)
    assert shown.returncode == 0
    assert "9 of 9" in shown.stdout
    assert "lowest to highest" in shown.stdout


def test_a_baseline_is_kept_and_held_against(folder: Path) -> None:
    assert cbprof("baseline", "save", "before.json", cwd=folder).stdout == "wrote baseline.json\n"
    assert len(json.loads((folder / "baseline.json").read_text())["runs"]) == 3
    again = cbprof("baseline", "save", "before.json", cwd=folder)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert cbprof("baseline", "save", "before.json", "--force", cwd=folder).returncode == 0
    same = cbprof("baseline", "compare", "before.json", "--fail-if", "slower:0%", cwd=folder)
    assert same.returncode == 0, same.stderr
    worse = ["baseline", "compare", "after.json", "--fail-if", "slower:10%", "--fail-if", "workload"]
    done = cbprof(*worse, "--format", "github", "--junit", "out.xml", cwd=folder)
    assert done.returncode == 1
    error, notice = done.stdout.splitlines()
    assert error.startswith("::error title=cbprof check slower::after.json: the median of time per token +")
    assert notice.startswith("::notice title=cbprof check workload::")
    assert ElementTree.parse(folder / "out.xml").getroot().get("failures") == "1"


def test_a_folder_holds_baselines_by_name(folder: Path) -> None:
    (folder / "kept").mkdir()
    for name in ("before.json", "one.json"):
        assert cbprof("baseline", "save", name, "-o", "kept", cwd=folder).returncode == 0
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["before.json", "one.json"]
    assert cbprof("baseline", "compare", "one.json", "-b", "kept", "--fail-if", "slower:0%", cwd=folder).returncode == 0


def test_another_device_is_told(folder: Path) -> None:
    save(run(device="GPU X"), folder / "other.json")
    cbprof("baseline", "save", "one.json", cwd=folder)
    assert "recorded on host process, after on GPU X" in cbprof("baseline", "compare", "other.json", cwd=folder).stdout


def test_what_is_no_baseline_is_one_line(folder: Path) -> None:
    for content in ("", "[]", "{", "[" * 100_000, '{"schema": 1, "evidence": "emulated", "workload": {}, "runs": []}'):
        (folder / "baseline.json").write_text(content)
        done = cbprof("baseline", "compare", "one.json", cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert "baseline.json: not a baseline" in done.stderr
    said = runs(1.0).to_json()
    for wrong in ({"runs": [{"idle_pct": 1}]}, {"runs": [said["runs"][0] | {"idle_pct": "1"}]}, {"evidence": "felt"}):
        with pytest.raises(DataError, match="not a baseline"):
            Runs.parse(said | wrong, "x")
    assert Runs.parse(said, "x") == runs(1.0)
    missing = cbprof("baseline", "compare", "one.json", "-b", "none.json", cwd=folder)
    assert (missing.returncode, missing.stderr.count("\n")) == (3, 1)


def test_runs_of_two_kinds_are_not_one_baseline(folder: Path) -> None:
    save(run(model="big"), folder / "big.json")
    save(run(evidence="cupti"), folder / "gpu.json")
    for other, code in (("big.json", "different workloads"), ("gpu.json", "record both in one way")):
        done = cbprof("baseline", "save", "one.json", other, cwd=folder)
        assert done.returncode == 2
        assert code in done.stderr
    cbprof("baseline", "save", "one.json", cwd=folder)
    assert "record both in one way" in cbprof("baseline", "compare", "gpu.json", cwd=folder).stderr
    with pytest.raises(UsageError, match="record both in one way"):
        compare_baseline([load(folder / "gpu.json")], folder / "baseline.json")


def test_github_without_a_limit_says_what_to_give(folder: Path) -> None:
    done = cbprof("baseline", "compare", "one.json", "--format", "github", cwd=folder)
    assert done.returncode == 2
    assert "--fail-if" in done.stderr


class StandIn:
    """An engine that serves nothing: each run is a trace, and async runs get slower."""

    config = EngineConfig(device="host")

    def __init__(self) -> None:
        self.served: list[str] = []

    def record(self, workload: Workload, mode: str, path: Path, *, said: dict[str, object], **_: object) -> RecordedRun:
        self.served.append(mode)
        save(run(mode=mode, host=10 * len(self.served), device="host process", **said), path)
        return RecordedRun(path, Outcome({0: [1, 2]}, Counters(), wall_ns=1), Equality("tokens"))


def test_run_serves_the_modes_by_turns_and_tells_the_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StandIn()
    monkeypatch.setattr("cbprof.record.session.open_engine", lambda *_: contextlib.nullcontext(engine))
    done = cbprof("run", "-q", "--repeat", "3", "-o", "a.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert engine.served == ["sync", "async"] * 3
    assert "median of 3 runs" in done.stdout
    assert "over 3 pairs" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"a.{mode}{infix}.json" for mode in ("sync", "async") for infix in ("", ".2", ".3")
    )
    assert len(load_runs(tmp_path / "a.sync.json")) == 3
    again = cbprof("run", "-q", "--repeat", "2", "-o", "a.json", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
