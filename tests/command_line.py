"""The command line in this process. What has to be a process of its own is started by the tests that need it."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from cbprof.cli.main import main


def cbprof(*arguments: str, cwd: Path, columns: int = 120) -> subprocess.CompletedProcess[str]:
    """What ``cbprof ARGUMENTS`` prints in the folder, and its exit code."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        patch.object(sys, "argv", ["cbprof", *arguments]),
        patch.dict("os.environ", {"COLUMNS": str(columns), "NO_COLOR": "1"}),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())
