"""Files in the current folder are never run, whatever they are called and whichever process is started there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from gen_kineto import Loop, generate

NAMES = (
    *("pickle", "struct", "selectors", "json", "signal", "socket", "multiprocessing", "tempfile", "threading", "queue"),
    *("numpy", "msgspec", "torch", "cbprof", "dask", "distributed", "pandas", "sitecustomize", "usercustomize"),
)
TRAP = "from pathlib import Path; Path(__file__).with_suffix('.ran').touch()\n"

PRELUDE = """
import sys
import cbprof.fleet.run
import cbprof.formats.kineto.read
cbprof.fleet.run.WORTH_A_PROCESS = 0
cbprof.formats.kineto.read.HELPED_FROM = -1
from cbprof.cli.main import main
if __name__ == "__main__":
    sys.argv[1:] = %r
    main()
"""

COMMANDS = {
    "a large profile": ["report", "a.json", "--no-cache"],
    "ranks": ["report", "a.json", "b.json"],
    "a fleet": ["fleet", "a.json", "b.json", "--workers", "1", "--quiet"],
    "the host device": ["run", "--mode", "sync", "--new-tokens", "2", "-q", "-o", "run.json"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_nothing_in_the_current_folder_is_run(what: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(TRAP)
    for name in ("a.json", "b.json"):
        generate(tmp_path / name, 2000, Loop())
    program = tmp_path / "programs" / "typed.py"
    program.parent.mkdir()
    program.write_text(PRELUDE % COMMANDS[what])
    path = os.pathsep.join(str(each) for each in map(Path, sys.path) if each != Path())
    done = subprocess.run(
        [sys.executable, "-P", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in tmp_path.glob("*.ran")) == []
