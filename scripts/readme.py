"""Walks the README: each command that it prints, as printed, in a clean clone and a clean environment.

::

    .venv/bin/python scripts/readme.py             # with the packages of this .venv, and the code of the clone
    python3 scripts/readme.py --fresh              # the clone makes a .venv of its own first, as the README says

Commands are the lines of the shell blocks, the steps of the CI snippet, and the first one of each row of the table.
RULES replace what needs a GPU, vLLM or a file of the reader's own, and skip what CI does anyway; they say why.
Exit code 1 where a command fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

SERVE = "import sys; sys.path.insert(0, 'tests'); import transformers_batching as t; t.generate(t.tiny_model())\n"
ENGINE = """from cbprof import Tracer
with Tracer(device="none") as tracer:
    for number in range(9):
        with tracer.step(number), tracer.cpu("schedule"):
            pass
"""
FILES = {
    "engine.py": f"cat > engine.py <<'E'\n{ENGINE}E",
    "serve.py": f"cat > serve.py <<'E'\n{SERVE}E",
    "profile.pt.trace.json.gz": "cp sample_traces/h200_8b/long.sync.cupti.json.gz profile.pt.trace.json.gz",
    "before.json": "gunzip -c sample_traces/tiny_cpu.sync.json.gz > before.json",
    "after.json": "gunzip -c sample_traces/tiny_cpu.async.json.gz > after.json",
    "trace.json": "gunzip -c sample_traces/tiny_cpu.async.json.gz > trace.json",
}
"""What the reader is taken to have, and how the walk makes it before the first command that names it."""


class Rule(NamedTuple):
    """For commands in which ``pattern`` is found: what to put in its place, or None to skip the command."""

    pattern: str
    replacement: str | None
    why: str


RULES = (
    Rule(r"^scripts/demo$", None, "CI tests what it runs; --fresh runs it"),
    Rule(r"^scripts/test$", None, "this is what CI runs before the walk"),
    Rule(r"^pip install|^pipx install", None, "CI installs the package in a job of its own"),
    Rule(
        r"^cbprof record (.*)-o (\S+) -- vllm serve.*",
        r"gunzip -c sample_traces/h200_vllm/vllm.sync.json.gz > \2",
        "vLLM",
    ),
    Rule(r"^cbprof record --metrics .* -- vllm serve.*", "cbprof record --metrics 0 -f -- python engine.py", "vLLM"),
    Rule(r"--model llama-8b", "--model tiny", "a GPU"),
    Rule(r"--new-tokens 512", "--new-tokens 16", "a GPU"),
    Rule(
        r"^cbprof view (\S+)$",
        r"timeout --preserve-status -s INT 3 cbprof view sample_traces || test $? = 130",
        "it ends with Ctrl-C",
    ),
    Rule(r"^cbprof lab --all$", "cbprof lab turns", "one experiment, not eleven"),
)
ANSWERS = ("cbprof check", "cbprof compare", "cbprof hazards", "cbprof doctor", "cbprof baseline compare")
"""These may answer "no", exit code 1: of a machine that is shared by others, too."""


class Command(NamedTuple):
    """``line``: where it stands in the README. ``codes``: the exit codes that are right. ``in_ci``: of the snippet."""

    line: int
    text: str
    codes: tuple[int, ...] = (0,)
    in_ci: bool = False


def commands(readme: str) -> list[Command]:
    """All commands of the README, from the top."""
    found, fence = [], ""
    for number, line in enumerate(readme.splitlines(), 1):
        if line.startswith("```"):
            fence = "" if fence else line.removeprefix("```") or "text"
        elif fence == "bash" and (text := re.sub(r"(^|\s)#.*", "", line).strip()):
            found.append(Command(number, text))
        elif fence == "yaml" and (step := re.match(r"- run: (.*)", line)):
            found.append(Command(number, step[1], codes_of(step[1]), in_ci=True))
        elif not fence and (row := re.match(r"\| [^|]*\?[^|]* \| `(cbprof [^`]+)`", line)):
            found.append(Command(number, row[1], codes_of(row[1])))
    return found


def codes_of(command: str) -> tuple[int, ...]:
    return (0, 1) if command.startswith(ANSWERS) else (0,)


def adapted(command: str) -> tuple[str | None, str]:
    """What to run instead of the command, None for nothing, and why; "" where it runs as printed."""
    reasons = []
    for rule in RULES:
        if re.search(rule.pattern, command):
            reasons.append(rule.why)
            if rule.replacement is None:
                return None, rule.why
            command = re.sub(rule.pattern, rule.replacement, command)
    return command, ", ".join(dict.fromkeys(reasons))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="set up a .venv in the clone, with scripts/demo")
    fresh = parser.parse_args().fresh
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory(prefix="readme-") as folder:
        clone = Path(folder, "cbprof")
        clean_clone(clone)
        committed = files_in(clone)
        environment = clean_environment(Path(folder), clone, fresh=fresh)
        cleaned = False
        for command in commands((clone / "README.md").read_text(encoding="utf-8")):
            text, why = adapted(command.text)
            if text is None and fresh and command.text == "scripts/demo":
                text, why = command.text, ""
            if command.in_ci and not cleaned:  # a runner has what is committed, and nothing else
                cleaned = True
                for path in files_in(clone) - committed - {clone / "baseline.json"}:
                    path.unlink()
            counts["skipped" if text is None else walk(command, text, why, clone, environment)] += 1
            if text is None:
                print(f"skip {command.line:4}  {command.text}  ({why})", flush=True)
    print("readme:", ", ".join(f"{number} {what}" for what, number in counts.items()))
    return int(counts["failed"] > 0 or not counts["passed"])


def clean_clone(clone: Path) -> None:
    """What is committed; where this is no repository of ours, such as an unpacked archive, what is here."""
    done = subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), clone], check=False, capture_output=True
    )
    if done.returncode:
        made = (".git", ".venv", "node_modules", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
        shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*made), dirs_exist_ok=True)


def files_in(clone: Path) -> set[Path]:
    """All but those of the repository and of the environment."""
    return {
        path
        for folder in clone.iterdir()
        if folder.name not in (".git", ".venv")
        for path in (folder, *folder.rglob("*"))
        if not path.is_dir()
    }


def clean_environment(home: Path, clone: Path, *, fresh: bool) -> dict[str, str]:
    """Nothing of the user's, except how their pip finds packages."""
    binaries = clone / ".venv/bin" if fresh else Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    return kept | {
        "PATH": os.pathsep.join(
            (str(binaries), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")
        ),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "BROWSER": "true",  # a browser that opens nothing
        "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
        **({} if fresh else {"PYTHONPATH": str(clone)}),
    }


def walk(command: Command, text: str, why: str, clone: Path, environment: dict[str, str]) -> str:
    """Run a command in the clone; "passed" or "failed"."""
    for name, make in FILES.items():
        if name in text.split() and not (clone / name).exists() and f"-o {name}" not in text:
            subprocess.run(["bash", "-euc", make], cwd=clone, check=True)
    begun = time.perf_counter()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    passed = done.returncode in command.codes and "Traceback (most recent call last)" not in done.stdout
    told = f"{command.text}" if text == command.text else f"{command.text}  (instead: {text}; {why})"
    print(f"{'ok  ' if passed else 'FAIL'} {command.line:4}  {told}  {time.perf_counter() - begun:.1f} s", flush=True)
    if not passed:
        print(f"exit code {done.returncode}\n{done.stdout}", flush=True)
    return "passed" if passed else "failed"


if __name__ == "__main__":
    sys.exit(main())
