"""Takes a picture of what a terminal shows: ``python scripts/terminal_picture.py TRACE [TRACE] PICTURE.png``.

Draws what ``cbprof plot --term`` prints in a window of 24-bit colour. Needs what ``scripts/screenshot.py`` needs.
"""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.terminal_theme import MONOKAI

from cbprof.formats import load
from cbprof.render.terminal.pictures import terminal_plot


def terminal_picture(
    traces: Annotated[list[Path], typer.Argument(help="One trace, or two, and the PNG to write.")],
    columns: Annotated[int, typer.Option(help="Width of the terminal.")] = 100,
    scale: Annotated[float, typer.Option(help="Device pixels a CSS pixel.")] = 1.5,
) -> None:
    """Draw the terminal picture of a trace and save it."""
    from playwright.sync_api import sync_playwright

    *sources, picture = traces
    console = Console(record=True, force_terminal=True, color_system="truecolor", width=columns, file=io.StringIO())
    console.print(terminal_plot([load(source) for source in sources], height=50))
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="cbprof", theme=MONOKAI), flags=re.DOTALL)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on the PATH: install it first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900}, device_scale_factor=scale)
        tab.set_content(f'<body style="margin: 0">{svg}</body>')
        tab.locator("svg").first.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    typer.run(terminal_picture)
