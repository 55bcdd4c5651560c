"""Metric math, and how points become statistics of periods."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.aws_api.cloudwatch.expressions import evaluate, names_in
from windfall.aws_api.cloudwatch.service import (
    DataPoint,
    check_period,
    check_statistic,
    in_periods,
    statistic,
)
from windfall.aws_api.protocol.errors import ApiError

M1, M2 = {0: 2.0, 60: 4.0}, {60: 10.0, 120: 20.0}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("m1", M1),
        ("m1 + m2", {60: 14.0}),
        ("m1*2 - 1", {0: 3.0, 60: 7.0}),
        ("100 * (m1 / m2)", {60: 40.0}),
        ("-m1", {0: -2.0, 60: -4.0}),
        ("m1 / 0", {}),
        ("m1 + 1 / 0", {}),
        ("m1 + 0 / 2", M1),
        ("SUM([m1, m2])", {0: 2.0, 60: 14.0, 120: 20.0}),
        ("avg([m1,m2])", {0: 2.0, 60: 7.0, 120: 20.0}),
        ("m1 - AVG(m1)", {0: -1.0, 60: 1.0}),
        ("MAX(m2)", {0: 20.0, 60: 20.0, 120: 20.0}),
        ("2 + 3 * 4", {0: 14.0, 60: 14.0, 120: 14.0}),
    ],
)
def test_an_expression_means_what_arithmetic_says(expression, expected):
    assert evaluate(expression, {"m1": M1, "m2": M2}) == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("m3", "'m3' is not an id"),
        ("m1 +", "ends too early"),
        ("(m1", "'\\)' is missing"),
        ("m1 m2", "not expected"),
        ("SEARCH('x')", "not understood"),
        ("RATE(m1)", "'RATE' is not an id"),
        ("m1 ; drop", "not understood"),
        ("(" * 200 + "m1" + ")" * 200, "nested too deeply"),
    ],
)
def test_what_it_does_not_know_is_refused_with_what_it_does(expression, words):
    with pytest.raises(ApiError, match=words) as refused:
        evaluate(expression, {"m1": M1})
    assert "SUM, AVG, MIN, MAX" in refused.value.message


def test_the_ids_of_an_expression_are_those_of_metrics():
    assert names_in("AVG([m1, m2]) / e1 * 2") == {"m1", "m2", "e1"}


@given(st.text(max_size=60))
def test_no_expression_breaks_the_reader(text):
    try:
        evaluate(text, {"m1": M1})
    except ApiError:
        return


def test_an_average_weighs_points_by_the_time_they_stand_for():
    points = [DataPoint(1_000, 1.0, 1_000), DataPoint(5_000, 5.0, 3_000)]
    assert statistic("Average", points) == 4.0
    assert statistic("Sum", points) == 6.0
    assert (statistic("Minimum", points), statistic("Maximum", points)) == (1.0, 5.0)
    assert statistic("SampleCount", points) == 2.0


@pytest.mark.parametrize(("name", "expected"), [("p50", 50.0), ("p99", 99.0), ("p100", 100.0), ("p0", 1.0)])
def test_a_percentile_is_a_value_that_was_measured(name, expected):
    points = [DataPoint(0, float(value), 1) for value in range(1, 101)]
    assert statistic(name, points) == expected


def test_periods_begin_on_their_own_multiples_and_leave_out_what_is_not_known():
    points = [
        DataPoint(59_999, 1.0, 1),
        DataPoint(60_000, 2.0, 1),
        DataPoint(61_000, math.nan, 1),
        DataPoint(180_000, 3.0, 1),
    ]
    found = in_periods(points, 60, 0, 180_000)
    assert {at: [point.value for point in inside] for at, inside in found.items()} == {
        0: [1.0],
        60_000: [2.0],
    }


@pytest.mark.parametrize("period_s", [0, 7, 45, 61, -60])
def test_a_period_that_cloudwatch_does_not_have_is_refused(period_s):
    with pytest.raises(ApiError, match="multiple of 60"):
        check_period(period_s)


@pytest.mark.parametrize("name", ["average", "p101", "tm99", ""])
def test_a_statistic_that_is_not_known_is_refused(name):
    with pytest.raises(ApiError, match="Average"):
        check_statistic(name)
