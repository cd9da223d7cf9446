"""Results of limits in the forms that CI systems read: GitHub annotations and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from cbprof.analysis.gate.limits import LimitResult
from cbprof.files import write_whole
from cbprof.names import plain


def github_annotation(result: LimitResult, trace: str) -> str:
    """One workflow command: an error where the limit was broken, else a notice.

    The escapes are those of GitHub's toolkit (actions/toolkit, packages/core/src/command.ts).
    """
    level = "notice" if result.passed else "error"
    title = _escaped(f"cbprof check {result.name}").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escaped(f'{trace}: {result.text}')}"


def _escaped(text: str) -> str:
    return "%0A".join(plain(line).replace("%", "%25") for line in text.split("\n"))


def junit_xml(results: Sequence[LimitResult], trace: str) -> str:
    """A test suite with one test case a limit."""
    suite = ElementTree.Element(
        "testsuite",
        name="cbprof check",
        tests=str(len(results)),
        failures=str(sum(not result.passed for result in results)),
    )
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", classname=plain(trace), name=result.name)
        if result.passed:
            ElementTree.SubElement(case, "system-out").text = plain(result.text)
        else:
            ElementTree.SubElement(case, "failure", message=plain(result.text))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def write_junit(results: Sequence[LimitResult], trace: str, path: Path, *, of: Iterable[Path] = ()) -> None:
    """Write :func:`junit_xml`, whole or not at all. Raises :class:`CbprofError` where that fails."""
    write_whole(path, junit_xml(results, trace).encode("utf-8"), "the JUnit report", of=of)
