"""Takes the pictures of the README: ``python scripts/screenshot.py PAGE.html PICTURE.png [--width 1400]``.

Needs Chromium (or Chrome) on the PATH and the ``dev`` extra. ``--grey`` shows how the page prints without colour.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer


def screenshot(
    page: Annotated[Path, typer.Argument(help="What `cbprof plot` wrote.")],
    picture: Annotated[Path, typer.Argument(help="The PNG to write.")],
    width: Annotated[int, typer.Option(help="Width of the window in CSS pixels.")] = 1400,
    scale: Annotated[float, typer.Option(help="Device pixels a CSS pixel.")] = 1.5,
    script: Annotated[str, typer.Option(help="JavaScript to run first, such as `cbprof.goToStep(100)`.")] = "",
    grey: Annotated[bool, typer.Option(help="In shades of grey.")] = False,
) -> None:
    """Draw a page of cbprof in headless Chromium and save what is seen."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on the PATH: install it first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": width, "height": 200}, device_scale_factor=scale)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("window.cbprof && window.cbprof.ready")
        if script:
            tab.evaluate(script)
            tab.wait_for_timeout(300)
        if grey:
            tab.add_style_tag(content="html { filter: grayscale(1) }")
        tab.screenshot(path=picture, full_page=True)
        browser.close()


if __name__ == "__main__":
    typer.run(screenshot)
