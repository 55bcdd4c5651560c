"""GPUs that fall ill and get well: who keeps away from them, and whose job is moved.

Decides the rules; must not know how a device's health is found out.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.control.events import DevicesChanged
from windfall.control.round import Round
from windfall.control.state import State


def on_devices_changed(state: State, report: DevicesChanged, round_: Round) -> None:
    """Know a machine's devices as they are now."""
    machine = state.machines.get(report.machine)
    if machine is None or machine.gpus == report.gpus:
        return
    state.machines[machine.id] = round_.changes.machines[machine.id] = replace(machine, gpus=report.gpus)
    state.unsettled = True
