"""Machines as the page lists them."""

from __future__ import annotations

from windfall.capacity.machines import Machine
from windfall.control.state import State
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources
from windfall.views.machines import machines


def test_a_host_has_the_name_that_it_was_added_with_and_says_why_it_takes_nothing():
    state = State()
    for machine in (
        Machine(
            MachineId("hosts-1a2b"),
            Resources(4, 1024),
            facts={"name": "gpu1", "engine": "hosts"},
            closed="drained",
        ),
        Machine(MachineId("3c4d"), Resources(8, 2048), facts={"hostname": "desk"}),
    ):
        state.machines[machine.id] = machine
    named = {
        listed["name"]: (listed["engine"], listed["closed"], listed["gpus"]) for listed in machines(state)
    }
    assert named == {"gpu1": ("hosts", "drained", []), "desk": ("local", None, [])}
