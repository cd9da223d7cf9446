"""Limits for CI: what passes, what fails, where limits come from, and what CI systems read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from oracle import COMPUTE, ENGINE, H2D, STEP, Row, trace_of
from typer.testing import CliRunner

from cbprof.analysis.gate.check import Limits, check
from cbprof.analysis.gate.limits import LimitResult, parse_duration, parse_number, parse_percent
from cbprof.cli.check import find_limits
from cbprof.cli.main import app
from cbprof.errors import UsageError
from cbprof.formats import save
from cbprof.meta import Meta
from cbprof.render.tables.ci import github_annotation, junit_xml, write_junit
from cbprof.trace import Kind, Lane, RequestEvent, Trace, TraceBuilder

MS = 10**6


def trace(**meta: object) -> Trace:
    """10 steps of 8 ms of compute, each after 2 ms of host work: 20 % idle, 2 ms gaps, 10 ms a step, 320 tokens/s."""
    rows: list[Row] = []
    for step in range(10):
        start = 10 * step * MS
        rows += [
            (ENGINE, Kind.CPU_WORK, "schedule", start, start + MS, step),
            (ENGINE, Kind.CPU_WORK, "launch", start + MS, start + 2 * MS, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", start + 2 * MS, start + 10 * MS, step),
        ]
    return trace_of(*rows, **{"evidence": "emulated", "tokens": 32, **meta})


def outcome(trace: Trace, **texts: str | int | float | bool) -> dict[str, bool]:
    return {result.name: result.passed for result in check(trace, Limits.parse(texts, "option"))}


def test_limits_that_hold_to_the_digit() -> None:
    assert outcome(trace(), max_idle="20%", max_gap="2ms", max_step_p99="10 ms", min_tokens_per_s="320") == {
        "reliable": True,
        "max-idle": True,
        "max-gap": True,
        "max-step-p99": True,
        "min-tokens-per-s": True,
    }


def test_the_time_between_tokens_is_held_against_its_limit() -> None:
    builder = TraceBuilder()
    builder.span(builder.lane(COMPUTE), Kind.GPU_COMPUTE, "compute", 0, 90 * MS, step=0)
    builder.request(RequestEvent.FIRST, 0, 10 * MS)
    for time_ns in (20 * MS, 50 * MS):
        builder.tokens((0,), time_ns)
    found = builder.build(Meta.parse({"evidence": "emulated", "complete": True}))
    assert outcome(found, max_itl_p99="30ms")["max-itl-p99"]
    assert not outcome(found, max_itl_p99="29.9ms")["max-itl-p99"]
    assert not outcome(trace(), max_itl_p99="9s")["max-itl-p99"], "no token was recorded"


def test_limits_that_are_broken() -> None:
    found = outcome(trace(), max_idle=19.9, max_gap="1999us", max_step_p99="9.999ms", min_tokens_per_s=320.5)
    assert found == {
        "reliable": True,
        "max-idle": False,
        "max-gap": False,
        "max-step-p99": False,
        "min-tokens-per-s": False,
    }
    (_, idle) = check(trace(), Limits.parse({"max-idle": "1%"}, "option"))
    assert str(idle) == "FAIL max-idle: the idle share of the GPU is 20.00 %, limit 1.00 %"


def test_what_is_unknown_fails() -> None:
    nothing_ran = trace_of((ENGINE, Kind.CPU_WORK, "schedule", 0, 50, 0))
    found = outcome(nothing_ran, max_idle="100%", max_gap="9s", max_ttft_p99="9s", min_tokens_per_s=0)
    assert set(found.values()) == {False}


def test_one_device_of_unknown_idle_time_fails() -> None:
    two = trace_of(*STEP, (Lane("h2d", 1), Kind.GPU_H2D, "h2d", 20, 30, 0), evidence="emulated")
    assert outcome(two, max_idle="100%") == {"reliable": False, "max-idle": False}


def steps_of(device: int, *, gpu: int, period: int) -> list[Row]:
    """One GPU over a second: ``gpu`` ms of compute at the end of every ``period`` ms, one step each."""
    return [
        (
            Lane("compute", device),
            Kind.GPU_COMPUTE,
            "compute",
            (step * period + period - gpu) * MS,
            (step + 1) * period * MS,
            step,
        )
        for step in range(1000 // period)
    ]


@pytest.mark.parametrize("first", [True, False])
def test_every_device_is_judged_and_the_worst_decides(first: bool) -> None:
    """One GPU keeps every limit; the other is idle 90 %, with gaps of 90 ms, and takes 100 ms a step."""
    host: Row = (ENGINE, Kind.CPU_WORK, "schedule", 0, MS, 0)
    good = [host, *steps_of(1 if first else 0, gpu=99, period=100)]
    bad = steps_of(0 if first else 1, gpu=10, period=100)
    both = trace_of(*good, *bad, evidence="emulated")
    assert outcome(both, max_idle="89.9%", max_gap="89ms") == {"reliable": True, "max-idle": False, "max-gap": False}
    assert outcome(both, max_idle="90%", max_gap="90ms") == {"reliable": True, "max-idle": True, "max-gap": True}
    slow = trace_of(host, *steps_of(int(first), gpu=9, period=10), *bad, evidence="emulated")
    assert outcome(slow, max_step_p99="99ms") == {"reliable": True, "max-step-p99": False}
    assert outcome(slow, max_step_p99="1s") == {"reliable": True, "max-step-p99": True}


def test_an_incomplete_trace_fails_whatever_it_shows() -> None:
    (reliable, idle) = check(trace(complete=False), Limits.parse({"max-idle": "50%"}, "option"))
    assert (reliable.passed, idle.passed) == (False, True)
    assert reliable.text.startswith("incomplete trace")


def test_hazards() -> None:
    early: list[Row] = [
        (ENGINE, Kind.CPU_WORK, "launch", 0, 5, 0),
        (COMPUTE, Kind.GPU_COMPUTE, "compute", 10, 90_000_000, 0),
        (H2D, Kind.GPU_H2D, "h2d", 20, 80_000_000, 0),
    ]
    stated = {"clock_error_ns": 0, "device_error_ns": 0}
    (_, found) = check(trace_of(*early, **stated), Limits.parse({"no-hazards": True}, "option"))
    assert not found.passed
    assert "violated: H2D N before compute N" in found.text
    assert outcome(trace(**stated), no_hazards=True) == {"reliable": True, "no-hazards": True}
    without_steps = trace_of((COMPUTE, Kind.GPU_COMPUTE, "compute", 0, 9, -1), evidence="emulated")
    assert outcome(without_steps, no_hazards=True)["no-hazards"] is False, "what was not checked is not safe"
    assert outcome(trace(), no_hazards=False) == {"reliable": True}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"max-idel": "1%"}, "option max-idel = 1%: not a limit; the limits are max-idle, max-gap"),
        ({"max-gap": "2"}, "option max-gap: '2' has no unit of time"),
        ({"max-gap": "2m"}, "no unit of time"),
        ({"max-idle": "much"}, "'much' is not a limit: give one such as 1%"),
        ({"max-idle": "-1%"}, "is not a limit"),
        ({"max-idle": "1ms"}, "is not in %"),
        ({"min-tokens-per-s": "5%"}, "is not a plain number"),
        ({"no-hazards": "yes"}, "no-hazards (true or false)"),
        ({"max-idle": True}, "not a limit"),
    ],
)
def test_what_is_no_limit(texts: dict[str, str | bool], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
        Limits.parse(texts, "option")


def test_units() -> None:
    assert [parse_duration(text, "x") for text in ("7ns", "1.5us", "2 ms", "3s")] == [7, 1500, 2 * MS, 3000 * MS]
    assert (parse_percent("1.5%", "x"), parse_percent("2", "x"), parse_percent("1pp", "x", unit="pp")) == (1.5, 2, 1)
    assert parse_number("1000.5", "x") == 1000.5


TABLE = '[tool.cbprof.check]\nmax-idle = "25%"\nmax_gap = "1ms"\nno-hazards = false\n'


def test_limits_from_the_nearest_pyproject_that_has_any(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(TABLE, encoding="utf-8")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n", encoding="utf-8")
    assert find_limits(None, deep) == Limits({"max-idle": 25.0, "max-gap": MS})
    assert not find_limits(None, Path("/"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("[tool.other]\n", "has no table"), ("[tool", "not TOML"), ("[tool.cbprof.check]\nidle = 1\n", "not a limit")],
)
def test_a_config_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        find_limits(path, tmp_path)


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        find_limits(tmp_path / "none.toml", tmp_path)


RESULTS = (LimitResult("max-idle", False, "20 %\nlimit <1 %>"), LimitResult("max-gap", True, "2 ms, limit 3 ms"))


def test_github_annotations_escape_what_would_end_them() -> None:
    lines = [github_annotation(result, "a,b.json") for result in RESULTS]
    assert lines == [
        "::error title=cbprof check max-idle::a,b.json: 20 %25%0Alimit <1 %25>",
        "::notice title=cbprof check max-gap::a,b.json: 2 ms, limit 3 ms",
    ]


def test_junit_xml() -> None:
    suite = ElementTree.fromstring(junit_xml(RESULTS, "trace \x1b[.json"))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failed, passed = suite
    assert (failed.get("name"), failed.get("classname")) == ("max-idle", "trace ?[.json")
    assert failed[0].get("message") == "20 %?limit <1 %>"
    assert passed[0].tag == "system-out"


def test_junit_to_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the JUnit report"):
        write_junit(RESULTS, "trace.json", tmp_path / "none" / "junit.xml")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(trace(), tmp_path / "trace.json")
    return Path("trace.json")


def test_exit_codes_and_one_line_a_limit(path: Path) -> None:
    good = CliRunner().invoke(app, ["check", str(path), "--max-idle", "20%", "--max-gap", "2ms"])
    assert (good.exit_code, len(good.stdout.splitlines())) == (0, 3)
    bad = CliRunner().invoke(app, ["check", str(path), "--max-idle", "1%", "--format", "github", "--junit", "j.xml"])
    assert bad.exit_code == 1
    assert bad.stdout.splitlines()[1].startswith("::error title=cbprof check max-idle::trace.json: ")
    assert ElementTree.parse("j.xml").getroot().get("failures") == "1"


def test_options_go_before_the_file(path: Path) -> None:
    Path("pyproject.toml").write_text(TABLE, encoding="utf-8")
    assert CliRunner().invoke(app, ["check", str(path)]).exit_code == 1, "the gaps are longer than 1 ms"
    assert CliRunner().invoke(app, ["check", str(path), "--max-gap", "2ms"]).exit_code == 0


def test_nothing_to_check(path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(path)])
    assert isinstance(result.exception, UsageError)
    assert "nothing to check" in str(result.exception)
