"""How a machine stands, for every pair of what its provider says and what the link shows."""

from __future__ import annotations

import itertools

import pytest

from windfall.engines.fleet.standing import Link, Provider, Silence, Standing, standing_of, why_closed

PAIRS = list(itertools.product(Provider, Link))


@pytest.mark.parametrize(("provider", "link"), PAIRS)
def test_every_pair_has_a_standing_and_every_closed_machine_a_reason(provider, link):
    standing = standing_of(provider, link)
    reason = why_closed("gpu1", provider, standing, "no route to host")
    assert (reason is None) == (standing is Standing.READY)
    assert reason is None or reason.startswith("gpu1 ")


@pytest.mark.parametrize("provider", Provider)
def test_no_provider_can_lose_a_machine_whose_agent_answers(provider):
    assert standing_of(provider, Link.UP) is not Standing.LOST


@pytest.mark.parametrize("provider", Provider)
def test_no_provider_can_save_a_machine_whose_agent_was_silent_for_too_long(provider):
    assert standing_of(provider, Link.DEAD) is Standing.LOST


@pytest.mark.parametrize("provider", Provider)
def test_nothing_new_is_placed_on_a_machine_that_does_not_answer(provider):
    assert standing_of(provider, Link.QUIET) in (Standing.DOUBTED, Standing.LOST)


def test_two_witnesses_lose_a_machine_sooner_than_one():
    assert standing_of(Provider.LISTED, Link.QUIET) is Standing.DOUBTED
    assert standing_of(Provider.GONE, Link.QUIET) is Standing.LOST


def test_a_provider_that_is_away_changes_nothing():
    for link in Link:
        assert standing_of(Provider.SILENT, link) is standing_of(Provider.LISTED, link)


@pytest.mark.parametrize(
    ("silent_s", "link"),
    [(0, Link.UP), (9.9, Link.UP), (10, Link.QUIET), (299, Link.QUIET), (300, Link.DEAD), (1e6, Link.DEAD)],
)
def test_what_a_silence_means(silent_s, link):
    assert Silence().link(silent_s) is link


def test_a_reason_has_no_number_that_grows():
    reason = why_closed("gpu1", Provider.LISTED, Standing.DOUBTED, "no route to host")
    assert reason == "gpu1 does not answer: no route to host"


def test_a_provider_does_not_shorten_the_wait_for_attempts_that_stop_by_themselves():
    assert standing_of(Provider.GONE, Link.QUIET, must_wait=True) is Standing.DOUBTED
    assert standing_of(Provider.GONE, Link.DEAD, must_wait=True) is Standing.LOST
    assert standing_of(Provider.LISTED, Link.UP, must_wait=True) is Standing.READY
