"""Curves as text: where dots land, what gaps and means become, and that nothing is wider than it may be."""

from __future__ import annotations

import pytest

from windfall.cli.plotting import Curve, Point, columns, dots, frame, meter, side_by_side, spark, summary


def points(*values: float | None, span_ms: int = 1_000) -> list[Point]:
    return [Point((number + 1) * span_ms, span_ms, value) for number, value in enumerate(values)]


def a_curve(*values: float | None, **more) -> Curve:
    return Curve("CPU", points(*values), lambda value: f"{value:g}", **more)


def test_each_column_is_the_mean_of_its_time():
    assert columns(points(1.0, 3.0, 5.0, 7.0), 0, 4_000, 2) == [2.0, 6.0]


def test_a_long_sample_fills_all_columns_that_it_spans():
    assert columns([Point(4_000, 4_000, 2.0)], 0, 4_000, 4) == [2.0] * 4


def test_what_is_not_known_leaves_a_gap():
    assert columns(points(1.0, None, 3.0), 0, 3_000, 3) == [1.0, None, 3.0]


def test_a_mean_weighs_by_time():
    uneven = [Point(1_000, 1_000, 10.0), Point(4_000, 3_000, 2.0)]
    assert columns(uneven, 0, 4_000, 1) == [4.0]
    assert summary(Curve("", uneven, lambda value: f"{value:g}")) == "min 2  mean 4  max 10"


def test_nothing_known_is_said_so():
    assert summary(a_curve(None)) == "not known"


def test_the_lowest_value_is_at_the_bottom_and_the_highest_at_the_top():
    low, high = dots([0.0], 1.0, 2), dots([1.0], 1.0, 2)
    assert low == [" ", "⡀"]
    assert high == ["⠁", " "]


def test_a_jump_is_drawn_as_an_upright_stroke():
    assert dots([0.0, 1.0], 1.0, 1) == ["⣸"]


def test_a_gap_is_not_bridged():
    assert dots([0.0, None, 1.0], 1.0, 1) == ["⡀⠁"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 133])
def test_a_frame_is_as_wide_as_asked_and_says_its_figures(width):
    lines = frame(a_curve(0.0, 2.0, 4.0, ceiling=8.0), 0, 3_000, width, 4)
    assert len(lines) == 5
    assert all(line.cell_len <= width for line in lines)
    assert "8 ┤" in lines[1].plain
    assert "0 ┤" in lines[4].plain
    if width >= 40:
        assert lines[0].plain.endswith("min 0  mean 2  max 4")


def test_a_curve_of_zeros_can_be_drawn():
    assert frame(a_curve(0.0, 0.0), 0, 2_000, 40, 2)[-1].plain.strip()


def test_sparks_and_bars_show_shares():
    assert spark([0.0, None, 0.5, 1.0], 1.0) == "▁ ▅█"
    assert meter(0.5, 4, "").plain == "██··"
    assert meter(None, 4, "").plain == "····"
    assert meter(2.0, 4, "").plain == "████"
    assert meter(0.125, 4, "").plain == "▌···"


def test_two_blocks_stand_side_by_side():
    left, right = frame(a_curve(1.0), 0, 1_000, 30, 2), frame(a_curve(2.0), 0, 1_000, 30, 2)
    both = side_by_side(left, right[:2], 34)
    assert both[0].plain[34:].startswith("CPU")
    assert len(both) == 3
