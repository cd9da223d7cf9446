"""Where the command line starts: the verbs, and the one place that turns errors into exit codes.

Exit codes: 0 fine, 1 a limit, a hazard or a difference was found, 2 usage, 3 data that cannot be read or written, 130
Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from cbprof import __version__
from cbprof.cli import (
    baseline,
    check,
    compare,
    convert,
    doctor,
    fleet,
    hazards,
    lab,
    plot,
    predict,
    record,
    report,
    requests,
    run,
    view,
)
from cbprof.cli.writing import say
from cbprof.errors import CbprofError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

app = typer.Typer(
    name="cbprof",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cbprof {__version__}")
        raise typer.Exit


@app.callback()
def cbprof(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How long the GPU waited for the CPU, what it waited for, and what removing it would bring.

    Start with `cbprof run`: it serves a small workload twice, one batch after the other and one batch ahead, and
    says what the difference is. Then look at it: `cbprof plot trace.sync.json trace.async.json`.
    """


app.command()(run.run)
app.command(context_settings={"allow_interspersed_args": False})(record.record)
app.command()(report.report)
app.command()(plot.plot)
app.command()(view.view)
app.command()(compare.compare)
app.command()(requests.requests)
app.command()(predict.predict)
app.command()(hazards.hazards)
app.command()(check.check)
app.add_typer(baseline.app, name="baseline")
app.command()(convert.convert)
app.command()(doctor.doctor)
app.command()(lab.lab)
app.command()(fleet.fleet)


class _Outlet(FileIO):
    """A standard stream. Once its reader has gone, as in ``cbprof check FILE | head -1``, what is written goes nowhere:
    the command goes on to its end, and its exit code is what it would be."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            to_nowhere(self.fileno())
            return super().write(data)


def outliving_its_reader(stream: TextIO) -> TextIO:
    """The same stream as an :class:`_Outlet`, where it is the process' own. What its encoding lacks is replaced: a name
    may hold what the terminal cannot show."""
    if not isinstance(stream, TextIOWrapper):
        return stream
    if stream not in (sys.__stdout__, sys.__stderr__):
        stream.reconfigure(errors="replace")
        return stream
    outlet = BufferedWriter(_Outlet(stream.fileno(), "w", closefd=False))
    return TextIOWrapper(outlet, stream.encoding, "replace", line_buffering=stream.line_buffering)


def to_nowhere(descriptor: int) -> None:
    """From now on the descriptor takes everything and keeps nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def main() -> None:
    """Run the command line and exit."""
    sys.stdout, sys.stderr = outliving_its_reader(sys.stdout), outliving_its_reader(sys.stderr)
    too_large = False
    try:
        app()
    except CbprofError as error:
        if os.environ.get("CBPROF_DEBUG"):
            raise
        say(f"cbprof: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError:
        too_large = True  # said below, where what filled the memory is gone
    except OSError as error:
        why = error.strerror or error
        if error.filename is not None:  # a file that its reader or writer did not speak of
            say(f"cbprof: {error.filename}: cannot be used: {why}; check the name and who may use it", err=True)
        else:  # stdout, the only file without a name here
            to_nowhere(sys.stdout.fileno())
            say(f"cbprof: cannot write the output: {why}; make room, or write elsewhere", err=True)
        sys.exit(3)
    if too_large:
        say("cbprof: this takes more memory than there is; do it where there is more, or record fewer steps", err=True)
        sys.exit(3)
