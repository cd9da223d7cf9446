"""The timeline in a real browser: pixels are counted, keys pressed, spans hovered. No network, no console errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import IN_A_BROWSER, Visit
from timeline_samples import HOSTILE_NAMES, MS, hostile_trace, steady_trace, two_device_trace

from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.render.picture.scene import scene
from cbprof.render.theme import STATES, UNTRACED
from cbprof.render.web import page as page_module
from cbprof.render.web import viewer_coarse, viewer_data
from cbprof.render.web.page import page as html_page
from cbprof.render.web.page import timeline_content
from cbprof.render.web.timeline import timeline_html
from cbprof.trace import Kind, Lane, Trace, TraceBuilder

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = IN_A_BROWSER

REAL = Path(__file__).parent / "data" / "h200_transformers"
GUTTER = 104  # CSS pixels left of the lanes

# Shares of the colours in the first band of a canvas: its rows that are opaque from end to end (text and grid are not).
COUNT = """
([selector, left]) => {
  const canvas = document.querySelector(selector);
  const from = Math.round(left * devicePixelRatio);
  const [width, height] = [canvas.width - from, canvas.height];
  const copy = new OffscreenCanvas(canvas.width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(from, 0, width, height).data;
  const counts = {};
  let rows = 0;
  for (let y = 0; y < height; y++) {
    const row = pixels.subarray(4 * y * width, 4 * (y + 1) * width);
    let opaque = 0;
    for (let x = 0; x < width; x++) opaque += row[4 * x + 3] === 255;
    if (opaque < width * 0.7) {
      if (rows) break;
      continue;
    }
    rows++;
    for (let x = 0; x < width; x++) {
      const color = "#" + [0, 1, 2].map((i) => row[4 * x + i].toString(16).padStart(2, "0")).join("");
      if (row[4 * x + 3] === 255) counts[color] = (counts[color] ?? 0) + 1;
    }
  }
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  return Object.fromEntries(Object.entries(counts).map(([color, count]) => [color, count / total]));
}
"""

Open = Callable[..., "sync_api.Page"]


@pytest.fixture
def show(visit: Visit) -> Open:
    """Opens the timeline of traces in a page."""

    def show(trace: Trace, other: Trace | None = None, **options: object) -> sync_api.Page:
        return visit(timeline_html(trace, other=other), **options)

    return show


def colors(page: sync_api.Page, canvas: str, left: int = GUTTER) -> dict[str, float]:
    # One expression: the page's security policy forbids the `eval` by which Playwright would pass arguments.
    return page.evaluate(f"({COUNT})({json.dumps([canvas, left])})")


def green(page: sync_api.Page, plot: str, left: int = GUTTER) -> float:
    """The share of a strip or lane in the two greens, in percent."""
    shares = colors(page, f".{plot} .data", left)
    return 100 * sum(shares.get(STATES[key].color, 0) for key in ("overlap", "gpu_only"))


def active(page: sync_api.Page) -> float:
    """The share of the view in which the GPU is active, as the page computes it, in percent."""
    shares = page.evaluate("cbprof.shares()")
    return 100 * (shares["overlap"] + shares["gpu_only"])


def printed(page: sync_api.Page, row: int) -> float:
    return float(page.locator(f".shares tbody tr:nth-child({row}) td").last.inner_text().removesuffix(" %"))


def hover(page: sync_api.Page, wanted: str, t: float) -> str:
    """The tooltip whose text contains ``wanted``, from the lanes at time ``t``."""
    box = page.locator(".detail .overlay").bounding_box()
    view = page.evaluate("cbprof.view()")
    assert box
    x = box["x"] + GUTTER + (box["width"] - GUTTER) * (t - view["start"]) / (view["end"] - view["start"])
    for y in range(int(box["y"]) + 24, int(box["y"] + box["height"]), 8):
        page.mouse.move(x, y)
        text = page.locator("#tip").inner_text() if page.locator("#tip").is_visible() else ""
        if wanted in text:
            return text
    raise AssertionError(f"no tooltip at {t} ns holds {wanted!r}")


@pytest.mark.parametrize("steps", [3, 1000, 12345])
@pytest.mark.parametrize("scale", [1, 1.5])
def test_the_green_area_is_the_share_of_gpu_activity(show: Open, steps: int, scale: float) -> None:
    page = show(steady_trace(steps), device_scale_factor=scale)
    exact = 100 * 6.9 * steps / (10 * steps - 0.5)
    assert green(page, "overview") == pytest.approx(exact, abs=0.3)
    assert printed(page, 2) == pytest.approx(exact, abs=0.05)
    end = page.evaluate("cbprof.setView(0, 1e15), cbprof.view().end")
    assert end == steps * 10 * MS - MS // 2
    for start, stop in ((0, 1), (0.1, 0.9), (0.37, 0.39), (0.501, 0.5012)):
        page.evaluate(f"cbprof.setView({start * end}, {stop * end})")
        assert green(page, "detail") == pytest.approx(active(page), abs=0.3)
        assert printed(page, 1) == pytest.approx(active(page), abs=0.05)


@pytest.mark.parametrize(("name", "idle"), [("sync", 24.336), ("async", 0.232)])
def test_real_runs_are_as_green_as_they_were_measured(show: Open, name: str, idle: float) -> None:
    path = REAL / f"{name}_8b_bs32_8k.json.gz"
    page = show(load(path))
    assert green(page, "overview") == pytest.approx(100 - idle, abs=0.3)
    assert printed(page, 2) == pytest.approx(100 - idle, abs=0.05)
    for start, length in ((0, 5e8), (5e10, 1e9), (1e11, 2e11), (2.01e11, 1e8), (0, 1e12)):
        page.evaluate(f"cbprof.setView({start}, {start + length})")
        assert green(page, "detail") == pytest.approx(active(page), abs=0.3)


def test_the_first_view_is_a_few_steps_and_keys_move_it(show: Open) -> None:
    page = show(steady_trace(1000))

    def view() -> tuple[float, float]:
        found = page.evaluate("new Promise(done => requestAnimationFrame(() => done(cbprof.view())))")
        return found["start"], found["end"]

    start, end = view()
    assert 4 * 10 * MS <= end - start <= 4.5 * 10 * MS
    assert 0.4 < start / (10_000 * MS) < 0.6
    length = end - start
    page.keyboard.press("ArrowRight")
    assert view()[0] == pytest.approx(start + length / 5)
    page.keyboard.press("a")
    assert view()[0] == pytest.approx(start)
    page.keyboard.press("+")
    assert view()[1] - view()[0] == pytest.approx(length / 2)
    page.keyboard.press("s")
    assert view() == pytest.approx((start, end))

    page.keyboard.press("1")
    assert view()[1] - view()[0] == pytest.approx(9.5 * MS * 1.1)
    here = view()[0]
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.keyboard.press("p")
    assert view()[0] == pytest.approx(here + 10 * MS, abs=MS)

    page.keyboard.press("g")
    page.keyboard.type("321")
    page.keyboard.press("Enter")
    assert view() == pytest.approx((3210 * MS - 0.475 * MS, 3219.5 * MS + 0.475 * MS))
    page.keyboard.press("/")
    page.keyboard.type("5000")
    page.keyboard.press("Enter")
    assert page.locator("#message").inner_text() == "No step “5000”: this run has 0 to 999."
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    assert view() == (0, 9999.5 * MS)
    assert "steps 0 to 999" in page.locator("#readout").inner_text()
    page.keyboard.press("f")
    assert page.evaluate("cbprof.arrows()") is False


def test_wheel_drag_and_brush_move_the_view(show: Open) -> None:
    page = show(steady_trace(1000))
    box = page.locator(".detail .overlay").bounding_box()
    strip = page.locator(".overview .overlay").bounding_box()
    assert box
    assert strip
    length = 9999.5 * MS

    def view() -> dict[str, float]:
        return page.evaluate("new Promise(done => requestAnimationFrame(() => done(cbprof.view())))")

    before = view()
    middle = box["x"] + GUTTER + (box["width"] - GUTTER) / 2
    page.mouse.move(middle, box["y"] + 40)
    page.mouse.wheel(0, -300)
    while (after := view()) == before:
        pass
    assert sum(after.values()) == pytest.approx(sum(before.values()))  # what is under the pointer stays there

    page.mouse.down()
    page.mouse.move(middle - 100, box["y"] + 40, steps=4)
    page.mouse.up()
    perpixel = (after["end"] - after["start"]) / (box["width"] - GUTTER)
    assert view()["start"] == pytest.approx(after["start"] + 100 * perpixel, rel=1e-6)

    def at(share: float) -> float:
        return strip["x"] + GUTTER + share * (strip["width"] - GUTTER)

    page.mouse.move(at(0.2), strip["y"] + 30)
    page.mouse.down()
    page.mouse.move(at(0.3), strip["y"] + 30, steps=4)
    page.mouse.up()
    assert tuple(view().values()) == pytest.approx((0.2 * length, 0.3 * length), rel=0.01)
    page.mouse.move(at(0.25), strip["y"] + 30)
    page.mouse.down()
    page.mouse.move(at(0.65), strip["y"] + 30, steps=4)
    page.mouse.up()
    assert tuple(view().values()) == pytest.approx((0.6 * length, 0.7 * length), rel=0.01)
    page.mouse.click(at(0.1), strip["y"] + 30)
    assert sum(view().values()) / 2 == pytest.approx(0.1 * length, rel=0.01)


def test_hovering_tells_what_a_span_is(show: Open) -> None:
    page = show(steady_trace(1000))
    page.evaluate("cbprof.goToStep(41)")
    text = hover(page, "slot\t1", 410.7 * MS)
    for line in ("schedule", "step\t41", "start\t410.000 ms", "duration\t1.500 ms", "state\tCPU only 100.00 %"):
        assert line in text
    for line in ("batch\tdecode", "tokens\t32", "requests\t32", "context\t1,440"):
        assert line in text
    assert "duration\t6.700 ms" in hover(page, "GPU only", 415 * MS)
    page.evaluate("cbprof.setView(0, 1e15)")
    assert "GPU only\t" in hover(page, "states in this pixel", 5000 * MS)
    assert "spans in this pixel" in hover(page, "wait", 5000 * MS)


def test_hostile_names_are_shown_as_text(show: Open) -> None:
    page = show(hostile_trace())
    page.evaluate("cbprof.setView(0, 1e15)")
    for step, name in enumerate(HOSTILE_NAMES):
        hover(page, f"step\t{step}", (10 * step + 5) * MS)
        assert page.locator("#tip .name").evaluate("element => element.textContent") == name
    assert page.evaluate("window.planted") is None
    assert page.locator("i, main img, #tip img").count() == 0
    assert "<i>engine</i>" in page.locator("main header").inner_text()


def test_light_dark_and_print(show: Open) -> None:
    page = show(steady_trace(30), color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(theme) == "dark"
    assert green(page, "overview") == pytest.approx(69, abs=0.5)
    dark = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(theme) == "light"
    assert page.evaluate(background) == "rgb(255, 255, 255)" != dark
    page.keyboard.press("t")
    page.emulate_media(media="print")
    page.locator("html[data-theme=light]").wait_for(state="attached")
    assert page.locator("nav").is_hidden()
    assert page.locator(".shares").is_visible()
    assert len(page.pdf()) > 10_000


def test_a_phone_shows_all_of_it_without_scrolling_sideways(show: Open) -> None:
    page = show(steady_trace(300), width=390, device_scale_factor=3, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert green(page, "overview", left=0) == pytest.approx(69, abs=0.3)
    page.touchscreen.tap(195, page.locator(".detail .overlay").bounding_box()["y"] + 60)  # type: ignore[index]
    assert page.locator("#tip").is_visible()


def test_two_runs_share_one_axis(show: Open) -> None:
    page = show(steady_trace(100), steady_trace(50))
    assert page.locator("h2").all_inner_texts() == ["GPU idle 30.97 % of 999.5 ms", "GPU idle 30.93 % of 499.5 ms"]
    page.evaluate("cbprof.setView(0, 1e15)")
    assert page.evaluate("cbprof.view().end") == 999.5 * MS
    assert page.evaluate("cbprof.shares(1).gpu_only") == pytest.approx(50 * 6.7 / 499.5)
    assert colors(page, ".run:last-child .overview .data") == {}  # half of the strip is empty


def test_each_device_has_a_lane(show: Open) -> None:
    page = show(two_device_trace())
    assert page.locator("h2").inner_text() == "GPU 0 idle 50.00 %, GPU 1 idle 0.00 % of 40.00 ms"
    assert page.locator(".shares tbody th").all_inner_texts()[::2] == ["GPU 0, this view", "GPU 1, this view"]
    assert green(page, "overview") == pytest.approx(50, abs=0.3)
    assert page.evaluate("cbprof.shares(0, 1).overlap") == 1


def test_gaps_are_coloured_by_blame_on_demand(show: Open) -> None:
    trace = steady_trace(1000)
    page = show(trace)
    page.evaluate("cbprof.setView(0, 1e15)")
    green_by_state = green(page, "overview")
    page.keyboard.press("b")
    assert page.locator('[data-action="blame"]').get_attribute("aria-pressed") == "true"
    assert page.locator(".shares thead th").all_inner_texts()[:3] == ["overlap", "GPU only", "schedule"]
    assert green(page, "overview") == pytest.approx(green_by_state, abs=0.01)
    shares = page.evaluate("cbprof.blame()")
    blame = {cause.label: cause.ns for cause in summarize(trace).devices[0].blame.totals()}
    assert shares["schedule"] == pytest.approx(blame["schedule"] / 9999.5e6)
    assert sum(shares.values()) == pytest.approx(1)
    assert 1 - shares["overlap"] - shares["GPU only"] == pytest.approx(sum(blame.values()) / 9999.5e6)
    page.evaluate("cbprof.goToStep(41)")
    assert "duration\t1.500 ms" in hover(page, "schedule", 410.7 * MS)
    page.keyboard.press("b")
    assert page.locator(".shares thead th").all_inner_texts()[:3] == ["overlap", "GPU only", "CPU only"]


def test_a_step_is_laid_over_the_same_step_of_the_other_run(show: Open) -> None:
    later = TraceBuilder()  # as the steady run, but its steps take 12 ms
    for step in range(60):
        later.span(later.lane(Lane("engine")), Kind.CPU_WORK, "launch", step * 12 * MS, MS, step=step)
        later.span(later.lane(Lane("compute", 0)), Kind.GPU_COMPUTE, "compute", step * 12 * MS + MS, 11 * MS, step=step)
    page = show(steady_trace(100), later.build())
    page.evaluate("cbprof.goToStep(41)")
    page.keyboard.press("l")
    view = [page.evaluate(f"cbprof.viewOf({run})") for run in (0, 1)]
    assert view[1]["start"] - view[0]["start"] == 41 * 2 * MS
    page.keyboard.press("n")
    moved = page.evaluate(
        "new Promise(done => requestAnimationFrame(() => done([cbprof.viewOf(0), cbprof.viewOf(1)])))"
    )
    assert moved[1]["start"] - moved[0]["start"] == 42 * 2 * MS
    page.evaluate("cbprof.goToStep(90)")  # the other run has no such step
    assert page.evaluate("cbprof.viewOf(1)") == page.evaluate("cbprof.viewOf(0)")
    page.keyboard.press("l")
    assert page.evaluate("cbprof.viewOf(1)") == page.evaluate("cbprof.view()")


def test_a_deep_stack_is_cut_and_says_so(show: Open) -> None:
    builder = TraceBuilder()
    for depth in range(30):
        builder.span(
            builder.lane(Lane("python")), Kind.CPU_WORK, f"frame {depth}", depth * MS, (100 - 2 * depth) * MS, step=0
        )
    builder.span(builder.lane(Lane("compute", 0)), Kind.GPU_COMPUTE, "compute", 0, 100 * MS, step=0)
    page = show(builder.build())
    height = "document.querySelector('.detail').clientHeight"
    short = page.evaluate(height)
    page.keyboard.press("e")
    assert page.evaluate(height) == short + 22 * 25
    hover(page, "frame 14", 50 * MS)
    page.keyboard.press("e")
    assert page.evaluate(height) == short


def test_help_tells_patterns_and_keys(show: Open) -> None:
    page = show(steady_trace(30))
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert "the GPU waits for the CPU" in page.locator("#help").inner_text()
    view = page.evaluate("cbprof.view()")
    page.keyboard.press("w")
    assert page.evaluate("cbprof.view()") == view
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_a_run_too_long_for_all_its_spans_is_as_green_and_opens_on_single_spans(
    visit: Visit,
) -> None:
    content = timeline_content([scene(steady_trace(12345))], most_spans=7000)
    page = visit(html_page("timeline", title="", content=content))
    assert green(page, "overview") == pytest.approx(69, abs=0.3)
    assert page.evaluate("cbprof.shares()") == pytest.approx(
        {"overlap": 0.02, "gpu_only": 0.67, "cpu_only": 0.24, "neither": 0.07, **dict.fromkeys(UNTRACED, 0)}, abs=0.03
    )
    middle = page.evaluate("(cbprof.view().start + cbprof.view().end) / 2")
    hover(page, "compute", middle // (10 * MS) * 10 * MS + 4 * MS)
    for start, end in ((0, 1e15), (1.01e10, 1.02e10), (3e10, 9e10)):
        page.evaluate(f"cbprof.setView({start}, {end})")
        assert green(page, "detail") == pytest.approx(active(page), abs=0.4)
        assert "stretches marked" in page.locator("#readout").inner_text()
    assert "spans in this pixel" in hover(page, "wait", 6e10)
    page.evaluate("cbprof.goToStep(12340)")
    hover(page, "step\t12,340", 123_404 * MS)
    page.keyboard.press("g")
    page.keyboard.type("1500")
    page.keyboard.press("Enter")
    assert "holds only the steps" in page.locator("#message").inner_text()


def test_the_page_heeds_another_order_of_the_states(monkeypatch: pytest.MonkeyPatch, show: Open) -> None:
    usual = show(steady_trace(100)).evaluate("cbprof.setView(0, 1e15), [cbprof.shares(), cbprof.blame()]")
    for module in (page_module, viewer_coarse, viewer_data):
        monkeypatch.setattr(module, "STATES", dict(reversed(STATES.items())))
    page = show(steady_trace(100))
    assert page.locator(".shares thead th").all_inner_texts()[:4] == ["neither", "CPU only", "GPU only", "overlap"]
    assert green(page, "overview") == pytest.approx(100 * 690 / 999.5, abs=0.3)
    assert printed(page, 2) == pytest.approx(100 * 690 / 999.5, abs=0.05)
    assert page.evaluate("cbprof.setView(0, 1e15), [cbprof.shares(), cbprof.blame()]") == usual
    assert active(page) == pytest.approx(100 * 690 / 999.5)
    assert "duration\t6.700 ms" in hover(show(steady_trace(3)), "GPU only", 5 * MS)


ONE = [(0, Kind.GPU_COMPUTE, "compute", 0, 5 * MS, -1)]
HOST_ONLY = [(-1, Kind.CPU_WORK, "schedule", MS, MS, 0), (-1, Kind.CPU_WAIT, "wait", 2 * MS, MS, 0)]
ONE_STEP = [(-1, Kind.CPU_WORK, "launch", 0, MS, 7), (0, Kind.GPU_COMPUTE, "compute", MS, 3 * MS, 7)]
INSTANT = [(0, Kind.GPU_COMPUTE, "compute", 5, 0, 0)]


@pytest.mark.parametrize(
    ("spans", "title"),
    [
        ([], "Empty trace: no spans"),
        (ONE, "GPU idle 0.00 % of 5.000 ms"),
        (HOST_ONLY, "No GPU activity recorded in 2.000 ms"),
        (ONE_STEP, "GPU idle 25.00 % of 4.000 ms"),
        (INSTANT, "GPU idle unknown of 1 ns"),
    ],
)
def test_small_traces_give_a_sensible_picture(
    show: Open, spans: list[tuple[int, Kind, str, int, int, int]], title: str
) -> None:
    builder = TraceBuilder()
    for device, kind, name, start, dur, step in spans:
        builder.span(builder.lane(Lane("lane", device)), kind, name, start, dur, step=step)
    trace = builder.build()
    for page in (show(trace), show(trace, steady_trace(3), width=390)):
        assert page.locator("h2").first.inner_text() == title
        assert page.locator("#loading").count() == 0
        for key in ("0", "+", "n", "p", "1", "ArrowRight", "-", "f", "t"):
            page.keyboard.press(key)
