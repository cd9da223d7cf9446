"""The page about a fleet in a real browser."""

from __future__ import annotations

from pathlib import Path

from browsing import IN_A_BROWSER, Visit
from fleet_samples import small_report

from cbprof.render.web.ranks_page import ranks_html

pytestmark = IN_A_BROWSER


def test_the_heat_map_answers_the_pointer(visit: Visit, tmp_path: Path) -> None:
    page = visit(ranks_html(small_report(tmp_path)))
    box = page.locator(".heat img").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 3)
    assert page.inner_text(".heat output") == "rank 3, 0.0 ms: idle 0 %"
    page.mouse.move(5, 5)
    assert page.locator(".heat output").is_hidden()


def test_it_fits_a_phone(visit: Visit, tmp_path: Path) -> None:
    page = visit(ranks_html(small_report(tmp_path)), width=390, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
