"""How commands write: a result in the form that was asked for, and files only where they can be."""

from __future__ import annotations

from collections.abc import Iterable
from errno import ENAMETOOLONG
from os.path import isdir, isfile  # unlike Path's, False for any name that cannot be
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cbprof.cli.options import Format
from cbprof.errors import UsageError
from cbprof.files import check_not_among, check_takes_files
from cbprof.names import plain

if TYPE_CHECKING:
    from cbprof.render.views.view import View


def show(view: View, *, json: bool = False, layout: Format = Format.text) -> None:
    """Print a result: as JSON, as Markdown, or as tables for the terminal."""
    if json:
        show_json(view.to_json())
    elif layout is Format.md:
        typer.echo(view.to_markdown())
    else:
        view.print()


def say(*lines: str, err: bool = False) -> None:
    """Print lines that may hold the names of files, whatever those hold."""
    for line in lines:
        typer.echo(plain(line), err=err)


def show_json(data: dict[str, object]) -> None:
    """Print plain data."""
    from json import dumps

    typer.echo(dumps(data, indent=1))


def check_output(output: Path, *, inputs: Iterable[Path] = ()) -> None:
    """Raise :class:`UsageError` where ``output`` cannot be a file, or would replace one of ``inputs``.

    Raises :class:`CbprofError` where the disk is full.
    """
    if isdir(output) or not output.name:
        raise UsageError(f"{output}: is a folder; give --output the name of a file")
    if not isdir(output.parent):
        raise UsageError(f"{output}: there is no folder {output.parent}; create it, or write elsewhere")
    try:
        output.stat()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise UsageError(f"{output}: cannot be written: {error.strerror}; choose a shorter name") from None
    else:
        if not isfile(output):
            raise UsageError(f"{output}: is not a file; give the output another name")
    check_not_among(output, inputs)
    check_takes_files(output.parent, output, "the output")


def check_is_new(outputs: Iterable[Path], *, force: bool) -> None:
    """Raise :class:`UsageError` where a recording is there already, which no other run would give again."""
    for output in outputs:
        if isfile(output) and not force:
            raise UsageError(f"{output}: is there already; give --force to replace it, or --output another name")
