"""Worlds with many machines from seeds, and faulty engines that must be found in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.fleet_agents import FleetAgent
from tests.simulation.fleet_worlds import FLEET_PARTS, run_fleet
from tests.simulation.fleets import Fleet, PlayedFleet
from tests.simulation.store import BrokenPromise
from tests.simulation.world import Parts
from windfall.agent import messages
from windfall.engines.fleet.machines import Machines, Member
from windfall.jobs.ids import AttemptToken, MachineId


@pytest.mark.parametrize("first", [10, 18])
def test_every_promise_is_kept_with_many_machines(first):
    outcomes = [run_fleet(seed) for seed in range(first, first + 6)]
    assert sum(outcome.attempts for outcome in outcomes) > 100
    assert sum(outcome.crashes for outcome in outcomes) > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 25))
def test_every_promise_is_kept_in_hundreds_of_worlds_with_many_machines(first):
    assert sum(run_fleet(seed).attempts for seed in range(first, first + 25)) > 250


def test_a_seed_gives_the_same_fleet_again():
    first: list[str] = []
    second: list[str] = []
    assert run_fleet(3, tell=first.append) == run_fleet(3, tell=second.append)
    assert first == second


class Credulous(Machines):
    """Lets every machine speak of every attempt."""

    def may_speak(self, machine: MachineId, token: str) -> bool:
        return self.place_of(AttemptToken(token)) is not None


class CredulousEngine(PlayedFleet):
    """Believes every machine."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._machines = Credulous()


class PatientEngine(PlayedFleet):
    """Waits for ever for a machine that does not answer."""

    def _lose(self, machine: MachineId) -> None:
        pass

    def _lose_unseen(self, member: Member) -> None:
        pass


class HeedlessAgent(FleetAgent):
    """Lets everything run on that must stop when the daemon is not heard."""

    def watch_alone(self, token: str) -> None:
        pass


class SilentEngine(PlayedFleet):
    """Says nothing to a machine that has superseded attempts."""

    def _introduce(self, name: str, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        link = self._lines[name].link
        written, link.write = link.write, lambda _: None  # type: ignore[method-assign]  # for one call
        super()._introduce(name, inventory, results)
        link.write = written  # type: ignore[method-assign]  # for one call


def a_fleet_of(engine: type[PlayedFleet]) -> type[Fleet]:
    class Faulty(Fleet):
        engine_type = engine

    return Faulty


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (CredulousEngine, "is said to have ended with 0, and its process did not"),
        (PatientEngine, "have not ended|no agent knows of it|still runs"),
        (SilentEngine, "was never told to forget|processes without a job|and its processes use"),
    ],
    ids=["believes every machine", "never gives up", "says nothing to strangers"],
)
def test_a_faulty_engine_is_found_and_its_seed_named(engine, found):
    assert_found(replace(FLEET_PARTS, engine=a_fleet_of(engine)), found)


def test_an_agent_that_lets_attempts_run_on_alone_is_found_and_its_seed_named():
    assert_found(replace(FLEET_PARTS, agent=HeedlessAgent), r"starts on \S+ while \S+ runs on")


def assert_found(parts: Parts, found: str) -> None:
    """Some world must notice what is wrong with these parts."""
    seed = next((seed for seed in range(10, 60) if is_noticed(seed, parts)), None)
    assert seed is not None, "no world noticed"
    with pytest.raises(BrokenPromise, match=f"({found}).*make sim FLEET=1 SEED={seed}"):
        run_fleet(seed, parts=parts)


def is_noticed(seed: int, parts: Parts) -> bool:
    """Whether a promise is broken in a world."""
    try:
        run_fleet(seed, parts=parts)
    except BrokenPromise:
        return True
    return False
