"""A small line chart as SVG, for the page and for the tutorial: a few points on a few lines need no library."""

from __future__ import annotations

import html
from collections.abc import Iterator
from math import ceil

from cbprof.lab.finding import Chart, Series

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 16, 48
STYLES = (("#d55e00", ""), ("#00664f", ""), ("#0072b2", "6 4"))
"""Of the lines in turn, from the palette of Okabe and Ito: colour, and dashes for what was computed."""


def svg(chart: Chart) -> str:
    """The chart as one ``<svg>`` element. Both axes begin at 0."""
    points = [point for series in chart.series for point in series.points]
    x_max, y_max = (ceil(max(axis) * 2) / 2 or 1 for axis in zip(*points, strict=True))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return LEFT + x / x_max * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for tick in _ticks(x_max):
        (x, y), (_, top) = place((tick, 0)), place((0, y_max))
        parts.append(f'<path d="M{x:.1f} {y:.1f}V{top:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{tick:g}</text>')
    for tick in _ticks(y_max):
        (x, y), (end, _) = place((0, tick)), place((x_max, 0))
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{middle_x}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(chart.x)}</text>')
    parts.append(
        f'<text transform="translate(16 {middle_y}) rotate(-90)" text-anchor="middle">{html.escape(chart.y)}</text>'
    )
    for number, series in enumerate(chart.series):
        color, dashes = STYLES[number % len(STYLES)]
        parts += _line(series, [place(point) for point in series.points], color, "" if series.measured else dashes)
        parts += _legend(series, TOP + 12 + 20 * number, color, "" if series.measured else dashes)
    return "\n".join([*parts, "</svg>"])


def _line(series: Series, places: list[tuple[float, float]], color: str, dashes: str) -> Iterator[str]:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
    if series.measured:
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in places)


def _legend(series: Series, y: float, color: str, dashes: str) -> Iterator[str]:
    x = WIDTH - RIGHT + 14
    yield f'<path d="M{x} {y}h22" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
    yield f'<text x="{x + 28}" y="{y + 4}">{html.escape(series.name)}</text>'


def _ticks(highest: float) -> list[float]:
    step = next(size for size in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if highest / size <= 8 or size == 1000)
    return [number * step for number in range(int(highest / step) + 1)]
