"""An environment is changed while jobs run: what it would not launch any more goes, and nobody is cut off early."""

from __future__ import annotations

import pytest

from tests.builders import a_definition, a_job, a_world
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import InstanceState, Offer
from windfall.control.commands.capacity import (
    CreateComputeEnvironment,
    CreateJobQueue,
    UpdateComputeEnvironment,
)
from windfall.control.events import RegisterJobDefinition
from windfall.control.instructions import InterruptAttempt, LaunchInstance, TerminateInstance
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.resources import Resources

NAME = EnvironmentName("cloud")
SMALL, LARGE = Offer("g5.xlarge", Resources(4, 16_384, 1)), Offer("g5.2xlarge", Resources(8, 32_768, 1))


@pytest.fixture
def world():
    """A job runs on the one instance of an environment."""
    world = a_world(notice_s=120.0)
    world.offers = {NAME: (SMALL,)}
    environment = ComputeEnvironment(NAME, Provisioning.EC2, 0, 64, instance_types=("g5.xlarge",))
    world.happens(CreateComputeEnvironment(environment))
    world.happens(CreateJobQueue(JobQueue(QueueName("queue"), 1, (NAME,))))
    world.happens(RegisterJobDefinition(a_definition()))
    world.submits(a_job("one").gpus(1)).ready().starts("one")
    return world


def the_instance(world):
    (instance,) = world.state.instances.values()
    return instance


def test_other_types_let_the_old_instance_go_when_its_job_has_ended(world):
    world.happens(UpdateComputeEnvironment(NAME, instance_types=("g5.2xlarge",)))
    world.offers = {NAME: (LARGE,)}
    assert the_instance(world).state is InstanceState.TERMINATING
    assert not world.asked_for(InterruptAttempt)
    world.submits(a_job("two").gpus(1))
    assert [launch.offer.type for launch in world.asked_for(LaunchInstance)] == ["g5.2xlarge"]
    world.exits("one")
    assert len(world.asked_for(TerminateInstance)) == 1
    assert world.state_of("one") == "SUCCEEDED"


def test_a_job_that_does_not_end_has_notice_in_time_and_is_tried_again(world):
    world.happens(UpdateComputeEnvironment(NAME, provisioning=Provisioning.SPOT, jobs_have_s=600))
    world.later(479_000)
    assert not world.asked_for(InterruptAttempt)
    world.restarted().later(1_000)
    (notice,) = world.asked_for(InterruptAttempt)
    assert notice.deadline_at == world.now + 120_000
    world.later(1_000)
    assert not world.asked_for(InterruptAttempt), "notice is given once"


def test_an_update_may_end_jobs_at_once(world):
    world.happens(UpdateComputeEnvironment(NAME, bid_percent=60, jobs_have_s=0))
    world.later(1)
    (notice,) = world.asked_for(InterruptAttempt)
    assert notice.deadline_at <= world.now


def test_what_does_not_change_the_instances_leaves_them(world):
    for update in (
        UpdateComputeEnvironment(NAME, max_vcpus=128, document='{"a": 1}'),
        UpdateComputeEnvironment(NAME, instance_types=("g5.xlarge", "g5.2xlarge")),
        UpdateComputeEnvironment(NAME, provisioning=Provisioning.EC2),
    ):
        world.happens(update)
        assert the_instance(world).state is InstanceState.READY


def test_a_share_of_a_machine_is_not_replaced():
    world = a_world().declared().submits(a_job("one")).ready().starts("one")
    (before,) = world.state.instances.values()
    world.happens(UpdateComputeEnvironment(EnvironmentName("environment"), provisioning=Provisioning.SPOT))
    assert the_instance(world) is before
    assert before.state is InstanceState.READY


@pytest.mark.parametrize("kind", [Provisioning.FARGATE, Provisioning.UNMANAGED, Provisioning.FARGATE_SPOT])
def test_an_environment_stays_of_its_family(world, kind):
    with pytest.raises(Invalid, match="create another one"):
        world.happens(UpdateComputeEnvironment(NAME, provisioning=kind))
    assert world.state.environments[NAME].provisioning is Provisioning.EC2
