"""Images: pixels are counted, fonts are embedded, and any trace gives a picture or one clear line."""

from __future__ import annotations

import io
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import Phase, given, settings
from timeline_samples import hostile_trace, steady_trace, two_device_trace
from trace_samples import traces

from cbprof.errors import CbprofError, UsageError
from cbprof.formats import load
from cbprof.render.static.figure import DPI, FORMATS, STYLE, parse_width, static_figure, static_image, write_static
from cbprof.render.static.panels import HATCHES, raster_image
from cbprof.render.theme import STATES
from cbprof.trace import Trace, TraceBuilder

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib (the image extra) is not installed")
REAL = Path(__file__).parent / "data" / "h200_transformers"
Pixels = npt.NDArray[np.float64]


def drawn(traces: list[Trace], label: str, *, width_in: float = 7.0) -> Pixels:
    """The pixels of one panel; shape (rows, columns, 3)."""
    from PIL import Image

    with matplotlib.rc_context(STYLE):
        figure = static_figure(traces, width_in=width_in)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=DPI)
    image = np.asarray(Image.open(file).convert("RGB"), dtype=np.float64)
    (axes,) = (axes for axes in figure.axes if axes.get_label() == label)
    box = axes.get_position()
    rows, columns = image.shape[:2]
    return image[
        round((1 - box.y1) * rows) : round((1 - box.y0) * rows), round(box.x0 * columns) : round(box.x1 * columns)
    ]


def green(pixels: Pixels) -> float:
    """The share of a panel in the greens of a GPU at work, in percent.

    A pixel that is no pure colour lies on an edge: it counts by how far it is from the pixel above to the one below.
    """
    paints = {key: style.color for key, style in STATES.items()}
    paints |= {f"{key} ink": ink for key, (ink, _) in HATCHES.items()}
    colors = np.array([[int(paint[at : at + 2], 16) for at in (1, 3, 5)] for paint in paints.values()])
    distance = np.stack([np.abs(pixels - color).sum(axis=2) for color in colors])
    whole = np.isin(distance.argmin(axis=0), [list(paints).index(key) for key in ("overlap", "gpu_only")]).astype(float)
    above, below = np.roll(pixels, 1, axis=0), np.roll(pixels, -1, axis=0)
    across = ((below - above) ** 2).sum(axis=2)
    part = np.clip(((pixels - above) * (below - above)).sum(axis=2) / np.maximum(across, 1), 0, 1)
    mixed = (distance.min(axis=0) > 3) & (across > 0)
    mixed[[0, -1]] = False
    share = np.where(mixed, part * np.roll(whole, -1, axis=0) + (1 - part) * np.roll(whole, 1, axis=0), whole)
    return 100 * float(share.mean())


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_the_green_area_is_the_share_of_gpu_activity(width: float) -> None:
    for steps in (3, 12345):
        exact = 100 * 6.9 * steps / (10 * steps - 0.5)
        assert green(drawn([steady_trace(steps)], "run 0", width_in=width)) == pytest.approx(exact, abs=0.3)


@pytest.mark.parametrize(("name", "idle"), [("sync", 24.336), ("async", 0.232)])
def test_real_runs_are_as_green_as_they_were_measured(name: str, idle: float) -> None:
    path = REAL / f"{name}_8b_bs32_8k.json.gz"
    assert green(drawn([load(path)], "run 0")) == pytest.approx(100 - idle, abs=0.3)


def test_two_runs_share_their_axes() -> None:
    pair = [steady_trace(100), steady_trace(50)]
    white = (drawn(pair, "run 1") == 255).all(axis=2).all(axis=0)
    assert white[-1]
    assert not white[0]
    assert np.flatnonzero(~white).max() / len(white) == pytest.approx(0.57, abs=0.09)  # with the words behind its end
    figure = static_figure(pair)
    limits = {axes.get_label(): axes.get_xlim() for axes in figure.axes}
    assert limits["run 0"] == limits["run 1"]
    assert limits["steps 0"] == limits["steps 1"]
    heights = {axes.get_label(): axes.get_ylim() for axes in figure.axes}
    assert heights["raster 0"] == heights["raster 1"]


def test_a_raster_mixes_colours_by_their_shares_and_marks_idle_ones() -> None:
    shares = np.zeros((len(STATES), 2, 2))
    shares[list(STATES).index("gpu_only"), 0, :] = [1.0, 0.25]
    shares[list(STATES).index("cpu_only"), 1, :] = [1.0, 0.5]
    image = raster_image(shares, 40, 40).astype(int)
    assert image.shape == (40, 40, 3)
    greens, reds = (
        tuple(int(STATES[key].color[at : at + 2], 16) for at in (1, 3, 5)) for key in ("gpu_only", "cpu_only")
    )
    assert (image[:20, :20] == greens).all()
    np.testing.assert_allclose(
        image[20:, :20], [round(0.25 * each + 0.75 * 255) for each in greens] * np.ones((20, 20, 1)), atol=1
    )
    plain = (image[:20, 20:] == reds).all(axis=2)
    assert 0.6 < plain.mean() < 0.9  # the rest is stripes
    np.testing.assert_allclose(
        image[20:, 20:], [round(0.5 * each + 0.5 * 255) for each in reds] * np.ones((20, 20, 1)), atol=1
    )


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_whole_and_holds_its_fonts(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"picture.{form.upper()}"
    write_static([steady_trace(30)], path, width_in=5)
    content = path.read_bytes()
    assert content == static_image([steady_trace(30)], form, width_in=5)  # nothing of the clock is in it
    if form == "png":
        assert int.from_bytes(content[16:20], "big") == 5 * DPI
    elif form == "svg":
        text = content.decode()
        assert "<text" not in text
        assert not re.search(r'href="(?!#|data:)', text)
    else:
        streams = [
            zlib.decompressobj().decompress(each)
            for each in re.findall(rb"stream\r?\n(.*?)endstream", content, re.S)
            if each[:1] == b"x"
        ]
        assert b"/FontFile2" in content + b"".join(streams)  # TrueType, inside the file
        assert b"/Type3" not in content
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_names_are_text_whatever_they_hold() -> None:
    for form in FORMATS:
        content = static_image([hostile_trace()], form)
        assert b"<script" not in content


@given(trace=traces())
@settings(max_examples=10, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_any_trace_gives_a_picture(trace: Trace) -> None:
    assert static_figure([trace, trace], width_in=4).axes or not trace.devices


@pytest.mark.parametrize("trace", [TraceBuilder().build(), steady_trace(1), two_device_trace()])
def test_small_traces_give_a_sensible_picture(trace: Trace) -> None:
    assert static_image([trace], "png").startswith(b"\x89PNG")


def test_widths() -> None:
    assert [parse_width(text) for text in ("7in", "7", "180mm", "18cm", "1400px")] == [
        7,
        7,
        pytest.approx(7.087, abs=0.001),
        pytest.approx(7.087, abs=0.001),
        7,
    ]
    for wrong in ("", "wide", "1in", "7 furlongs", "9999999px", "-3in"):
        with pytest.raises(UsageError, match="such as 7in"):
            parse_width(wrong)


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CbprofError, match=r"pip install 'cbprof\[image\]'"):
        static_image([steady_trace(2)], "png")
