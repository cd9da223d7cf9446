"""``cbprof view``: a folder of traces in the browser."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from cbprof.cli.writing import say


def view(
    folder: Annotated[Path, typer.Argument(help="Where the traces lie, at any depth.", metavar="FOLDER")] = Path(),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: one that is free.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the browser.")] = True,
) -> None:
    """List the traces of a folder in the browser, with their numbers: open them, compare two, follow one being written.

    The page is for this machine and for who knows its address, which holds a secret made for this run. Ctrl-C ends it.

    Examples:

        cbprof view

        cbprof view recordings --port 8080 --no-open
    """
    from cbprof.browse.folder import Folder
    from cbprof.browse.server import Server, Site, serving

    listed = Folder(folder)
    listed.look()
    with serving(Server(Site(listed), port=port)) as server:
        say(f"{server.url}", "Ctrl-C ends it")
        if open_page:
            import webbrowser

            webbrowser.open(server.url)
        signal.pause()  # Ctrl-C comes as KeyboardInterrupt
