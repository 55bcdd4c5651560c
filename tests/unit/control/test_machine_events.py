"""Machines that take nothing new, and machines that are removed."""

from __future__ import annotations

from tests.builders import HOST, a_busy_world, a_job, a_machine
from windfall.control.machine_events import MachineRemoved, StandingChanged
from windfall.control.why import why
from windfall.jobs.ids import JobId
from windfall.jobs.states import RUNNABLE, RUNNING, STARTING

SILENT = "gpu1 does not answer: no route to host"


def test_a_closed_machine_gets_nothing_new_until_it_is_open_again_and_what_runs_there_goes_on():
    world = a_busy_world(a_machine()).submits(a_job("old")).starts("old")
    world.happens(StandingChanged(HOST, SILENT))
    world.submits(a_job("new"))
    assert (world.state_of("old"), world.state_of("new")) == (RUNNING, RUNNABLE)
    world.happens(StandingChanged(HOST, None))
    assert world.state_of("new") is STARTING


def test_why_says_which_machines_take_nothing_new_and_why():
    world = a_busy_world(a_machine())
    world.happens(StandingChanged(HOST, SILENT))
    world.submits(a_job("new"))
    answer = why(world.state, JobId("new"), world.offers, world.now)
    assert ("machine_closed", f"{SILENT}; nothing new is placed there") in answer.reasons


def test_a_removed_machine_is_forgotten_with_its_instances_and_its_jobs_wait_again():
    world = a_busy_world(a_machine()).submits(a_job("train").retried(3)).starts("train")
    world.happens(MachineRemoved(HOST))
    assert world.state_of("train") in (RUNNABLE, STARTING)
    assert HOST not in world.state.machines or not world.state.instances
    world.happens(StandingChanged(HOST, SILENT))  # A late word about it changes nothing.


def test_a_machine_that_was_removed_can_come_again():
    world = a_busy_world(a_machine())
    world.happens(MachineRemoved(HOST))
    assert HOST not in world.state.gone_machines
