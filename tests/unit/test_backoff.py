"""Pauses grow to their bound, patience ends by the clock, chance shortens a pause, and a failure is logged once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.backoff import Backoff, FailureLog, Pauses


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_up_to_the_longest():
    backoff = Backoff(Pauses(0.1, 0.5))
    assert [backoff.failed() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_success_begins_anew():
    backoff = Backoff(Pauses(1, 60))
    assert [backoff.failed(), backoff.failed()] == [1, 2]
    backoff.succeeded()
    assert backoff.failed() == 1


@pytest.mark.parametrize(("failures", "pause"), [(1, 1_000), (2, 2_000), (9, 256_000), (10, 480_000)])
def test_a_pause_follows_from_the_failures_alone_in_any_unit(failures, pause):
    assert Pauses(1_000, 480_000).after(failures) == pause


def test_another_factor_and_a_constant_pause():
    assert Pauses(1, 10, 1.5).after(3) == 2.25
    assert {Pauses(0.5, 0.5).after(failures) for failures in range(1, 9)} == {0.5}


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_no_pause_is_longer_than_the_longest_or_shorter_than_chance_allows(failures, chance):
    pauses = Pauses(0.2, 1.0, jitter=0.25)
    assert 0.15 <= pauses.after(failures, chance) <= 1.0


def test_chance_takes_its_part():
    drawn = iter([0.0, 0.5, 1.0])
    backoff = Backoff(Pauses(1, 1, jitter=0.2), random=lambda: next(drawn))
    assert [backoff.failed() for _ in range(3)] == [1, 0.9, 0.8]


def test_patience_ends_before_a_pause_that_would_outlast_it():
    clock = Clock()
    backoff = Backoff(Pauses(2, 2), patience_s=5, clock=clock)
    tries = 0
    while not backoff.gives_up():
        clock.now += backoff.failed()
        tries += 1
    assert (tries, clock.now) == (2, 104.0)


def test_patience_is_counted_from_the_first_failure_after_a_success():
    clock = Clock()
    backoff = Backoff(Pauses(1, 1), patience_s=3, clock=clock)
    backoff.failed()
    clock.now += 60
    assert backoff.gives_up()
    backoff.succeeded()
    assert not backoff.gives_up()


def test_without_patience_there_is_one_try():
    assert Backoff(Pauses(0.25, 5), patience_s=0, clock=Clock()).gives_up()
    assert not Backoff(Pauses(0.25, 5)).gives_up()


def test_a_failure_is_logged_when_it_begins_when_it_changes_and_now_and_then():
    clock = Clock()
    failures = FailureLog(clock, again_s=60)
    assert [failures.is_news(text) for text in ("full", "full", "gone", "gone")] == [True, False, True, False]
    clock.now += 60
    assert failures.is_news("gone")
    assert not failures.is_news("gone")


def test_its_end_is_logged_if_it_was():
    failures = FailureLog(Clock())
    assert not failures.is_over()
    failures.is_news("full")
    assert failures.is_over()
    assert not failures.is_over()
    assert failures.is_news("full")
