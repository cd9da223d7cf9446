"""The report page: its sentence, its parts, its size; in a browser it draws its charts and asks for nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browsing import IN_A_BROWSER, Visit
from hypothesis import given, settings
from timeline_samples import HOSTILE_NAMES, hostile_trace, long_trace, steady_trace, two_device_trace
from trace_samples import traces

from cbprof.errors import CbprofError, DataError
from cbprof.formats import load
from cbprof.render.web.report_page import report_html, write_report
from cbprof.render.words.report import analyse_run, gist
from cbprof.trace import Trace, TraceBuilder

REAL = Path(__file__).parent / "data" / "h200_transformers"
STACKS = Path(__file__).parent / "data" / "vllm_stacks.json.gz"


def sentences(trace: Trace) -> list[str]:
    return gist([analyse_run(trace, "trace.json")])


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_the_sentence_comes_first() -> None:
    (sentence,) = sentences(steady_trace(100))
    assert re.fullmatch(
        r'The GPU waited 30\.97 % of 999\.5 ms; \d\d\.\d\d % of that for "schedule"; async would take \d{3}\.\d ms\.',
        sentence,
    )
    page = report_html({"trace.json": steady_trace(100)})
    assert page.index("The GPU waited 30.97 %") < page.index("<h2>")
    assert sentences(TraceBuilder().build()) == ["How long the GPU waited is unknown: no work of it is in the trace."]


def test_the_parts_are_there_if_they_have_something_to_say() -> None:
    one = ["Timeline", "What the GPU waited for", "Steps", "What if the host worked one batch ahead?", "Hazards"]
    rest = ["Figures", "How it was measured"]
    assert headings(report_html({"a.json": steady_trace(30)})) == [*one, *rest]
    both = report_html({"a.json": steady_trace(30), "b.json": steady_trace(20)})
    assert headings(both) == ["Timeline", "Side by side", *one[1:], *rest]
    assert "<h3>b.json</h3>" in both  # both are sync, so that files tell them apart
    assert headings(report_html({"none.json": TraceBuilder().build()})) == ["Timeline", *rest]


def test_warnings_are_not_to_be_missed() -> None:
    page = report_html({"a.json": steady_trace(5, complete=False)})
    assert re.search(r'<li class="warning">incomplete trace', page)
    assert "cut short" in page


def test_a_long_run_fits_in_three_megabytes() -> None:
    long = long_trace(8192)
    assert len(report_html({"before.json": long, "after.json": long})) < 3_000_000
    assert len(report_html({"short.json": steady_trace(3)})) < 800_000


def test_names_cannot_break_out_and_the_page_needs_no_network() -> None:
    page = report_html({"</script><b>.json": hostile_trace()})
    page.encode("utf-8")
    assert "<script>window" not in page
    assert "<b>lane" not in page
    assert page.count("</script>") == 4  # the data, the charts, plotly, the scripts
    assert "{{" not in page
    assert not re.search(r'(?:src|href)="(?!data:,")|@import', page)
    figures = re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)
    assert figures
    assert json.loads(figures[1])


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_report({"a.json": steady_trace(3)}, tmp_path / "report.html")
    with pytest.raises(CbprofError, match="cannot write the report"):
        write_report({"a.json": steady_trace(3)}, tmp_path / "missing" / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@given(trace=traces())
@settings(max_examples=10)
def test_any_trace_gives_a_report_or_one_clear_line(trace: Trace) -> None:
    problem = page = ""
    try:
        page = report_html({"a.json": trace})
    except DataError as error:
        problem = str(error)
    assert page or len(problem.splitlines()) == 1


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    def test_all_charts_are_drawn(self, visit: Visit) -> None:
        page = visit(report_html({"a.json": steady_trace(300), "b.json": steady_trace(200)}))
        charts = page.locator(".chart")
        assert charts.count() == 2 + 4 + 4 + 2
        assert page.locator(".chart .main-svg").count() >= charts.count()
        assert page.locator("h2").first.inner_text() == "Timeline"
        assert page.locator(".run h2").all_inner_texts() == [
            "GPU idle 30.99 % of 2.999 s",
            "GPU idle 30.98 % of 2.000 s",
        ]
        before = page.evaluate("cbprof.view()")
        page.locator(".detail .overlay").first.hover()
        page.mouse.wheel(0, 200)  # scrolls the page, and does not zoom
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("cbprof.view()") == before

    def test_hostile_names_are_shown_as_text(self, visit: Visit) -> None:
        page = visit(report_html({"<i>name": hostile_trace()}))
        assert page.evaluate("window.planted") is None
        assert page.locator("img, i").count() == 0
        assert HOSTILE_NAMES[3] in page.content()
        assert "<i>name" in page.locator("#measured").inner_text()

    def test_dark_phone_and_paper(self, visit: Visit) -> None:
        page = visit(report_html({"a.json": two_device_trace()}), width=390, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert len(page.pdf()) > 20_000

    def test_stacks_on_a_phone_keep_figures_whole_and_begin_where_frames_change(self, visit: Visit) -> None:
        html = report_html({"vllm.json": load(STACKS)})
        assert re.search(r'<li class="warning">[\d,]+ spans are Python functions', html)
        assert 'title="vllm/v1/core/sched/scheduler.py(340): schedule">scheduler.<wbr>schedule</td>' in html
        page = visit(html, width=390, height=844, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        broken = """
            [...document.querySelectorAll('[style*="nowrap"], .figure, .shares td, .figures td')]
                .filter(each => each.getClientRects().length > 1 || each.clientHeight > 30).map(each => each.innerText)
        """
        assert page.locator('[style*="nowrap"]').count() > 100
        assert page.evaluate(broken) == []
        page.locator(".detail .overlay").hover(position={"x": 150, "y": 125})  # the line above the first thread
        assert "outer frames" in page.locator("#tip").inner_text()
        assert "<module>" in page.locator("#tip").inner_text()

    def test_a_trace_without_a_device_needs_no_plotly(self, visit: Visit) -> None:
        page = visit(report_html({"a.json": TraceBuilder().build()}))
        assert page.locator(".chart").count() == 0

    def test_the_real_run(self, visit: Visit) -> None:
        path = REAL / "sync_8b_bs32_8k.json.gz"
        html = report_html({path.name: load(path)})
        assert len(html) < 3_000_000
        page = visit(html)
        first = page.locator(".gist h1").inner_text()
        assert re.match(r"The GPU waited 24\.34 % of 450\.0 s; 95\.89 % of that for \"inputs\"", first)
        assert re.search(r"; async would take 34\d\.\d s", first)
