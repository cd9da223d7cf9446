"""Puts measured numbers into the tutorial: ``python scripts/lab_tutorial.py LAB_FOLDER/findings.json``.

``findings.json`` is what ``cbprof lab --all -o LAB_FOLDER`` wrote, on whatever machine. Between ``<!-- lab:NAME -->``
and ``<!-- /lab -->`` the tutorial gets the pictures that ``scripts/lab_pictures.py`` made, what the experiment proved
and its table, and nothing else is touched.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"<!-- lab:(?P<name>[\w-]+) -->\n.*?<!-- /lab -->", re.DOTALL)


def lab_tutorial(
    findings: Annotated[Path, typer.Argument(help="The findings.json of a run of the lab.")],
    tutorial: Annotated[Path, typer.Option(help="The file to change.")] = TUTORIAL,
) -> None:
    """Replace the numbers in the tutorial by those of a run of the lab."""
    measured = json.loads(findings.read_text(encoding="utf-8"))
    found = {finding["name"]: finding for finding in measured["findings"] if not finding["skipped"]}
    wrong = [name for name, finding in found.items() if not finding["ok"]]
    if wrong:
        raise SystemExit(f"not as expected: {', '.join(wrong)}; the tutorial is left as it is")

    def filled(block: re.Match[str]) -> str:
        finding = found.get(block["name"])
        if finding is None:
            typer.echo(f"{block['name']}: not measured, left as it is")
            return block[0]
        text = _markdown(finding, measured["device"], _pictures(tutorial, block["name"]))
        return f"<!-- lab:{block['name']} -->\n{text}\n<!-- /lab -->"

    tutorial.write_text(BLOCK.sub(filled, tutorial.read_text(encoding="utf-8")), encoding="utf-8")
    typer.echo(f"wrote {tutorial}")


def _pictures(tutorial: Path, name: str) -> list[str]:
    """The pictures of an experiment that lie beside the tutorial, as links from it."""
    names = (f"pictures/lab/{name}{suffix}" for suffix in (".png", ".chart.png"))
    return [f"![{name}]({picture})" for picture in names if (tutorial.parent / picture).exists()]


def _markdown(finding: dict[str, Any], device: str, pictures: list[str]) -> str:
    """The pictures of an experiment, what it proved, and its table."""
    header, *rows = finding["table"]
    lines = [
        *(line for picture in pictures for line in (picture, "")),
        f"**Measured** ({device}): {finding['proves']}.",
    ]
    if rows:
        lines += ["", _row(header), _row(["---", *["---:"] * (len(header) - 1)]), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    typer.run(lab_tutorial)
