"""Where the command line starts: the verbs, and the one place that turns errors into exit codes.

Exit codes: 0 fine, 1 a limit, a hazard or a difference was found, 2 usage, 3 data that cannot be read or written, 130
Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from cbprof import __version__
from cbprof.cli import (
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
)
from cbprof.errors import CbprofError

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
app.command()(compare.compare)
app.command()(requests.requests)
app.command()(predict.predict)
app.command()(hazards.hazards)
app.command()(check.check)
app.command()(convert.convert)
app.command()(doctor.doctor)
app.command()(lab.lab)
app.command()(fleet.fleet)


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name may hold what the terminal cannot show
    try:
        app()
    except CbprofError as error:
        if os.environ.get("CBPROF_DEBUG"):
            raise
        typer.echo(f"cbprof: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as in `cbprof report FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        why = error.strerror or error
        if error.filename is not None:  # a file that its reader or writer did not speak of
            typer.echo(f"cbprof: {error.filename}: cannot be used: {why}; check the name and who may use it", err=True)
        else:  # stdout, the only file without a name here
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            typer.echo(f"cbprof: cannot write the output: {why}; make room, or write elsewhere", err=True)
        sys.exit(3)
