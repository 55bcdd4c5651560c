"""Curves in a terminal: braille dots in a frame of a few lines, and one-line sparks.

Pure: numbers in, lines out. Time runs to the right, a value that is not known leaves a gap, and what happened within
one column of dots is its mean by time. Must not know what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

#: Dots of a braille letter by column and row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
_DOTS_DOWN, _DOTS_ACROSS = 4, 2
_SPARKS = "▁▂▃▄▅▆▇█"
#: Room for the words at the axis.
LABEL_WIDTH = 11


@dataclass(frozen=True, slots=True)
class Point:
    """A value over the span that ended at a time, both in milliseconds; None is not known."""

    at: int
    span_ms: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """What is drawn in one frame."""

    title: str
    points: Sequence[Point]
    #: A value as people read it.
    say: Callable[[float], str]
    #: What the top of the frame stands for at least; the highest value otherwise.
    ceiling: float = 0.0
    style: str = "cyan"

    @property
    def known(self) -> list[tuple[float, int]]:
        """The values that are known, each with its span."""
        return [(point.value, point.span_ms) for point in self.points if point.value is not None]


def summary(curve: Curve) -> str:
    """The least, the mean by time and the most of a curve."""
    points = curve.known
    if not points:
        return "not known"
    whole = sum(span for _, span in points) or 1
    mean = sum(value * span for value, span in points) / whole
    low, high = min(value for value, _ in points), max(value for value, _ in points)
    return f"min {curve.say(low)}  mean {curve.say(mean)}  max {curve.say(high)}"


def frame(curve: Curve, begin: int, end: int, width: int, height: int) -> list[Text]:
    """The lines of one curve between two times: a title with its figures, and `height` lines of dots beside an axis."""
    room = max(8, width - LABEL_WIDTH - 1)
    top = max([curve.ceiling, *(value for value, _ in curve.known)]) or 1.0
    rows = dots(columns(curve.points, begin, end, room * _DOTS_ACROSS), top, height)
    title = Text().append(curve.title, style="bold")
    figures = summary(curve)
    if title.cell_len + 2 + len(figures) <= width:
        title.append(" " * (width - title.cell_len - len(figures))).append(figures, style="dim")
    else:
        title.append("  ").append(figures, style="dim")
        title.truncate(width, overflow="ellipsis")
    lines = [title]
    for number, row in enumerate(rows):
        label = curve.say(top) if number == 0 else "0" if number == height - 1 else ""
        line = Text().append(f"{label:>{LABEL_WIDTH - 1}} ", style="dim")
        line.append("┤" if label else "│", style="dim").append(row, style=curve.style)
        lines.append(line)
    return lines


def columns(points: Sequence[Point], begin: int, end: int, count: int) -> list[float | None]:
    """The mean value in each of `count` equal parts of a time; None where nothing is known of a part."""
    sums, weights = [0.0] * count, [0.0] * count
    width = max(1.0, (end - begin) / count)
    for point in points:
        if point.value is None:
            continue
        first, last = (point.at - point.span_ms - begin) / width, (point.at - begin) / width
        for number in range(max(0, int(first)), min(count, math.ceil(last))):
            overlap = min(last, number + 1) - max(first, number)
            if overlap > 0:
                sums[number] += point.value * overlap
                weights[number] += overlap
    return [total / weight if weight > 0 else None for total, weight in zip(sums, weights, strict=True)]


def dots(values: Sequence[float | None], top: float, height: int) -> list[str]:
    """A line of dots through the values, as `height` lines of text; neighbours are joined by upright strokes."""
    cells = [[0] * math.ceil(len(values) / _DOTS_ACROSS) for _ in range(height)]
    levels = height * _DOTS_DOWN
    before: int | None = None
    for number, value in enumerate(values):
        if value is None:
            before = None
            continue
        level = min(levels - 1, max(0, round(value / top * (levels - 1))))
        # From beside the last dot to this one, so that the line has no holes.
        reach = [level] if before is None else range(min(before, level), max(before, level) + 1)
        for lit in reach:
            row, dot = divmod(levels - 1 - lit, _DOTS_DOWN)
            cells[row][number // _DOTS_ACROSS] |= _DOTS[number % _DOTS_ACROSS][dot]
        before = level
    return ["".join(chr(_BLANK + cell) if cell else " " for cell in row) for row in cells]


def spark(values: Sequence[float | None], top: float) -> str:
    """One letter for each value, a blank where it is not known."""
    drawn = []
    for value in values:
        share = 0.0 if value is None or top <= 0 else min(1.0, max(0.0, value / top))
        drawn.append(" " if value is None else _SPARKS[round(share * (len(_SPARKS) - 1))])
    return "".join(drawn)


def meter(share: float | None, width: int, style: str) -> Text:
    """A bar that is filled as far as the share says, in eighths of a letter; all empty where it is not known."""
    eighths = 0 if share is None else round(min(1.0, max(0.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    drawn = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
    return Text().append(drawn, style=style).append("·" * (width - len(drawn)), style="dim")


def side_by_side(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two blocks of lines in one, the left one as wide as said."""
    lines = []
    for number in range(max(len(left), len(right))):
        line = left[number].copy() if number < len(left) else Text()
        line.append(" " * max(0, width - line.cell_len))
        lines.append(line.append(right[number]) if number < len(right) else line)
    return lines
