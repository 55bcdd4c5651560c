"""What a simulated instance looks like to the core: a machine of its own, of the size that its type has.

Decides the devices: GPUs are simulated ones, or stand for real ones of this host, taken in turn. Must not know markets.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from windfall.agent import messages
from windfall.capacity import catalog
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.job_users import ANY_USER
from windfall.control.look_ahead import KEEPS_STANDBYS
from windfall.engines.translation import to_devices
from windfall.jobs.ids import InstanceId, MachineId
from windfall.jobs.resources import Resources

#: Between the id of a real device and the number of the simulated one that stands for it.
_MARK = "~"


def machine_of(instance: InstanceId, type_: str, total: Resources, inventory: messages.Inventory) -> Machine:
    """The machine that an instance is, on the host whose agent runs its attempts."""
    facts = {
        "hostname": inventory.hostname,
        "job_user": inventory.job_user,
        "isolation": ", ".join(inventory.abilities) or "process",
        "containers": inventory.containers,
        "warnings": "\n".join(inventory.warnings),
        **({ANY_USER: "yes"} if inventory.any_user else {}),
        **({KEEPS_STANDBYS: "yes"} if inventory.keeps_standbys else {}),
        "simulated": (
            f"{type_} is simulated: its jobs run on {inventory.hostname}, which has"
            f" {inventory.vcpus:g} vCPUs and {inventory.memory_mib} MiB for all of them"
        ),
    }
    return Machine(MachineId(instance), total, devices_of(instance, type_, int(total.gpus), inventory), facts)


def devices_of(
    instance: InstanceId, type_: str, count: int, inventory: messages.Inventory | None
) -> tuple[GpuDevice, ...]:
    """The devices that an instance of a type has, or would have on a host that has not been described yet."""
    instance_type = catalog.find(type_)
    model = (instance_type.gpu_model if instance_type is not None else None) or "GPU"
    memory_mib = instance_type.gpu_memory_mib if instance_type is not None else None
    real = to_devices([gpu for gpu in inventory.gpus if not gpu.simulated] if inventory is not None else [])
    if not real:
        return tuple(
            GpuDevice(
                f"GPU-simulated-{instance}-{n}",
                f"{model} (simulated)",
                memory_mib,
                simulated=True,
                sharing="simulated",
            )
            for n in range(count)
        )
    # Not the first device for everybody, and the same after a restart.
    start = zlib.crc32(instance.encode())
    chosen = [real[(start + n) % len(real)] for n in range(count)]
    # What ails the real one ails what stands for it.
    return tuple(
        replace(
            gpu,
            id=f"{gpu.id}{_MARK}{n}",
            name=f"{model} (simulated on {gpu.name})",
            memory_mib=memory_mib,
            simulated=True,
            parent=None,
        )
        for n, gpu in enumerate(chosen)
    )


def real_devices(gpu_ids: Sequence[str]) -> tuple[str, ...]:
    """The ids by which the agent knows the devices of an attempt, each once."""
    return tuple(dict.fromkeys(gpu_id.partition(_MARK)[0] for gpu_id in gpu_ids))
