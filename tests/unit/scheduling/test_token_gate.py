"""The gate of consumable resources: how many it lets in, what it keeps for whom, and what it says."""

from __future__ import annotations

from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.admission import Admission, Asking, TokenGate, TokensTaken
from windfall.scheduling.snapshot import ORDINARY, SchedulingClass, Shape, Snapshot, Tokens, Waiting

NOW = 1_000_000


def a_snapshot(**tokens: Tokens) -> Snapshot:
    return Snapshot(NOW, (), {}, (), {}, tokens=tokens)


def asking(waited_s: int = 0, **tokens: int) -> Asking:
    scheduling_class = SchedulingClass(tokens=tuple(tokens.items())) if tokens else ORDINARY
    waiting = Waiting(1, JobId("job"), NOW - waited_s * 1000)
    return Asking(QueueName("queue"), Shape(Resources(1, 64)), scheduling_class, waiting)


def test_as_many_are_let_in_as_the_scarcest_token_is_enough_for():
    gate = TokenGate(a_snapshot(licence=Tokens(7, 9), seat=Tokens(2, 2)))
    assert gate.admits(asking(licence=2), 10) == 3
    assert gate.admits(asking(licence=2, seat=1), 10) == 2
    assert gate.admits(asking(), 10) == 10
    assert gate.admits(asking(unknown=1), 10) == 0


def test_what_was_given_in_this_plan_is_gone():
    gate = TokenGate(a_snapshot(licence=Tokens(5, 5)))
    gate.started(asking(licence=2), 2)
    assert (gate.admits(asking(licence=2), 1), gate.admits(asking(licence=1), 9)) == (0, 1)


def test_tokens_are_kept_for_one_that_has_waited_too_long():
    gate = TokenGate(a_snapshot(licence=Tokens(2, 3)))
    assert gate.admits(asking(waited_s=5, licence=3), 1) == 0
    assert gate.admits(asking(licence=1), 9) == 2, "it has not waited long enough to hold others up"
    assert gate.admits(asking(waited_s=61, licence=3), 1) == 0
    assert gate.admits(asking(licence=1), 9) == 0
    (reason,) = gate.reasons(asking(licence=1))
    assert reason.text() == "wants 1 of licence, 2 of 3 free (2 of them kept for jobs that come first)"


def test_nothing_is_kept_for_one_that_can_never_start():
    gate = TokenGate(a_snapshot(licence=Tokens(2, 3)))
    assert gate.admits(asking(waited_s=61, licence=4), 1) == 0
    assert gate.admits(asking(licence=1), 9) == 2


def test_the_reason_names_the_largest_holders():
    holders = {JobId(f"job-{n}"): n for n in range(1, 6)}
    gate = TokenGate(a_snapshot(licence=Tokens(0, 15, holders)))
    (reason,) = gate.reasons(asking(licence=2))
    assert isinstance(reason, TokensTaken)
    assert reason.text() == (
        "wants 2 of licence, 0 of 15 free; held by job-5 (5), job-4 (4), job-3 (3) and 2 other jobs"
    )
    assert gate.reasons(asking()) == []


def test_what_does_not_come_back_is_said_to():
    gate = TokenGate(a_snapshot(coupon=Tokens(0, 2, replenishable=False)))
    (reason,) = gate.reasons(asking(coupon=1))
    assert reason.text().endswith(
        "what is used up does not come back: add some with update-consumable-resource"
    )


def test_a_moment_without_tokens_has_no_such_gate():
    assert Admission.to(a_snapshot()).admits(asking(), 5) == (5, None)
    assert Admission.to(a_snapshot(licence=Tokens(1, 1))).admits(asking(licence=1), 5) == (
        1,
        "consumable resources",
    )


def test_one_that_waits_long_is_not_kept_what_is_pledged_to_another():
    gate = TokenGate(a_snapshot(seat=Tokens(2, 2)))
    claims, waits = asking(seat=2), asking(waited_s=61, seat=1)
    gate.pledge(claims, 1)
    assert gate.admits(waits, 1) == 0, "the place that others leave comes with its tokens"
    assert gate.admits(claims, 1) == 1, "else each of them would wait for what the other is kept from"


def test_beyond_what_is_pledged_tokens_are_kept_for_one_that_waits_long():
    gate = TokenGate(a_snapshot(seat=Tokens(4, 4)))
    claims = asking(seat=1)
    gate.pledge(claims, 1)
    assert gate.admits(asking(waited_s=61, seat=4), 1) == 0
    assert gate.admits(claims, 9) == 1
    assert gate.admits(asking(seat=3), 1) == 0


def test_where_there_are_fewer_tokens_than_pledges_the_first_gets_them():
    gate = TokenGate(a_snapshot(seat=Tokens(2, 2)))
    first, second = asking(seat=2), asking(seat=1)
    gate.pledge(first, 1)
    gate.pledge(second, 1)
    assert (gate.admits(first, 1), gate.admits(second, 1)) == (1, 0)
    assert gate.admits(asking(seat=2), 1) == 1, "what is pledged to its like is its own"
