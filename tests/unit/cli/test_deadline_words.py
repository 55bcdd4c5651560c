"""Deadlines as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from windfall.cli.deadline_words import read_deadline
from windfall.cli.errors import BadUsage

#: A Wednesday, two hours east of Greenwich.
NOW = datetime(2026, 11, 18, 10, 0, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("8h", "8h"),
        ("1D 12h", "1d12h"),
        ("18:30", "2026-11-18T16:30:00Z"),
        ("10:00", "2026-11-19T08:00:00Z"),
        ("fri 08:00", "2026-11-20T06:00:00Z"),
        ("Friday 8:00", "2026-11-20T06:00:00Z"),
        ("wed 09:00", "2026-11-25T07:00:00Z"),
        ("wed 11:00", "2026-11-18T09:00:00Z"),
        ("2026-11-20 08:00", "2026-11-20T06:00:00Z"),
        ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
    ],
)
def test_a_deadline_becomes_a_tag(text, tag):
    assert read_deadline(text, NOW) == tag


@pytest.mark.parametrize("text", ["soon", "8", "25:00", "18:60", "xyz 08:00", "2026-13-01", ""])
def test_what_is_not_a_time_is_refused_with_what_is(text):
    with pytest.raises(BadUsage, match="write it as 8h"):
        read_deadline(text, NOW)
