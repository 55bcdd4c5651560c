"""Jobs of several equal nodes: all start at once, the last good end or the first bad one is the job's."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import TestWorld, a_machine, a_world
from tests.unit.control.trainings import a_training
from windfall.accounting.ledger import spent_usd
from windfall.accounting.prices import Rates
from windfall.aws_api.sagemaker.endings import failure_reason, final_status
from windfall.control import events
from windfall.control.instructions import InterruptAttempt, StartAttempt, StopAttempt
from windfall.control.interrupting import give_notice
from windfall.control.round import Round
from windfall.control.why import why
from windfall.jobs.attempts import StopCause
from windfall.jobs.definitions import ContainerSpec, HostProgram
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.nodes import OWN_NAME, NodeGroup, Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Channel, Checkpoints, Output, Staging, TextFile
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED

MAIN, SECOND, THIRD = ALL = ("training-t", "training-t#1", "training-t#2")
CONTAINER = ContainerSpec(
    "image",
    Resources(1, 1024),
    ("train",),
    log_group="/aws/sagemaker/TrainingJobs",
    on_host=HostProgram(("python3", "train.py"), {"SM_CURRENT_HOST": OWN_NAME}),
)
STAGING = Staging(
    Checkpoints("s3://bucket/t", publish=True),
    files=(TextFile("/opt/ml/input/config/resourceconfig.json", f'{{"current_host": "{OWN_NAME}"}}'),),
    channels=(Channel("all", "s3://b/all"), Channel("part", "s3://b/part", divided_among=(0, 2))),
    outputs=(Output("/opt/ml/model", "s3://b/model.tar.gz"), Output("/x", "s3://b/x", archived=False)),
)


def nodes(**changes: Any) -> Nodes:
    groups = (NodeGroup(0, 2, CONTAINER, staging=STAGING),)
    return Nodes(3, 0, groups, peers=True, name_prefix="algo-", **changes)


def placed(rates: Rates | None = None, **limits: Any) -> TestWorld:
    """A world in which job t has its three places."""
    world = a_world(a_machine(4), rates=rates or Rates())
    world.happens(a_training("t", nodes=nodes(), **limits))
    return world.ready()


@pytest.fixture
def world() -> TestWorld:
    return placed()


def states(world: TestWorld) -> list[Any]:
    return [world.state_of(name) for name in ALL]


def test_all_are_started_at_once(world):
    assert states(world) == [STARTING] * 3
    assert len(world.asked_for(StartAttempt)) == 3


def test_each_node_has_its_own_name_part_and_place_among_the_others(world):
    starts = {start.staging.checkpoints.writer: start for start in world.asked_for(StartAttempt)}
    first, last = starts[0], starts[2]
    assert first.environment["SM_CURRENT_HOST"] == "algo-1"
    assert last.environment["SM_CURRENT_HOST"] == "algo-3"
    assert last.staging.files[0].content == '{"current_host": "algo-3"}'
    assert [start.staging.channels[1].part for start in (first, last)] == [(0, 2), (1, 2)]
    assert [start.staging.channels[0].part for start in (first, last)] == [(0, 1), (0, 1)]
    assert last.staging.checkpoints == Checkpoints("s3://bucket/t", publish=True, writer=2, writers=3)
    assert first.staging.hosts == last.staging.hosts
    assert first.staging.hosts[2] == ("algo-3", "127.64.0.3")
    archive, files = last.staging.outputs
    assert archive.merged_as is not None
    assert archive.merged_as == first.staging.outputs[0].merged_as
    assert (archive.merged_of, files.merged_as) == (3, None)


def test_the_job_succeeds_when_the_last_one_has(world):
    world.starts(*ALL).exits(MAIN).exits(THIRD)
    assert world.state_of(MAIN) is RUNNING
    assert not world.asked_for(StopAttempt)
    assert "goes on until its last node ends" in why(world.state, JobId(MAIN), {}, world.now).reasons[0][1]
    world.exits(SECOND)
    assert states(world) == [SUCCEEDED] * 3


def test_the_first_that_fails_stops_the_others_and_says_why_the_job_failed(world):
    world.starts(*ALL).exits(MAIN)
    world.happens(events.AttemptExited(world.token(SECOND), world.now, 3, None, failure="enough"))
    assert [stop.token for stop in world.asked_for(StopAttempt)] == [world.token(THIRD)]
    assert world.state_of(MAIN) is RUNNING
    world.exits(THIRD, 143)
    assert states(world) == [FAILED] * 3
    job = world.job(MAIN)
    assert failure_reason(job) == "AlgorithmError: enough, exit code: 3"
    assert job.attempts[0].exit_code == 0
    assert job.gang_ends[0].node == 1
    assert world.job(THIRD).attempts[0].stop_cause is StopCause.PEER_FAILED


@pytest.mark.parametrize("codes", list(itertools.product((0, 1), repeat=3)))
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_in_whatever_order_they_end_all_must_end_well(codes, order):
    world = placed()
    world.starts(*ALL)
    for number in order[:-1]:
        world.exits(ALL[number], codes[number])
        assert world.state_of(MAIN) is RUNNING
    world.exits(ALL[order[-1]], codes[order[-1]])
    assert world.state_of(MAIN) is (FAILED if any(codes) else SUCCEEDED)
    bad = [number for number in order if codes[number]]
    # The first that failed is the reason, whatever the others made of being stopped for it.
    assert not bad or world.job(MAIN).gang_ends[0].node == bad[0]
    assert not world.state.attempts


def test_a_lost_place_interrupts_all_and_all_are_tried_again(world):
    world.starts(*ALL).exits(MAIN)
    world.happens(events.AttemptLost(world.token(SECOND), world.now))
    assert [notice.token for notice in world.asked_for(InterruptAttempt)] == [world.token(THIRD)]
    world.exits(THIRD, 1)
    # Nothing else runs there, so all of them have places again at once.
    assert states(world) == [STARTING] * 3
    assert {len(world.job(name).attempts) for name in ALL} == {2}
    assert world.job(MAIN).tries[0].interrupted
    assert world.job(MAIN).charged_attempts == 1


def test_one_that_runs_on_is_held_to_the_time_of_the_whole_job():
    world = placed(run_s=60)
    world.starts(*ALL).later(10_000).exits(MAIN).exits(SECOND)
    world.later(45_000)
    assert not world.asked_for(StopAttempt)
    world.later(10_000)
    assert [stop.token for stop in world.asked_for(StopAttempt)] == [world.token(THIRD)]
    world.exits(THIRD, 0)
    assert final_status(world.job(MAIN)) == ("Stopped", "MaxRuntimeExceeded")


def test_stopping_counts_even_for_nodes_that_then_end_well(world):
    world.starts(*ALL).exits(MAIN)
    world.happens(events.TerminateJob(JobId(MAIN), "enough"))
    world.exits(SECOND, 0).exits(THIRD, 0)
    assert world.state_of(MAIN) is FAILED
    assert final_status(world.job(MAIN)) == ("Stopped", "Stopped")


def test_nothing_is_forgotten_over_a_restart(world):
    world.starts(*ALL).exits(MAIN).restarted()
    world.exits(SECOND).exits(THIRD)
    assert states(world) == [SUCCEEDED] * 3


def test_parts_of_gpus_are_refused():
    world = a_world(a_machine(4))
    with pytest.raises(Invalid, match="windfall:gpu-share"):
        world.happens(a_training("t", gpus=1, nodes=nodes(), tags={"windfall:gpu-share": "0.5"}))


def test_a_gang_without_all_its_places_waits():
    world = a_world(a_machine(2))
    world.happens(a_training("t", nodes=nodes()))
    world.ready()
    assert world.state_of(MAIN) is RUNNABLE
    assert not world.state.attempts


def test_deleting_it_removes_its_nodes_too(world):
    world.starts(*ALL).exits(MAIN).exits(SECOND).exits(THIRD)
    world.happens(events.DeleteTraining(JobId(MAIN)))
    assert MAIN not in world.state.finished


def test_an_image_that_nobody_can_run_fails_the_job_at_once():
    world = a_world(a_machine(4))
    nothing = replace(CONTAINER, on_host=HostProgram())
    world.happens(
        a_training("t", nodes=replace(nodes(), groups=(NodeGroup(0, 2, nothing, staging=STAGING),)))
    )
    world.ready()
    assert world.state_of(MAIN) is FAILED
    assert not world.asked_for(StartAttempt)


def test_a_spent_budget_fails_the_job_unless_all_were_done():
    world = placed(tags={"windfall:budget-usd": "1"})
    world.starts(*ALL)
    for name in ALL:
        give_notice(
            world.state, world.state.jobs[name], world.now, "spent", Round(world.now), cause=StopCause.BUDGET
        )
    world.exits(MAIN, 0).exits(SECOND, 0).exits(THIRD, 143)
    assert world.job(MAIN).status_reason.startswith("Budget of ")


def test_a_budget_counts_hosts_that_have_ended_within_the_try():
    # A cent a second and host: 20 s of the first and 30 s of the second leave 50 s to the third.
    rates = Rates(usd_vcpu_hour=36.0, spot_factor=1.0)
    world = placed(rates, tags={"windfall:budget-usd": "1"})
    world.starts(*ALL).later(20_000).exits(MAIN).later(10_000).exits(SECOND)
    world.restarted().later(19_000)
    assert not world.asked_for(InterruptAttempt)
    world.later(1_000)
    assert [notice.token for notice in world.asked_for(InterruptAttempt)] == [world.token(THIRD)]
    assert sum(spent_usd(world.job(name), rates, world.now) for name in ALL) == pytest.approx(1.0)
    world.exits(THIRD, 143)
    assert world.job(MAIN).status_reason.startswith("Budget of ")
