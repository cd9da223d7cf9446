"""Takes the pictures of the tutorial: ``python scripts/lab_pictures.py LAB_FOLDER PICTURE_FOLDER``.

``LAB_FOLDER`` is what ``cbprof lab --all -o`` wrote, on whatever machine. Each timeline and each chart in it becomes
``NAME.png``; a chart beside a timeline becomes ``NAME.chart.png``. Needs what ``scripts/screenshot.py`` needs.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from screenshot import screenshot

from cbprof.analysis.accounting.window import run_window
from cbprof.formats import load

PAGE = "index.html"


def lab_pictures(
    lab: Annotated[Path, typer.Argument(help="What `cbprof lab --all -o` wrote.")],
    pictures: Annotated[Path, typer.Argument(help="Where the PNGs go.")],
    width: Annotated[int, typer.Option(help="Width of a timeline in CSS pixels.")] = 1100,
) -> None:
    """Draw every timeline and every chart of the lab."""
    pictures.mkdir(parents=True, exist_ok=True)
    for page in sorted(lab.glob("*.html")):
        if page.name != PAGE:
            screenshot(page, pictures / f"{page.stem}.png", width=width, script=view_both(lab, page.stem))
            typer.echo(pictures / f"{page.stem}.png")
    for chart in sorted(lab.glob("*.svg")):
        draw_svg(chart, pictures / f"{chart.stem}.chart.png")
        typer.echo(pictures / f"{chart.stem}.chart.png")


def view_both(lab: Path, name: str) -> str:
    """JavaScript that moves the first view to where both runs of a page have steps: the middle of the shorter one."""
    windows = [run_window(load(trace)) for trace in lab.glob(f"{name}.*.json.gz")]
    middle = min(window.length_ns for window in windows if window is not None) // 2
    return (
        f"{{ const v = cbprof.view(), half = (v.end - v.start) / 2; cbprof.setView({middle} - half, {middle} + half) }}"
    )


def draw_svg(chart: Path, picture: Path, scale: float = 2.0) -> None:
    """Save an SVG file as a PNG, ``scale`` device pixels a CSS pixel."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on the PATH: install it first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(device_scale_factor=scale)
        tab.set_content(chart.read_text(encoding="utf-8"))
        tab.locator("svg").screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    typer.run(lab_pictures)
