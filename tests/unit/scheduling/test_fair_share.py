"""Fair share as arithmetic: weights, averages, scores, what is kept for others."""

from __future__ import annotations

import pytest

from tests.fair_worlds import a_policy
from tests.unit.scheduling.builders import a_shape
from windfall.capacity.policies import FairShare, ShareWeight
from windfall.scheduling.fair_share import (
    LEAST_WINDOW_S,
    NONE,
    Amount,
    FairShareView,
    ShareView,
    averaged,
    kept_for_others,
    needs_of,
    weights_of,
    window_s,
)
from windfall.scheduling.snapshot import Gang, SchedulingClass

TEN_MINUTES_MS = 600_000


def test_use_counts_over_no_less_than_ten_minutes():
    assert window_s(FairShare()) == window_s(FairShare(decay_s=60)) == LEAST_WINDOW_S == 600
    assert window_s(FairShare(decay_s=604_800)) == 604_800


def test_an_exact_identifier_has_its_own_weight_and_an_unnamed_one_has_1():
    assert weights_of(a_policy(one=0.125), ["one", "two"]) == {"one": 0.125, "two": 1.0}


def test_the_shares_of_a_prefix_divide_its_weight_among_them():
    policy = a_policy(UserA_=1.0, UserB=2.0)
    active = ["UserA1", "UserA2", "UserA3", "UserB", "UserC"]
    weights = weights_of(policy, active)
    assert weights == {"UserA1": 3.0, "UserA2": 3.0, "UserA3": 3.0, "UserB": 2.0, "UserC": 1.0}
    assert weights_of(policy, ["UserA9"]) == {"UserA9": 1.0}


def test_the_longest_prefix_counts():
    policy = FairShare(weights=(ShareWeight("a*", 1.0), ShareWeight("ab*", 0.5)))
    assert weights_of(policy, ["abc", "ax"]) == {"abc": 0.5, "ax": 1.0}


@pytest.mark.parametrize(
    ("percent", "active", "kept"),
    [(50, 1, 0.5), (50, 2, 0.25), (50, 3, 0.125), (25, 1, 0.25), (25, 2, 0.0625), (0, 1, 0.0), (50, 0, 0.0)],
)
def test_the_reservation_shrinks_with_every_active_share_as_aws_says(percent, active, kept):
    found = kept_for_others(FairShare(reservation_percent=percent), active, Amount(1_000_000, 1000))
    assert found.vcpus == pytest.approx(kept * 1_000_000, abs=1)
    assert found.gpus == int(kept * 1000 + 1e-9)


def test_a_part_of_a_gpu_is_kept_for_nobody():
    policy = FairShare(reservation_percent=10)
    assert kept_for_others(policy, 1, Amount(16, 4)) == Amount(1, 0)
    assert kept_for_others(policy, 2, Amount(16, 4)) == Amount(0, 0)
    assert kept_for_others(FairShare(reservation_percent=50), 1, Amount(16, 4)) == Amount(8, 2)


def test_an_average_nears_what_is_held_and_fades_when_nothing_is():
    held = Amount(8, 2)
    after = averaged(NONE, held, TEN_MINUTES_MS, 600)
    assert after.vcpus == pytest.approx(8 * (1 - 2.718281828**-2))
    assert after.gpus == pytest.approx(after.vcpus / 4)
    assert averaged(held, held, 12_345_678, 600) == held
    assert averaged(held, NONE, TEN_MINUTES_MS, 600).vcpus == pytest.approx(8 * 2.718281828**-2)
    assert averaged(held, NONE, 0, 600) == averaged(held, NONE, -5, 600) == held


def test_averaging_in_steps_is_averaging_at_once():
    held, average = Amount(3, 1), Amount(1, 4)
    once = averaged(average, held, 90_000, 600)
    for _ in range(9):
        average = averaged(average, held, 10_000, 600)
    assert (average.vcpus, average.gpus) == pytest.approx((once.vcpus, once.gpus))


def test_the_scarcer_resource_counts():
    total = Amount(64, 8)
    assert Amount(8, 4).fraction_of(total) == 0.5
    assert Amount(48, 1).fraction_of(total) == 0.75
    assert Amount(48, 5).fraction_of(Amount(64, 0)) == 0.75
    assert Amount(48, 5).fraction_of(NONE) == 0.0


def test_a_score_is_the_weighted_use_now_and_on_average():
    view = FairShareView(600, Amount(16), {"a": ShareView(0.5, average=Amount(4), held=Amount(4))})
    assert view.score("a") == 0.25
    assert view.score("unseen") == view.score(None) == 0.0
    assert view.share("a").score(view.total, Amount(8)) == 0.5


def test_all_nodes_of_a_gang_count():
    main, worker = a_shape(2, gpus=1), a_shape(4)
    gang = SchedulingClass(share="a", gang=Gang(((main, 1), (worker, 3))))
    assert needs_of(main, gang) == Amount(14, 1)
    assert needs_of(main, SchedulingClass(share="a")) == Amount(2, 1)


def test_what_is_kept_cannot_be_used_and_nothing_is_less_than_nothing():
    view = FairShareView(600, Amount(8, 2), kept=Amount(4, 1))
    assert view.usable == Amount(4, 1)
    assert Amount(1) - Amount(2) == NONE
