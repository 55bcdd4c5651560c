"""Points into periods: averages, sums, extremes and percentiles, as CloudWatch counts them.

An average weighs each point by the time that it stands for, because old points of a long job stand for more of it. Must
not know what the points are of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, fsum, isnan

from windfall.aws_api.cloudwatch.errors import invalid_value

_PERCENTILE = re.compile(r"p(\d{1,2}(\.\d{1,10})?|100)")
_SIMPLE = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")
_SHORT_PERIODS_S = (1, 5, 10, 20, 30)


@dataclass(frozen=True, slots=True)
class DataPoint:
    """One value, when it was measured, and how long before that it stands for."""

    at: int
    value: float
    span_ms: int


def check_period(period_s: int) -> int:
    """The period, if CloudWatch has such."""
    if period_s in _SHORT_PERIODS_S or (period_s > 0 and period_s % 60 == 0):
        return period_s
    raise invalid_value(f"The period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, not {period_s}.")


def check_statistic(name: str) -> str:
    """The statistic, if it is one that can be computed here."""
    if name in _SIMPLE or _PERCENTILE.fullmatch(name):
        return name
    raise invalid_value(
        f"The statistic must be one of {', '.join(_SIMPLE)} or pNN such as p99, not {name[:100]!r}."
    )


def in_periods(
    points: Iterable[DataPoint], period_s: int, start_at: int, end_at: int
) -> dict[int, list[DataPoint]]:
    """The known points of a window by the beginning of their period, oldest first."""
    length_ms = period_s * 1000
    points_by_period: dict[int, list[DataPoint]] = {}
    for point in points:
        if start_at <= point.at < end_at and not isnan(point.value):
            points_by_period.setdefault(point.at - point.at % length_ms, []).append(point)
    return dict(sorted(points_by_period.items()))


def statistic(name: str, points: Sequence[DataPoint]) -> float:
    """One statistic of the points of a period; there is at least one."""
    values = [point.value for point in points]
    if name == "Average":
        weight = fsum(max(1, point.span_ms) for point in points)
        return fsum(point.value * max(1, point.span_ms) for point in points) / weight
    if name == "Sum":
        return fsum(values)
    if name == "Minimum":
        return min(values)
    if name == "Maximum":
        return max(values)
    if name == "SampleCount":
        return float(len(values))
    # Nearest rank: one of the values that were measured.
    rank = ceil(float(name[1:]) / 100 * len(values))
    return sorted(values)[max(0, rank - 1)]
