"""Moments and durations as people write them."""

from __future__ import annotations

import pytest

from windfall.schedules.instants import duration_s, instant_ms


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90m", 5_400), ("8h", 28_800), ("1d12h", 129_600), (" 1.5 H ", 5_400), ("0.5m30s", 60)],
)
def test_a_duration_is_a_row_of_numbers_with_units(text: str, seconds: float):
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "8", "h", "-1h", "8h!", "0s", "1e3s", "36501d", "1" * 41 + "s", "٣h", "2026-11-20T08:00:00Z"]
)
def test_anything_else_is_no_duration(text: str):
    assert duration_s(text) is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        (" 1970-01-01T00:00:00.250+00:00 ", 250),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_a_moment_names_its_zone(text: str, ms: int):
    assert instant_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "8h", "2026-11-20T08:00:00", "2026-11-20", "2026-13-01T00:00:00Z"]
)
def test_a_moment_without_a_zone_is_none(text: str):
    assert instant_ms(text) is None
