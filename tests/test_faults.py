"""The short half of ``scripts/faults``: full disks that are real ones, and commands that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAULTS = Path(__file__).parents[1] / "scripts" / "faults"


def test_nothing_is_lost() -> None:
    done = subprocess.run([sys.executable, FAULTS, "--short"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is killed" in done.stdout
