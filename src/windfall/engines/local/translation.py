"""What this host is to the core. Pure: the agent's words in, the core's out."""

from __future__ import annotations

from dataclasses import replace

from windfall.agent import messages
from windfall.capacity.machines import Machine
from windfall.control.job_users import ANY_USER
from windfall.engines.translation import to_devices
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources

#: The one machine of this engine.
THIS_HOST = MachineId("this-host")


def to_machine(inventory: messages.Inventory) -> Machine:
    """This host, as its agent describes it."""
    gpus = to_devices(inventory.gpus)
    facts = {
        "hostname": inventory.hostname,
        "job_user": inventory.job_user,
        "isolation": ", ".join(inventory.abilities) or "process",
        "containers": inventory.containers,
        "network_mbits": "" if inventory.network_mbits is None else str(inventory.network_mbits),
        "warnings": "\n".join(inventory.warnings),
        **({ANY_USER: "yes"} if inventory.any_user else {}),
    }
    return Machine(THIS_HOST, Resources(inventory.vcpus, inventory.memory_mib, len(gpus)), gpus, facts)


def with_devices(machine: Machine, reported: messages.Devices) -> Machine:
    """The host with its GPUs as they are now."""
    gpus = to_devices(reported.gpus)
    return replace(machine, gpus=gpus, total=replace(machine.total, gpus=len(gpus)))
