"""The arithmetic of quota shares: own limits, what is lent, what is borrowed, and what can never be had."""

from __future__ import annotations

import pytest

from windfall.capacity.policies import UNLIMITED_BORROWING, CapacityLimit, QuotaShare, SharingStrategy
from windfall.jobs.aws_texts import AwsQuotaReason
from windfall.jobs.ids import QueueName
from windfall.scheduling.quota_reasons import quota_reason, quota_words
from windfall.scheduling.quotas import Quotas, QuotaVerdict

GPU = {"GPU": 1.0}
LEND, RESERVE, BORROW = SharingStrategy.LEND, SharingStrategy.RESERVE, SharingStrategy.LEND_AND_BORROW


def a_share(
    name: str, sharing: SharingStrategy = RESERVE, borrow: int = UNLIMITED_BORROWING, **limits: int
) -> QuotaShare:
    units = tuple(CapacityLimit(unit, amount) for unit, amount in limits.items())
    return QuotaShare(name, QueueName("queue"), units, sharing, borrow)


def test_a_share_that_reserves_has_its_own_and_no_more():
    quotas = Quotas([a_share("a", GPU=2), a_share("b", LEND, GPU=4)])
    assert quotas.admits("a", GPU, 5) == 2
    assert quotas.verdict("a", GPU, 3) is QuotaVerdict.LIMIT


def test_what_is_lent_is_what_its_owner_leaves_unused():
    quotas = Quotas([a_share("a", BORROW, GPU=2), a_share("b", LEND, GPU=4)], {"b": {"GPU": 1}})
    assert quotas.lendable("GPU") == 5
    assert quotas.admits("a", GPU, 10) == 5
    assert quotas.admits("a", GPU, 10, own=True) == 2
    quotas.note("a", GPU, 5)
    assert (quotas.borrowed("GPU"), quotas.lendable("GPU")) == (3, 3)
    assert quotas.above("a") == {"GPU": 3}
    assert quotas.verdict("a", GPU) is QuotaVerdict.NOTHING_LENT


def test_those_who_reserve_lend_nothing():
    quotas = Quotas([a_share("a", BORROW, GPU=2), a_share("b", RESERVE, GPU=4)])
    assert quotas.admits("a", GPU, 10) == 2
    assert quotas.verdict("a", GPU, 3) is QuotaVerdict.NOTHING_LENT


def test_a_borrow_limit_is_a_percentage_of_its_own():
    quotas = Quotas([a_share("a", BORROW, 50, GPU=4), a_share("b", LEND, GPU=9)])
    assert quotas.ceiling("a", "GPU") == 6
    assert quotas.admits("a", GPU, 10) == 6
    assert quotas.verdict("a", GPU, 7) is QuotaVerdict.BORROW_LIMIT
    assert Quotas([a_share("a", BORROW, 0, GPU=4), a_share("b", LEND, GPU=9)]).admits("a", GPU, 9) == 4


def test_an_owner_whose_own_is_lent_out_lacks_what_was_borrowed():
    quotas = Quotas([a_share("a", BORROW, GPU=2), a_share("b", LEND, GPU=4)], {"a": {"GPU": 6}})
    assert quotas.entitles("b", GPU, 4)
    assert quotas.verdict("b", GPU) is QuotaVerdict.LENT_OUT
    assert quotas.missing("b", GPU) == {"GPU": 1}
    assert quotas.missing("b", {"GPU": 3}) == {"GPU": 3}
    quotas.note("a", GPU, -1)
    assert quotas.verdict("b", GPU) is QuotaVerdict.ADMITTED


def test_one_that_reserves_is_never_kept_from_its_own_by_borrowers():
    shares = [a_share("a", BORROW, GPU=2), a_share("b", LEND, GPU=4), a_share("c", RESERVE, GPU=1)]
    quotas = Quotas(shares, {"a": {"GPU": 6}})
    assert quotas.admits("c", GPU, 5) == 1
    assert quotas.missing("c", GPU) == {}


def test_a_unit_without_a_limit_is_neither_bounded_nor_lent():
    quotas = Quotas([a_share("a", BORROW, GPU=2), a_share("b", LEND, VCPU=64)])
    assert quotas.admits("b", {"GPU": 1, "VCPU": 8}, 50) == 8
    assert quotas.lendable("GPU") == 2
    assert quotas.admits("a", GPU, 9) == 2


def test_a_job_that_asks_none_of_a_unit_is_not_kept_by_it():
    quotas = Quotas([a_share("a", GPU=2, VCPU=8)], {"a": {"GPU": 5}})
    assert quotas.admits("a", {"VCPU": 4, "GPU": 0}, 9) == 2


def test_limits_that_were_lowered_leave_a_share_above_them():
    quotas = Quotas([a_share("a", RESERVE, GPU=1), a_share("b", LEND, GPU=2)], {"a": {"GPU": 3}})
    assert quotas.above("a") == {"GPU": 2}
    assert quotas.verdict("b", GPU) is QuotaVerdict.LENT_OUT
    assert quotas.missing("b", GPU) == {"GPU": 1}


def test_parts_of_gpus_add_up_to_whole_ones():
    quotas = Quotas([a_share("a", GPU=1)])
    part = {"GPU": 0.1}
    assert quotas.admits("a", part, 50) == 10
    quotas.note("a", part, 10)
    quotas.note("a", part, -9)
    assert quotas.admits("a", part, 50) == 9


def test_a_share_that_does_not_exist_admits_nobody():
    assert Quotas([a_share("a", GPU=1)]).verdict("b", GPU) is QuotaVerdict.UNKNOWN
    assert Quotas([a_share("a", GPU=1)]).admits("b", GPU, 3) == 0


@pytest.mark.parametrize(
    ("share", "gpus", "words"),
    [
        ("own", 2, None),
        ("own", 3, AwsQuotaReason.LIMITS),
        ("borrows", 6, None),
        ("borrows", 7, AwsQuotaReason.BORROW_LIMITS),
        ("free", 8, None),
        ("free", 9, AwsQuotaReason.NOT_BORROWABLE),
    ],
)
def test_what_can_never_be_had_is_said_in_the_words_of_aws(share, gpus, words):
    quotas = Quotas(
        [a_share("own", LEND, GPU=2), a_share("borrows", BORROW, 50, GPU=4), a_share("free", BORROW, GPU=2)]
    )
    assert quotas.never(share, {"GPU": gpus}) is words


def test_a_reason_names_the_numbers_of_what_is_too_few():
    quotas = Quotas([a_share("a", BORROW, GPU=2), a_share("b", LEND, GPU=4)], {"a": {"GPU": 6}})
    kept = quota_reason(quotas, QueueName("queue"), "b", {"GPU": 1, "VCPU": 4})
    assert kept.text() == (
        "asks for 1 GPU; its quota share b holds nothing of 4 GPUs, and others have the rest:"
        " of 4 GPUs that shares lend, 4 GPUs are borrowed"
    )
    too_much = quota_reason(quotas, QueueName("queue"), "b", {"GPU": 5})
    assert "it never starts so: Job requirements exceed quota share capacity limits." in too_much.text()
    assert quota_words([kept]) is None
    assert quota_words([kept, too_much]) == AwsQuotaReason.LIMITS.value
