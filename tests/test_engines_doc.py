"""docs/engines.md quotes figures of public traces, and commands: both are as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.main import get_command

from cbprof.analysis.summary import Summary, summarize
from cbprof.cli.main import app
from cbprof.formats import load
from cbprof.trace import Trace

ROOT = Path(__file__).parents[1]
PUBLIC = ROOT / "tests" / "data" / "public"
TEXT = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())


def public(name: str) -> tuple[Trace, Summary]:
    trace = load(PUBLIC / name)
    return trace, summarize(trace)


def test_vllm() -> None:
    trace, summary = public("tracelens_vllm_decode_full_rocm.json.gz")
    assert trace.evidence == "cupti"
    assert [int(column[0]) for column in (trace.steps.requests, trace.steps.context)] == [32, 55_086]
    assert "with 32 requests in the step, 1,721 tokens of context each" in PROSE
    assert 55_086 // 32 == 1_721
    device = summary.devices[0]
    assert (f"{device.idle_pct:.2f}", len(device.gaps)) == ("0.24", 433)
    assert summary.verdict.sentence in PROSE


def test_sglang() -> None:
    trace, summary = public("tracelens_sglang_qwen3_8b_decode_mi300x.json.gz")
    assert int(trace.steps.requests[0]) == 32
    assert "step[DECODE bs=32]" in trace.names
    device = summary.devices[0]
    assert not summary.reliable
    assert any(warning.startswith("records are missing") for warning in summary.warnings)
    assert f"at the head of its stream for {device.missing_ns / 1e6:.1f} ms" in PROSE
    rest = f"{(device.window.length_ns - device.missing_ns) / 1e6:.1f} ms that are left"
    assert f"{rest} the GPU was idle {device.idle_pct_excl_missing:.1f} %" in PROSE


def test_every_command_has_the_options_that_are_shown() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"^\$ cbprof (.+?)(?:  +#.*)?$", TEXT, flags=re.MULTILINE)
    assert len(shown) > 5
    for line in shown:
        verb, *words = shlex.split(line)
        known = {option for parameter in commands[verb].params for option in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("-")} <= known, line
