"""A share of a machine follows the machine's size and the environment's bound."""

from __future__ import annotations

from tests.builders import a_busy_world, a_job, a_machine
from windfall.control import events
from windfall.jobs.ids import EnvironmentName
from windfall.jobs.resources import Resources


def the_instance(world):
    [instance] = world.state.instances.values()
    return instance


def test_a_raised_bound_is_used_at_once():
    world = a_busy_world()
    world.happens(events.UpdateComputeEnvironment(EnvironmentName("environment"), max_vcpus=1))
    assert the_instance(world).total.vcpus == 1
    world.submits(a_job("a"), a_job("b"))
    assert [world.state_of(j).value for j in "ab"] == ["STARTING", "RUNNABLE"]
    world.happens(events.UpdateComputeEnvironment(EnvironmentName("environment"), max_vcpus=64))
    assert [world.state_of(j).value for j in "ab"] == ["STARTING", "STARTING"]
    assert world.store.load().instances[0].total == the_instance(world).total


def test_a_machine_that_grew_or_shrank_is_used_as_it_is_now():
    world = a_busy_world(a_machine(vcpus=2))
    world.machine = a_machine(vcpus=8, memory_mib=9_999)
    world.connected()
    assert the_instance(world).total == Resources(8, 9_999, world.machine.total.gpus)
    world.submits(a_job("a"), a_job("b"))
    world.machine = a_machine(vcpus=1, memory_mib=9_999)
    world.connected(preparing=("a#1", "b#1"))
    assert [world.state_of(j).value for j in "ab"] == ["STARTING", "STARTING"], "what has a place keeps it"
    world.submits(a_job("c"))
    assert world.state_of("c").value == "RUNNABLE"
