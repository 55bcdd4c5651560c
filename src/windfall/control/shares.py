"""Instances that are a share of a machine follow the machine's size and their environment's bound.

A machine changes when its agent is started with other settings, and a bound when somebody updates the environment. What
runs is not touched; a share that became smaller than what it holds takes nothing new until enough has ended.
"""

from __future__ import annotations

from windfall.capacity.machines import share_of
from windfall.control.round import Round
from windfall.control.state import State


def resize_shares(state: State, round_: Round) -> None:
    """Give every share the size that it has now."""
    for instance in state.instances.values():
        machine = state.machines.get(instance.machine) if instance.machine is not None else None
        environment = state.environments.get(instance.environment)
        if not instance.is_share or machine is None or environment is None:
            continue
        total = share_of(machine.total, environment.max_vcpus)
        if total != instance.total:
            instance.total = total
            round_.changes.instances[instance.id] = instance
            state.unsettled = True
