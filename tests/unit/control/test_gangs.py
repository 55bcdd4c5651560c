"""Multi-node jobs: all nodes are placed or none, the main one first, and its end is the job's."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_job
from tests.gang_builders import a_container, a_gang_definition, a_world_of_gangs
from windfall.accounting.prices import Rates
from windfall.control import events
from windfall.control.gang_addresses import node_address
from windfall.control.instructions import InterruptAttempt, StartAttempt, StopAttempt
from windfall.control.why import why
from windfall.jobs.attempts import StopCause
from windfall.jobs.definitions import ContainerOverrides, NodeRange
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.nodes import GroupOverrides, NodeOverrides
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED
from windfall.jobs.storage import StorageLayout

NODES = ("a", "a#1", "a#2")


@pytest.fixture
def world() -> TestWorld:
    return a_world_of_gangs(storage=StorageLayout("s3://bucket"))


def a_gang(job_id: str = "a", definition: str = "gang"):
    return a_job(job_id, definition=definition)


def running(world: TestWorld, job=None) -> TestWorld:
    """A world in which all three nodes of job a run."""
    return world.submits(job or a_gang()).starts("a").starts("a#1", "a#2")


def states(world: TestWorld) -> list:
    return [world.state_of(name) for name in NODES]


def starts(world: TestWorld) -> list[StartAttempt]:
    return world.asked_for(StartAttempt)


def test_all_nodes_get_their_places_and_only_the_main_one_is_started(world):
    world.submits(a_gang())
    assert states(world) == [STARTING] * 3
    assert [one.token for one in starts(world)] == ["a#1"]
    assert len(world.state.attempts) == 3


def test_the_others_start_when_the_main_one_runs(world):
    world.submits(a_gang()).starts("a")
    assert [one.token for one in starts(world)] == ["a#1#1", "a#2#1"]
    assert states(world) == [RUNNING, STARTING, STARTING]


def test_each_node_knows_itself_the_main_one_and_the_others(world):
    world.submits(a_gang())
    main = starts(world)[0].environment
    world.starts("a")
    other = starts(world)[1].environment
    addresses = [node_address(0, number) for number in range(3)]
    assert addresses == ["127.64.0.1", "127.64.0.2", "127.64.0.3"]
    assert main["AWS_BATCH_JOB_ID"] == "a#0"
    assert other["AWS_BATCH_JOB_ID"] == "a#2"
    assert (main["AWS_BATCH_JOB_NODE_INDEX"], other["AWS_BATCH_JOB_NODE_INDEX"]) == ("0", "2")
    assert main["AWS_BATCH_JOB_NUM_NODES"] == other["AWS_BATCH_JOB_NUM_NODES"] == "3"
    assert other["AWS_BATCH_JOB_MAIN_NODE_INDEX"] == "0"
    assert other["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] == addresses[0]
    assert "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS" not in main
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in other
    assert (main["WINDFALL_NODE_ADDRESS"], other["WINDFALL_NODE_ADDRESS"]) == (addresses[0], addresses[2])
    assert main["WINDFALL_NODE_ADDRESSES"] == ",".join(addresses)


def test_two_live_gangs_have_no_address_in_common():
    world = a_world_of_gangs(a_gang_definition(nodes=2)).submits(a_gang("a"), a_gang("b"))
    assert {world.job("a").gang_number, world.job("b").gang_number} == {0, 1}
    world.starts("a").exits("a", 0).exits("a#1", 0)
    assert world.state_of("a") is SUCCEEDED
    world.submits(a_gang("c"))
    assert world.job("c").gang_number == 0


def test_a_gang_that_does_not_fit_as_a_whole_waits_and_says_so():
    world = a_world_of_gangs(vcpus=2).submits(a_gang())
    assert world.state_of("a") is RUNNABLE
    assert not world.state.attempts
    reasons = why(world.state, JobId("a"), world.state.offers, world.now)
    assert reasons is not None
    assert reasons.reasons[0][0] == "GANG_TOO_LARGE"
    assert "2 of its 3 nodes" in reasons.reasons[0][1]


def test_a_gang_waits_for_others_to_end_and_says_how_many_nodes_fit(world):
    world.submits(a_job("b").vcpus(2), a_gang())
    assert world.state_of("a") is RUNNABLE
    answer = why(world.state, JobId("a"), world.state.offers, world.now)
    assert answer is not None
    assert "GANG_INCOMPLETE" in dict(answer.reasons)
    assert "2 of its 3" in dict(answer.reasons)["GANG_INCOMPLETE"]
    world.starts("b").exits("b", 0)
    assert states(world) == [STARTING] * 3


def test_the_end_of_the_main_node_stops_the_others_and_decides_the_job(world):
    running(world).exits("a", 0)
    assert {one.token for one in world.asked_for(StopAttempt)} == {"a#1#1", "a#2#1"}
    assert world.state_of("a") is RUNNING
    world.exits("a#1", 143)
    assert world.state_of("a") is RUNNING
    world.exits("a#2", 137)
    assert states(world) == [SUCCEEDED] * 3
    assert not world.state.jobs
    assert not world.state.attempts


def test_another_nodes_own_end_moves_nothing(world):
    running(world).exits("a#1", 1)
    assert states(world) == [RUNNING] * 3
    assert not world.asked_for(StopAttempt)
    world.exits("a", 0).exits("a#2", 0)
    assert states(world) == [SUCCEEDED, FAILED, SUCCEEDED]


def test_the_main_nodes_failure_has_the_whole_gang_tried_again(world):
    running(world, a_gang().retried(2)).exits("a", 1)
    world.exits("a#1", 143).exits("a#2", 143)
    assert states(world) == [STARTING] * 3
    assert [one.token for one in starts(world)] == ["a#2"]
    assert {job.attempts[-1].number for job in world.state.attempts.values()} == {2}
    world.starts("a").starts("a#1", "a#2").exits("a", 1).exits("a#1", 1).exits("a#2", 1)
    assert states(world) == [FAILED] * 3


def test_a_main_node_that_cannot_start_frees_the_places_of_the_others(world):
    world.submits(a_gang())
    world.happens(events.AttemptExited(world.token("a"), world.now, None, "CannotPullContainerError: no"))
    assert states(world) == [FAILED] * 3
    assert not world.state.attempts
    assert not world.asked_for(StopAttempt)


def test_terminating_the_job_stops_all_nodes(world):
    running(world)
    world.happens(events.TerminateJob(JobId("a"), "enough"))
    assert {one.token for one in world.asked_for(StopAttempt)} == {"a#1", "a#1#1", "a#2#1"}
    world.exits("a#1", 143).exits("a", 143).exits("a#2", 143)
    assert states(world) == [FAILED] * 3
    assert world.job("a").status_reason == "enough"


def test_a_job_that_is_terminated_while_its_last_nodes_end_is_not_tried_again(world):
    running(world, a_gang().retried(5)).exits("a", 1)
    world.happens(events.TerminateJob(JobId("a"), "enough"))
    world.exits("a#1", 143).exits("a#2", 143)
    assert states(world) == [FAILED] * 3
    assert world.job("a").status_reason == "enough"


@pytest.mark.parametrize("command", [events.CancelJob, events.TerminateJob])
def test_one_node_cannot_be_stopped_alone(world, command):
    running(world)
    with pytest.raises(Invalid, match="name job a"):
        world.happens(command(JobId("a#1"), "why"))


def test_the_timeout_is_that_of_the_whole_job(world):
    running(world, a_gang().limited_to(60)).later(61_000)
    assert {one.token for one in world.asked_for(StopAttempt)} == {"a#1", "a#1#1", "a#2#1"}
    for name in NODES:
        world.exits(name, 137)
    assert world.job("a").status_reason == "Job attempt duration exceeded timeout"
    assert states(world) == [FAILED] * 3


def test_notice_to_one_node_is_notice_to_all_and_the_gang_is_tried_again_for_nothing(world):
    running(world, a_gang().tagged(checkpoint="true"))
    assert world.happens(events.InterruptJob(JobId("a#2"), 30)) == 1
    notices = world.asked_for(InterruptAttempt)
    assert {one.token for one in notices} == {"a#1", "a#1#1", "a#2#1"}
    assert {one.deadline_at for one in notices} == {world.now + 30_000}
    for name in NODES:
        world.exits(name, 143)
    assert states(world) == [STARTING] * 3
    assert world.state.jobs[JobId("a")].charged_attempts == 1
    assert [one.token for one in starts(world)] == ["a#2"]


def test_a_lost_node_has_the_others_leave_too(world):
    running(world, a_gang().tagged(checkpoint="true"))
    world.happens(events.AttemptLost(world.token("a#1"), world.now))
    assert {one.token for one in world.asked_for(InterruptAttempt)} == {"a#1", "a#2#1"}
    world.exits("a", 143).exits("a#2", 143)
    assert states(world) == [STARTING] * 3


def test_a_lost_node_is_replaced_alone_if_its_job_says_so(world):
    running(world, a_gang().tagged(replace_lost_nodes="true"))
    world.happens(events.AttemptLost(world.token("a#1"), world.now))
    assert not world.asked_for(InterruptAttempt)
    assert [one.token for one in starts(world)] == ["a#1#2"]
    assert states(world) == [RUNNING, STARTING, RUNNING]
    world.starts("a#1").exits("a", 0).exits("a#1", 0).exits("a#2", 0)
    assert states(world) == [SUCCEEDED] * 3


def test_a_node_with_notice_is_replaced_alone_and_waits_if_there_is_no_place(world):
    running(world, a_gang().tagged(replace_lost_nodes="true")).submits(a_job("b"), a_job("c"))
    world.happens(events.InterruptJob(JobId("a#1"), 30))
    assert [one.token for one in world.asked_for(InterruptAttempt)] == ["a#1#1"]
    world.places = False
    world.exits("a#1", 143)
    world.places = True
    assert states(world) == [RUNNING, RUNNABLE, RUNNING]
    assert world.state.backlog.find(world.state.jobs[JobId("a#1")]) is not None
    world.restarted()
    assert world.state.backlog.find(world.state.jobs[JobId("a#1")]) is not None
    world.exits("a", 0)
    assert world.state.backlog.find(world.state.jobs[JobId("a#1")]) is None
    world.exits("a#2", 0)
    assert states(world) == [SUCCEEDED, FAILED, SUCCEEDED]


def test_the_lost_main_node_takes_the_gang_along_whatever_the_tag_says(world):
    running(world, a_gang().tagged(replace_lost_nodes="true", checkpoint="true"))
    world.happens(events.AttemptLost(world.token("a"), world.now))
    assert {one.token for one in world.asked_for(StopAttempt)} == {"a#1#1", "a#2#1"}
    world.exits("a#1", 143).exits("a#2", 143)
    assert states(world) == [STARTING] * 3


def test_a_restart_forgets_nothing_of_a_gang(world):
    running(world).exits("a#2", 0).restarted()
    assert set(world.state.attempts) == {"a#1", "a#1#1"}
    world.connected(running=("a", "a#1"))
    world.exits("a", 0).exits("a#1", 0)
    assert states(world) == [SUCCEEDED] * 3


def test_a_restart_before_the_main_node_runs_starts_no_other(world):
    world.submits(a_gang()).restarted().connected()
    assert [one.token for one in starts(world)] == ["a#1"]
    world.starts("a")
    assert [one.token for one in starts(world)] == ["a#1#1", "a#2#1"]


def test_a_restart_while_the_others_are_being_stopped_waits_for_them(world):
    running(world).exits("a", 0).restarted().connected(running=("a#1", "a#2"))
    assert {one.token for one in world.asked_for(StopAttempt)} == {"a#1#1", "a#2#1"}
    assert world.state.jobs[JobId("a#1")].attempts[-1].stop_cause is StopCause.MAIN_ENDED
    world.exits("a#1", 143).exits("a#2", 143)
    assert world.state_of("a") is SUCCEEDED


def test_one_node_is_a_gang_too():
    world = a_world_of_gangs(a_gang_definition(nodes=1)).submits(a_gang()).starts("a").exits("a", 0)
    assert world.state_of("a") is SUCCEEDED


def test_nodes_have_checkpoints_of_their_own(world):
    world.submits(a_gang().tagged(checkpoint="true"))
    main = starts(world)[0].staging
    world.starts("a")
    other = starts(world)[0].staging
    assert main is not None
    assert main.checkpoints is not None
    assert other is not None
    assert other.checkpoints is not None
    assert main.checkpoints.uri == "s3://bucket/checkpoints/a/node-0"
    assert other.checkpoints.uri == "s3://bucket/checkpoints/a/node-1"


def test_overrides_change_the_nodes_of_their_range():
    ranges = (NodeRange(0, 0, a_container()), NodeRange(1, None, a_container(vcpus=2)))
    world = a_world_of_gangs(a_gang_definition("gang", 2, 0, *ranges), vcpus=8)
    overrides = NodeOverrides(3, (GroupOverrides(1, None, ContainerOverrides(("echo", "Ref::word"))),))
    job = a_gang()._with(node_overrides=overrides, parameters={"word": "hello"})
    world.submits(job).starts("a")
    assert [one.argv for one in starts(world)] == [("echo", "hello")] * 2
    assert [one.resources.vcpus for one in starts(world)] == [2, 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"array_size": 2}, "array"),
        ({"overrides": ContainerOverrides(("x",))}, "nodeOverrides"),
        ({"tags": {"windfall:gpu-share": "0.5"}}, "whole"),
        ({"node_overrides": NodeOverrides(0)}, "numNodes must be between 1 and 1000"),
    ],
)
def test_what_makes_no_sense_for_several_nodes_is_refused(world, changes, said):
    with pytest.raises(Invalid, match=said):
        world.submits(a_gang()._with(**changes))
    assert not world.state.jobs


def test_node_overrides_are_refused_for_a_single_job(world):
    with pytest.raises(Invalid, match="containerOverrides"):
        world.submits(a_job("b")._with(node_overrides=NodeOverrides(2)))


def test_a_budget_counts_all_nodes():
    dear = a_world_of_gangs(rates=Rates(usd_gpu_hour=0, usd_vcpu_hour=36.0))
    running(dear, a_gang().tagged(budget_usd="1"))
    # Three nodes of one vCPU cost 108 dollars an hour: one dollar lasts 33 seconds, not 100.
    dear.later(34_000)
    assert {one.token for one in dear.asked_for(InterruptAttempt)} == {"a#1", "a#1#1", "a#2#1"}
    for name in NODES:
        dear.exits(name, 143)
    assert states(dear) == [FAILED] * 3


def test_a_budget_counts_nodes_that_have_ended_and_those_that_came_later():
    # A cent a second and node; the second node ends after 10 s, the third loses its place then and has another at once.
    world = a_world_of_gangs(rates=Rates(usd_vcpu_hour=36.0))
    running(world, a_gang().tagged(budget_usd="1", replace_lost_nodes="true"))
    world.later(10_000).exits("a#1")
    world.happens(events.AttemptLost(world.token("a#2"), world.now))
    assert len(world.job("a#2").attempts) == 2
    # 30 cents are spent, and two nodes go on.
    world.later(34_000)
    assert not world.asked_for(InterruptAttempt)
    world.later(1_000)
    assert {one.token for one in world.asked_for(InterruptAttempt)} == {"a#1", "a#2#2"}
