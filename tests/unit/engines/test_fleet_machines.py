"""Which machine may speak about which attempt, and that a machine has one name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.agent import messages
from windfall.capacity.machines import Machine
from windfall.control.events import InterruptionNoticed, RebalanceRecommended
from windfall.engines.fleet.machines import Machines, Member, answer_to_stranger, notices_of
from windfall.engines.fleet.standing import Provider
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import Resources

A, B = MachineId("hosts-a"), MachineId("hosts-b")
I1 = InstanceId("i-1")


def a_machine(name: MachineId) -> Machine:
    return Machine(name, Resources(4, 1024), facts={"hostname": f"host-{name}"})


@pytest.fixture
def machines() -> Machines:
    """Two members, of which one has been described."""
    known = Machines()
    for name in ("gpu1", "gpu2"):
        known.members[name] = Member(name)
    assert known.describe(known.members["gpu1"], a_machine(A)) is None
    return known


def test_a_machine_has_one_name(machines):
    refusal = machines.describe(machines.members["gpu2"], a_machine(A))
    assert refusal == "gpu2 and gpu1 reach the same machine, host-hosts-a; remove one of them"
    assert machines.members["gpu2"].machine is None
    assert machines.member_of(A) is machines.members["gpu1"]


def test_a_name_can_get_another_machine_and_a_machine_the_name_of_one_that_was_removed(machines):
    assert machines.describe(machines.members["gpu1"], a_machine(B)) is None
    assert machines.member_of(A) is None
    machines.forget("gpu1")
    assert machines.describe(machines.members["gpu2"], a_machine(B)) is None


def test_the_name_of_a_machine_is_known_from_an_earlier_daemon(machines):
    machines.remember(B, "gpu2")
    assert machines.describe(machines.members["gpu1"], a_machine(B)) is not None
    assert machines.member_of(B) is machines.members["gpu2"]


def test_a_machine_may_speak_only_of_attempts_that_were_placed_on_it(machines):
    machines.expect(AttemptToken("a#1"), A)
    assert machines.may_speak(A, "a#1")
    assert not machines.may_speak(B, "a#1")
    assert machines.strangers(B, ["a#1", "old#1"]) == {"a#1", "old#1"}
    machines.drop(AttemptToken("a#1"))
    assert not machines.may_speak(A, "a#1")


def test_instances_of_machines_that_no_member_has_are_unclaimed(machines):
    machines.place(InstanceId("i-1"), A)
    machines.place(InstanceId("i-2"), B)
    assert machines.unclaimed == {B}
    assert machines.instances_on(B) == ["i-2"]
    machines.leave(InstanceId("i-2"))
    assert machines.unclaimed == set()


def test_strangers_are_stopped_and_forgotten_and_nothing_of_them_is_stored():
    assert answer_to_stranger(messages.Started("a#1", 1, 2, "")) == messages.Stop("a#1", 0, lose=True)
    assert answer_to_stranger(messages.Lost("a#1", 1)) == messages.Forget(["a#1"])
    assert answer_to_stranger(messages.Pong()) is None


def test_a_machine_that_has_notice_itself_is_drained_by_the_earlier_deadline():
    member = Member("gpu1")
    assert (member.provided, member.goes_at, notices_of(member, [I1])) == (Provider.LISTED, None, [])
    member.notice = messages.Noticed(rebalance=True)
    assert notices_of(member, [I1]) == [RebalanceRecommended(I1)]
    assert member.provided is Provider.LISTED
    member.notice = messages.Noticed(500, "spot interruption")
    assert member.provided is Provider.DRAINING
    assert notices_of(member, [I1]) == [InterruptionNoticed(I1, 500, "spot interruption")]
    member.provider, member.deadline_at = Provider.DRAINING, 400
    assert member.goes_at == 400
    member.notice = messages.Noticed()
    assert notices_of(member, [I1]) == [InterruptionNoticed(I1, 400, "gpu1 is being drained")]
    member.provider, member.notice = Provider.GONE, messages.Noticed(500)
    assert member.provided is Provider.GONE, (
        "its own word cannot make a machine better than its provider has it"
    )


@pytest.mark.parametrize(
    "lie",
    [
        {"id": MachineId("hosts-../../etc")},
        {"id": MachineId("x" * 65)},
        {"total": Resources(float("nan"), 1024)},
        {"total": Resources(float("inf"), 1024)},
        {"total": Resources(4, -1)},
        {"total": Resources(4, 1024, 1_000_000)},
    ],
)
def test_what_a_machine_cannot_be_is_not_believed(machines, lie):
    refusal = machines.describe(machines.members["gpu2"], replace(a_machine(B), **lie))
    assert refusal is not None
    assert refusal.startswith("gpu2 says of itself what cannot be: ")
    assert machines.members["gpu2"].machine is None
