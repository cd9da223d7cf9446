"""Work in the page: names, gaps, ranges and arrows, by key and by pointer, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from browsing import IN_A_BROWSER, visiting
from timeline_samples import MS, steady_trace

from cbprof.render.web.timeline import timeline_html

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module", params=[(1400, 900, "light"), (390, 844, "dark")], ids=["desk", "phone"])
def page(
    request: pytest.FixtureRequest, browser: sync_api.Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sync_api.Page]:
    width, height, scheme = request.param
    with visiting(browser, tmp_path_factory.mktemp("pages")) as visit:
        html = timeline_html(steady_trace(100), other=steady_trace(50))
        yield visit(html, width=width, height=height, color_scheme=scheme)


@pytest.fixture(autouse=True)
def first_view(page: sync_api.Page) -> None:
    page.evaluate(f"cbprof.setView({400 * MS}, {440 * MS})")
    page.keyboard.press("Escape")


def view(page: sync_api.Page) -> tuple[float, float]:
    found = page.evaluate("new Promise(done => requestAnimationFrame(() => done(cbprof.view())))")
    return found["start"] / MS, found["end"] / MS


def card(page: sync_api.Page) -> str:
    return page.locator("#card").inner_text()


def find(page: sync_api.Page, text: str) -> str:
    if not page.locator("#wanted:focus").count():
        page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    return page.locator("#message").inner_text()


def test_spans_are_found_by_name(page: sync_api.Page) -> None:
    assert find(page, "LAUNCH") == ""
    assert "Spans named “LAUNCH”" in card(page)
    assert "1 of 100" not in card(page)
    assert "43 of 100: launch, 400.0 µs at 421.500 ms" in card(page)
    assert "launch\t100\t40.00 ms\t400.0 µs" in card(page)
    assert sum(view(page)) / 2 == pytest.approx(421.7)
    page.keyboard.press("]")
    assert "44 of 100" in card(page)
    page.keyboard.press("[")
    page.keyboard.press("[")
    assert sum(view(page)) / 2 == pytest.approx(411.7)
    assert find(page, "no such thing") == "No span has “no such thing” in its name."
    assert find(page, "17") == ""
    assert view(page) == pytest.approx((170 - 0.475, 179.5 + 0.475))


def test_gaps_are_walked_and_told(page: sync_api.Page) -> None:
    page.keyboard.press(".")  # from the middle, 420 ms; the gap there began at 418.6
    assert sum(view(page)) / 2 == pytest.approx((428.6 + 431.7) / 2)
    for line in ("gap of 3.100 ms", "begins at\t428.600 ms", "before step\t43", "launched by\tlaunch"):
        assert line in card(page)
    for line in ("launch began\t2.900 ms after the gap began", "waited for\tschedule, 1.500 ms, 48.39 %"):
        assert line in card(page)
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert "begins at\t408.600 ms" in card(page)
    page.keyboard.press("x")
    assert "length\t1 of 101 by length" in card(page)
    page.keyboard.press("x")
    assert "length\t2 of 101 by length" in card(page)
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()


def test_no_figure_of_a_card_comes_apart_from_its_unit(page: sync_api.Page) -> None:
    page.keyboard.press("x")
    figures = "[...document.querySelectorAll('#card .figure')]"
    assert page.evaluate(f"{figures}.length") > 8
    assert page.evaluate(f"{figures}.filter(each => each.getClientRects().length > 1).length") == 0


def test_a_range_is_chosen_and_told(page: sync_api.Page) -> None:
    page.keyboard.press("r")
    assert "400.000 to 440.000 ms, 40.00 ms" in card(page)
    for line in ("GPU only\t26.80 ms, 67.00 %", "gaps\t5, 12.40 ms in all, longest 3.100 ms"):
        assert line in card(page)
    for line in ("waited for\tschedule, 6.000 ms, 48.39 %", "compute\tcompute\t4\t27.60 ms\t69.00 %"):
        assert line in card(page)
    page.keyboard.press("Escape")
    box = page.locator(".run:first-child .detail .overlay").bounding_box()
    assert box
    gutter = 104 if box["width"] > 640 else 0
    at = [box["x"] + gutter + share * (box["width"] - gutter) for share in (0.25, 0.75)]
    page.keyboard.down("Shift")
    page.mouse.move(at[0], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(at[1], box["y"] + 60, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert view(page) == (400, 440)
    assert "410.000 to 430.000 ms" in card(page)


def test_keys_are_about_the_run_in_hand(page: sync_api.Page) -> None:
    page.keyboard.press("o")
    assert page.locator(".run.taken h2").inner_text() == "GPU idle 30.93 % of 499.5 ms"
    page.keyboard.press("x")
    assert "of 51 by length" in card(page)
    page.keyboard.press("o")
    page.keyboard.press("x")
    assert "of 101 by length" in card(page)


def test_lanes_are_hidden_pinned_and_folded_and_the_address_follows(page: sync_api.Page) -> None:
    height = "document.querySelector('.run .detail').clientHeight"
    before = page.evaluate(height)
    page.keyboard.press("h")
    page.keyboard.press("Space")  # the box that shows the first lane
    assert page.evaluate(height) < before
    page.locator('[aria-label="pin d2h"]').first.check()
    link = page.evaluate("cbprof.link()")
    assert link == f"t={400 * MS}-{440 * MS}&hide=1.0&pin=1.3"
    page.evaluate("new Promise(done => setInterval(() => location.hash === '#' + cbprof.link() && done(), 20))")
    page.evaluate(f"location.hash = 't={100 * MS}-{150 * MS}&run=2&on=blame'")
    page.evaluate("new Promise(done => setInterval(() => cbprof.view().start === 1e8 && done(), 20))")
    assert page.locator(".run.taken h2").inner_text() == "GPU idle 30.93 % of 499.5 ms"
    assert page.locator('[data-action="blame"]').get_attribute("aria-pressed") == "true"
    assert page.evaluate(height) == before
    page.keyboard.press("b")
    page.keyboard.press("o")


def test_the_view_is_saved_as_a_drawing_and_as_an_image(page: sync_api.Page) -> None:
    drawing = ElementTree.fromstring(page.evaluate("cbprof.svg()"))
    texts = " ".join(element.text or "" for element in drawing.iter("{http://www.w3.org/2000/svg}text"))
    for text in ("GPU idle 30.97 % of 999.5 ms", "compute", "neither", "500 ms"):
        assert text in texts
    for key, kind, begin in (("i", "png", b"\x89PNG"), ("v", "svg", b"<svg xmlns")):
        with page.expect_download() as started:
            page.keyboard.press(key)
        assert started.value.suggested_filename == f"timeline.{kind}"
        assert started.value.path().read_bytes().startswith(begin)


def test_every_key_is_listed_and_nothing_is_wider_than_the_window(page: sync_api.Page) -> None:
    page.keyboard.press("?")
    said = page.locator("#help").inner_text()
    assert page.evaluate("document.getElementById('help').scrollTop") == 0
    assert all(
        words in said
        for words in ("find spans by name", "longest gap", "statistics of the view", "launched", "pin lanes", "(PNG)")
    )
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("r")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("j")
