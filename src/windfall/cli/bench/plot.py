"""Draws times and speed-ups of products over their size as an SVG, both axes logarithmic, for light and dark pages.

A drawing of a few lines and labels needs no library. Pure: rows in, text out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from windfall.cli.bench.published import PRODUCTS
from windfall.cli.bench.reading import Mode, Row
from windfall.cli.bench.wording import digits, seconds

WIDTH, HEIGHT = 1120, 500
#: Where the axes of the two panels lie: left, top, width, height.
PANEL_WIDTH, PANEL_HEIGHT, TOP = 430, 340, 80
LEGEND_WIDTH, LEGEND_LINE = 160, 20
LEFTS = (90, 650)
COLOURS = {"cpu": "a", Mode.RESIDENT: "b", Mode.TRANSFER: "c", Mode.COLD: "d", "published": "e"}
STYLE = """
  text { font: 14px sans-serif; fill: #222 }
  .title { font-size: 17px; font-weight: bold }
  .paper { fill: #fff } .grid { stroke: #ddd } .axis { stroke: #555; fill: none }
  .even { stroke: #555; stroke-dasharray: 5 4 }
  .line { fill: none; stroke-width: 2.5 }
  .a { stroke: #555 } .b { stroke: #0a7d3c } .c { stroke: #0b62c4 } .d { stroke: #c43d0b } .e { stroke: #8a3ab9 }
  .dot.a { fill: #555 } .dot.b { fill: #0a7d3c } .dot.c { fill: #0b62c4 } .dot.d { fill: #c43d0b } .dot.e { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .paper { fill: #16181d } .grid { stroke: #333 } .axis, .even { stroke: #999 }
    .a { stroke: #bbb } .b { stroke: #4ccb83 } .c { stroke: #5fa8ff } .d { stroke: #ff8a5c } .e { stroke: #c58cf0 }
    .dot.a { fill: #bbb } .dot.b { fill: #4ccb83 } .dot.c { fill: #5fa8ff } .dot.d { fill: #ff8a5c }
    .dot.e { fill: #16181d }
  }
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """A named line of points; without `joined` only its dots are drawn."""

    name: str
    colour: str
    points: list[Point]
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to places, by their logarithm."""

    low: float
    high: float
    start: float
    length: float

    def place(self, value: float) -> float:
        """Where a value lies; `length` is negative where values grow upwards."""
        part = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return self.start + part * self.length


def draw(lines: Sequence[Row], title: str) -> str:
    """The whole picture: times on the left, speed-ups on the right; without a GPU the times alone."""
    panels = [
        ("Time of a product (fp32)", seconds, time_series(lines), False),
        ("Speed-up of the GPU over the CPU", lambda value: f"{digits(value)}x", speed_up_series(lines), True),
    ]
    drawn: list[str] = []
    for left, (heading, label, series, even) in zip(LEFTS, panels, strict=True):
        if any(line.points for line in series):
            drawn += _panel(left, heading, label, series, even=even)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text class="title" x="{LEFTS[0]}" y="30">{escape(title)}</text>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def time_series(lines: Sequence[Row]) -> list[Series]:
    """Seconds over the edge: the CPU, and the GPU in each mode."""
    cpu = [(float(row.operation.size), row.cpu_s) for row in lines if row.cpu_s is not None]
    curves = [Series("CPU", COLOURS["cpu"], cpu)]
    for mode in Mode:
        points = [(float(row.operation.size), row.gpu_s[mode]) for row in lines if mode in row.gpu_s]
        curves.append(Series(f"GPU {mode}", COLOURS[mode], points))
    return [curve for curve in curves if curve.points]


def speed_up_series(lines: Sequence[Row]) -> list[Series]:
    """Ratios over the edge, with the published ones as dots where there is anything to compare."""
    curves = []
    for mode in Mode:
        points = [
            (float(row.operation.size), ratio) for row in lines if (ratio := row.speed_up(mode)) is not None
        ]
        if points:
            curves.append(Series(str(mode), COLOURS[mode], points))
    if curves:
        published = [
            (float(published_row.operation.size), published_row.speed_up) for published_row in PRODUCTS
        ]
        curves.append(Series("published (A10G)", COLOURS["published"], published, joined=False))
    return curves


def _panel(
    left: int, heading: str, label: Callable[[float], str], series: Sequence[Series], *, even: bool
) -> Iterator[str]:
    points = [point for curve in series for point in curve.points]
    across = Axis(*_bounds([x for x, _ in points]), left, PANEL_WIDTH)
    up = Axis(*_bounds([y for _, y in points] + ([1.0] if even else [])), TOP + PANEL_HEIGHT, -PANEL_HEIGHT)
    yield f'<text x="{left}" y="{TOP - 16}">{escape(heading)}</text>'
    for value in _ticks(across):
        x = across.place(value)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + PANEL_HEIGHT}"/>'
        yield f'<text x="{x:.1f}" y="{TOP + PANEL_HEIGHT + 20}" text-anchor="middle">{value:,.0f}</text>'
    for value in _ticks(up):
        y = up.place(value)
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{left + PANEL_WIDTH}" y2="{y:.1f}"/>'
        yield f'<text x="{left - 8}" y="{y + 5:.1f}" text-anchor="end">{escape(label(value))}</text>'
    if even:
        y = up.place(1.0)
        yield f'<line class="even" x1="{left}" y1="{y:.1f}" x2="{left + PANEL_WIDTH}" y2="{y:.1f}"/>'
    yield f'<rect class="axis" x="{left}" y="{TOP}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"/>'
    middle = left + PANEL_WIDTH / 2
    yield f'<text x="{middle}" y="{TOP + PANEL_HEIGHT + 42}" text-anchor="middle">edge of the matrices</text>'
    for curve in series:
        yield from _drawn(curve, across, up)
    corner_x, corner_y = _emptiest_corner(
        left, len(series), [(across.place(x), up.place(y)) for x, y in points]
    )
    for number, curve in enumerate(series):
        x, y = corner_x + 14, corner_y + 22 + LEGEND_LINE * number
        yield f'<circle class="dot {curve.colour}" cx="{x}" cy="{y - 5}" r="4"/>'
        yield f'<text x="{x + 12}" y="{y}">{escape(curve.name)}</text>'


def _emptiest_corner(left: int, names: int, places: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Where the names of the lines hide the fewest points."""
    height = LEGEND_LINE * names + 12
    corners = [
        (x, y) for y in (TOP, TOP + PANEL_HEIGHT - height) for x in (left, left + PANEL_WIDTH - LEGEND_WIDTH)
    ]

    def hidden(corner: tuple[int, int]) -> int:
        x, y = corner
        return sum(x <= at <= x + LEGEND_WIDTH and y <= height_at <= y + height for at, height_at in places)

    return min(corners, key=hidden)


def _drawn(curve: Series, across: Axis, up: Axis) -> Iterator[str]:
    places = [(across.place(x), up.place(y)) for x, y in curve.points]
    if curve.joined:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="line {curve.colour}" points="{joined}"/>'
    for x, y in places:
        yield f'<circle class="dot {curve.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    # A little room on both sides, and some width where all values are one.
    return low / 1.3, high * 1.3 if high > low else low * 10


def _ticks(axis: Axis) -> list[float]:
    first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
    decades = [10.0**power for power in range(first, last + 1)]
    if len(decades) > 2:
        return decades
    fine = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in (1, 2, 5)]
    return [value for value in fine if axis.low <= value <= axis.high]
