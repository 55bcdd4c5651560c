"""What this host is to the core. Pure: the agent's words in, the core's out."""

from __future__ import annotations

from windfall.agent import messages
from windfall.capacity.machines import GpuDevice, Machine
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources

#: The one machine of this engine.
THIS_HOST = MachineId("this-host")


def to_machine(inventory: messages.Inventory) -> Machine:
    """This host, as its agent describes it."""
    gpus = tuple(GpuDevice(gpu.id, gpu.name, gpu.memory_mib, gpu.simulated) for gpu in inventory.gpus)
    facts = {
        "hostname": inventory.hostname,
        "job_user": inventory.job_user,
        "isolation": ", ".join(inventory.abilities) or "process",
        "warnings": "\n".join(inventory.warnings),
    }
    return Machine(THIS_HOST, Resources(inventory.vcpus, inventory.memory_mib, len(gpus)), gpus, facts)
