"""Amounts and times in plain words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.jobs.resources import Resources
from windfall.scheduling.wording import Resource, all_of, amount_of, counted, listed, number, utc


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (7, "7"),
        (14_000, "14,000"),
        (0.25, "0.25"),
        (2.5, "2.5"),
        (3.0, "3"),
        (1_234.75, "1,234.75"),
    ],
)
def test_numbers(amount, text):
    assert number(amount) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (Resource.GPUS, 1, "1 GPU"),
        (Resource.GPUS, 4, "4 GPUs"),
        (Resource.GPUS, 0, "0 GPUs"),
        (Resource.VCPUS, 1, "1 vCPU"),
        (Resource.VCPUS, 0.5, "0.5 vCPUs"),
        (Resource.MEMORY, 14_000, "14,000 MiB of memory"),
    ],
)
def test_amounts_have_units(resource, amount, text):
    assert amount_of(resource, amount) == text


def test_a_whole_need():
    assert all_of(Resources(2, 3_000)) == "2 vCPUs and 3,000 MiB of memory"
    assert all_of(Resources(2, 3_000, 1)) == "1 GPU, 2 vCPUs and 3,000 MiB of memory"


def test_counts_and_lists():
    assert counted(1, "job", "jobs") == "1 job"
    assert counted(1_000_000, "job", "jobs") == "1,000,000 jobs"
    assert [listed(("a",)), listed(("a", "b")), listed(("a", "b", "c"))] == ["a", "a or b", "a, b or c"]


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_times_are_those_of_the_calendar(at):
    expected = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert utc(at) == expected


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_400_000, "2000-02-29 00:00:00 UTC"),
        (4_107_542_399_999, "2100-02-28 23:59:59 UTC"),
        (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
    ],
)
def test_leap_days(at, text):
    assert utc(at) == text
