"""What ``cbprof run`` can refuse, it refuses before an engine is opened: no model is loaded, and no file is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import cbprof

from cbprof.engine.model.wanted import check_wanted


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models that cannot be; opening an engine fails the test."""

    def opened(*_: object) -> None:
        pytest.fail("an engine was opened")

    monkeypatch.setattr("cbprof.record.session.open_engine", opened)
    for name, config in {
        "empty": None,
        "broken": "{",
        "list": "[]",
        "short": '{"max_position_embeddings": 64}',
    }.items():
        (tmp_path / name).mkdir()
        if config is not None:
            (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "file").write_text("")
    (tmp_path / "trace.sync.json").write_text("older")
    return tmp_path


@pytest.mark.parametrize("engine", ["cbprof", "transformers"])
@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        ("--model gpt-9", "unknown model 'gpt-9'; give tiny,", 2),
        ("--model ./nowhere", "there is no folder ./nowhere", 2),
        ("--model empty", "empty: the folder has no config.json", 3),
        ("--model broken", "broken/config.json: not JSON", 3),
        ("--model file", "file is a file; give the folder", 3),
        ("--model short", "short knows 64 positions, but a request may have 544 tokens", 2),
        ("--prompt-len 20000", "tiny knows 16384 positions, but a request may have 20512 tokens", 2),
        ("--dtype int8", "dtype 'int8' is not one of float32,", 2),
        ("--cupti 2:4", "--cupti needs a CUDA device", 2),
        ("-o nowhere/t.json", "there is no folder nowhere", 2),
        ("-o /proc/t.json", "/proc/t.json: cannot write the output", 2),
        ("-o trace.json", "trace.sync.json: is there already; give --force", 2),
    ],
)
def test_before_an_engine_is_opened(folder: Path, engine: str, arguments: str, message: str, code: int) -> None:
    there = set(folder.rglob("*"))
    device = "cpu" if engine == "transformers" else "host"
    wanted = ["run", "--engine", engine, "--device", device, "--mode", "both", "-o", "new.json", *arguments.split()]
    done = cbprof(*wanted, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert message in done.stderr
    assert set(folder.rglob("*")) == there


@pytest.mark.parametrize("said", [{}, {"max_position_embeddings": None}, {"max_position_embeddings": 10**9}])
def test_what_is_not_known_yet_is_left_to_the_engine(tmp_path: Path, said: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(said))
    check_wanted(str(tmp_path), "auto", 10**6)
    check_wanted("owner/name", "float16", 10**6)


def test_an_unreadable_configuration_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")

    def denied(*_: object, **__: object) -> Callable[..., str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(Exception, match=r"config.json: cannot be read: Permission denied"):
        check_wanted(str(tmp_path), "auto", 1)
