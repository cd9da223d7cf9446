"""Pages in a real browser, for tests: none may complain on the console or ask for anything but itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright import sync_api

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on the PATH"),
]

Visit = Callable[..., "sync_api.Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@contextmanager
def visiting(browser: sync_api.Browser, folder: Path) -> Iterator[Visit]:
    """Opens HTML in a new page and waits until it is drawn; at the end none may have complained."""
    problems: list[str] = []
    contexts = []

    def visit(html: str, *, width: int = 1400, height: int = 800, **options: object) -> sync_api.Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        file = folder / f"{len(contexts)}.html"
        file.write_text(html, encoding="utf-8")
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: problems.append(f"request: {request.url}"))
        page.goto(file.as_uri())
        page.evaluate("cbprof.ready")
        problems[:] = [each for each in problems if each != f"request: {file.as_uri()}"]
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def visit(browser: sync_api.Browser, tmp_path: Path) -> Iterator[Visit]:
    """Opens pages as :func:`visiting` does."""
    with visiting(browser, tmp_path) as visit:
        yield visit
