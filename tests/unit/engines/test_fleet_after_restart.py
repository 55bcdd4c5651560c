"""What an engine over many machines does about machines that an earlier daemon knew and this one does not hear."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.fleets import PlayedReach
from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.reach import Reach
from windfall.capacity.machines import NAME_FACT, Instance, InstanceState, Machine, Offer
from windfall.control.events import InstanceLaunchFailed, InstanceLost
from windfall.control.instructions import LaunchInstance
from windfall.control.machine_events import MachineRemoved, StandingChanged
from windfall.control.ports import Holdings
from windfall.engines.agent_link import AgentLink
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.jobs.ids import EnvironmentName, InstanceId, MachineId
from windfall.jobs.resources import Resources

OLD, INSTANCE, SHARED = MachineId("hosts-old"), InstanceId("i-1"), EnvironmentName("shared")
SIZE = Resources(4, 1024)


class Line(AgentLink):
    """A line over which nobody has spoken for as long as the test says."""

    quiet_for_s = 0.0

    @property
    def silent_s(self) -> float:
        return self.quiet_for_s


class Engine(FleetEngine):
    """The engine with lines that the test speaks over."""

    def _link(self, name: str, reach: Reach) -> AgentLink:
        self.line = Line(reach, 1, lambda *said: self._introduce(name, *said), lambda _: None)
        return self.line


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def engine(told, clock, tmp_path: Path) -> Engine:
    """An engine that has adopted one machine with one instance."""
    settings = FleetSettings(clock_s=lambda: clock[0])
    engine = Engine(told.append, AttemptDirectory(tmp_path), 1, settings)
    machine = Machine(OLD, SIZE, facts={NAME_FACT: "gpu1"})
    instance = Instance(INSTANCE, SHARED, "gpu1", SIZE, InstanceState.READY, OLD)
    engine.adopt(Holdings(instances=[instance], machines=[machine]))
    told.clear()
    return engine


def test_a_machine_that_never_answers_the_new_daemon_is_lost_with_what_the_old_one_placed_there(engine, told):
    engine.add("gpu1", PlayedReach(None))  # type: ignore[arg-type]  # nobody speaks over it
    engine.line.quiet_for_s = 299.0
    engine._look_at_all()
    assert told == []
    engine.line.quiet_for_s = 300.0
    engine._look_at_all()
    engine._look_at_all()
    closed = "gpu1 has not answered for too long and counts as lost"
    assert told == [InstanceLost(INSTANCE), StandingChanged(OLD, closed)]


def test_a_machine_that_has_another_identity_for_the_new_daemon_takes_the_place_of_the_old_one(engine, told):
    engine.add("gpu1", PlayedReach(None))  # type: ignore[arg-type]  # nobody speaks over it
    inventory = messages.Inventory("gpu1", 1, 4, 1024, [], [], "", [], [], machine_id="new")
    engine._introduce("gpu1", inventory, [])
    assert told[:2] == [InstanceLost(INSTANCE), MachineRemoved(OLD)]
    assert told[2].machine.id == "hosts-new"


def test_a_machine_that_was_removed_while_no_daemon_ran_is_forgotten(engine, told, clock):
    engine._look_at_all()
    clock[0] = 300.0
    engine._look_at_all()
    assert told == [InstanceLost(INSTANCE), MachineRemoved(OLD)]
    assert not engine._look_at_all()


def test_a_machine_that_is_removed_before_it_answers_the_new_daemon_is_forgotten_at_once(engine, told):
    engine.add("gpu1", PlayedReach(None))  # type: ignore[arg-type]  # nobody speaks over it
    asyncio.run(engine.remove("gpu1"))
    assert told == [InstanceLost(INSTANCE), MachineRemoved(OLD)]
    assert not engine._look_at_all()


def test_an_instance_that_cannot_be_launched_again_is_not_kept(engine, told):
    engine.add("gpu1", PlayedReach(None))  # type: ignore[arg-type]  # nobody speaks over it
    engine.carry_out([LaunchInstance(INSTANCE, SHARED, Offer("gpu1", SIZE, 1, OLD))])
    assert [type(report) for report in told] == [InstanceLaunchFailed]
    assert engine._machines.machine_of(INSTANCE) is None
