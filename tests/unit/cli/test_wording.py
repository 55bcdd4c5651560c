"""Times and amounts as people read them."""

from __future__ import annotations

import pytest

from windfall.cli.wording import ago, ahead, amount, counted, duration, gpu_name, memory, moment

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("passed_ms", "text"),
    [
        (-5, "just now"),
        (999, "just now"),
        (12_345, "12 s ago"),
        (200_000, "3 min ago"),
        (7_300_000, "2 h ago"),
    ],
)
def test_short_times_are_relative(passed_ms, text):
    assert ago(NOW - passed_ms, NOW) == text


def test_old_times_are_dates():
    old = NOW - 90_000_000
    assert ago(old, NOW) == moment(old)
    assert moment(old).startswith("2023-11-1")
    assert ago(None, NOW) == ""


@pytest.mark.parametrize(("in_ms", "text"), [(0, "now"), (5_000, "in 5 s"), (600_000, "in 10 min")])
def test_times_ahead(in_ms, text):
    assert ahead(NOW + in_ms, NOW) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (None, ""),
        (-3, "0.0 s"),
        (420, "0.4 s"),
        (12_900, "12 s"),
        (190_000, "3 min 10 s"),
        (180_000, "3 min"),
        (7_500_000, "2 h 5 min"),
        (270_000_000, "3 d 3 h"),
    ],
)
def test_durations_have_two_units(span, text):
    assert duration(span) == text


def test_amounts():
    assert [memory(None), memory(2048), memory(24_064), memory(16_384)] == [
        "",
        "2,048 MiB",
        "23.5 GiB",
        "16 GiB",
    ]
    assert [amount(2.0), amount(0.25), counted(1, "GPU"), counted(0, "job")] == [
        "2",
        "0.25",
        "1 GPU",
        "0 jobs",
    ]


def test_a_simulated_gpu_says_so_once():
    assert gpu_name("H200", simulated=True) == "H200 (simulated)"
    assert gpu_name("Simulated GPU", simulated=True) == "Simulated GPU"
    assert gpu_name("H200", simulated=False) == "H200"
