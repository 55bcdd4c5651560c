"""Windfall's own operations on GPUs: list them with their health and holders; fence one by hand.

Turns domain values into plain JSON and back; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.events import FenceDevice
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.errors import NotFound, Rejected

#: Stands for the jobs of other tenants.
OTHERS = "others"


class Gpus:
    """The handlers, over the control loop."""

    def __init__(self, loop: TenantGateway) -> None:
        self._loop = loop

    async def list(self, _: Call) -> dict[str, Any]:
        """All GPUs of all machines."""
        return {"gpus": await self._loop.inspect(_all)}

    async def fence(self, call: Call) -> dict[str, Any]:
        """Keep new jobs from a GPU, or allow them again when `reason` is null."""
        gpu_id, reason = call.params.get("gpuId"), call.params.get("reason")
        if not isinstance(gpu_id, str) or not gpu_id or not (reason is None or isinstance(reason, str)):
            raise ApiError(
                "Invalid", "gpuId is required (a non-empty string); reason must be a string or null."
            )
        try:
            holder_count: int = await self._loop.execute(FenceDevice(gpu_id, reason))
        except NotFound as rejected:
            raise ApiError("NotFound", str(rejected), 404) from None
        except Rejected as rejected:
            raise ApiError("Invalid", str(rejected)) from None
        return {"gpuId": gpu_id, "reason": reason, "heldBy": holder_count}


def gpus_of(state: State, machine: Machine) -> list[dict[str, Any]]:
    """The GPUs of one machine; `heldBy` is the first job on each, `holders` lists all with their shares."""
    holders_by_gpu = holders(state)
    return [_described(machine, gpu, holders_by_gpu.get(gpu.id, [])) for gpu in machine.gpus]


def holders(state: State) -> dict[str, list[dict[str, Any]]]:
    """The jobs that hold each GPU, and their shares of it; jobs that the caller cannot see are `others`."""
    by_gpu: dict[str, list[dict[str, Any]]] = {}
    for use in state.occupancy.instances.values():
        for token, hold in use.holds.items():
            job = state.attempts.get(token)
            part = job.attempt.gpu_share if job is not None and job.attempt is not None else None
            for gpu_id in hold.gpu_ids:
                holder = {"jobId": OTHERS if job is None else job.id, "share": part}
                by_gpu.setdefault(gpu_id, []).append(holder)
    return by_gpu


def _all(state: State, _: Offers, __: int) -> list[dict[str, Any]]:
    return [gpu for machine in state.machines.values() for gpu in _listed(state, machine)]


def _listed(state: State, machine: Machine) -> Iterator[dict[str, Any]]:
    for gpu in gpus_of(state, machine):
        yield {"machine": machine.id, **gpu}


def _described(machine: Machine, gpu: GpuDevice, holders: list[dict[str, Any]]) -> dict[str, Any]:
    fence = machine.why_fenced(gpu)
    health = "lost" if gpu.lost else "fenced" if fence is not None else "noted" if gpu.notes else "well"
    return {
        "id": gpu.id,
        "name": gpu.name,
        "memoryMib": gpu.memory_mib,
        "simulated": gpu.simulated,
        "driver": gpu.driver,
        "parent": gpu.parent,
        "sharing": gpu.sharing,
        "sharingNote": gpu.sharing_note,
        "health": health,
        "fence": fence,
        "fencedByHand": gpu.id in machine.fences,
        #: A fence of the agent's that an administrator removed.
        "pardoned": gpu.fence if fence is None else None,
        "notes": list(gpu.notes),
        "heldBy": holders[0]["jobId"] if holders else None,
        "holders": holders,
    }
