"""The GPUs of the simulated world, of several kinds and shared, and what must hold for them at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise
from windfall.capacity.machines import GpuDevice, Hold, Machine
from windfall.control.instructions import StartAttempt
from windfall.control.state import State
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.gpus import held_part
from windfall.jobs.ids import AttemptToken
from windfall.jobs.job import Job
from windfall.jobs.resources import NOTHING
from windfall.jobs.states import FAILED

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Model and GiB of the devices of the host, in its own order, and of a machine of the cloud.
HOST_KINDS = (("A10G", 24), ("T4", 16))
CLOUD_KINDS = (("H100", 80),)
#: What jobs ask of their GPUs: most nothing, some what only the cloud has, some what nobody has.
GPU_TAGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {"windfall:gpu-model": "a10g"},
    {"windfall:gpu-memory-gib": "20"},
    {"windfall:gpu-memory-gib": "60"},
    {"windfall:gpu-model": "B200"},
    {"windfall:gpu-share": "0.5"},
    {"windfall:gpu-share": "0.3", "windfall:on-gpu-oom": "larger"},
    {"windfall:on-gpu-oom": "larger"},
    {"windfall:on-gpu-oom": "larger", "windfall:gpu-model": "t4"},
)
TOO_SMALL = Diagnosis(FailureCause.GPU_MEMORY, "CUDA out of memory (simulated)")


def devices_of(machine_id: str, count: int) -> tuple[GpuDevice, ...]:
    """The devices of a machine; each id tells the memory, so that a look at an attempt is enough."""
    kinds = HOST_KINDS if machine_id == "host" else CLOUD_KINDS
    return tuple(
        GpuDevice(f"{machine_id}-gpu{n}-{gib}", model, gib * 1024, simulated=True, sharing="simulated")
        for n, (model, gib) in zip(range(count), kinds, strict=False)
    )


def gib_of(gpu_id: str) -> int:
    """The memory of a device."""
    return int(gpu_id.rpartition("-")[2])


def check_holds(machine: Machine, holds: list[Hold]) -> None:
    """Every device has one owner, or several whose parts are no more than it."""
    for gpu in machine.gpus:
        mine = [hold for hold in holds if gpu.id in hold.gpu_ids]
        if sum(hold.resources.gpus if hold.is_part else 1 for hold in mine) > 1:
            raise BrokenPromise(f"{gpu.id} is given out beyond itself: {mine}")


def check_wish(state: State, job: Job, machine: Machine, hold: Hold) -> None:
    """An attempt has the GPUs that its job asks for now."""
    wish, attempt = job.wish, job.attempt
    if attempt is not None and attempt.behind is not None:
        if hold.resources != NOTHING or hold.gpu_ids:
            raise BrokenPromise(f"{attempt.token} stands behind {attempt.behind} and holds {hold}")
        return
    devices = [gpu for gpu in machine.gpus if gpu.id in hold.gpu_ids]
    if hold.resources != job.needs or len(devices) != (1 if hold.is_part else hold.resources.gpus):
        raise BrokenPromise(
            f"{job.id} needs {job.needs} and holds {hold} of {state.machines[machine.id].gpus}"
        )
    if wish is not None and not all(wish.admits(gpu.name, gpu.memory_mib) for gpu in devices):
        raise BrokenPromise(f"{job.id} asks for {wish} and has {devices}")


def check_fences(state: State, placed_before: set[AttemptToken]) -> None:
    """Nobody is put on a device that is known to be sick; what fell ill under an attempt is another matter."""
    for token in state.attempts.keys() - placed_before:
        attempt = state.attempts[token].attempt
        instance = state.instances.get(attempt.instance) if attempt is not None else None
        if attempt is None or instance is None or instance.machine is None:
            continue
        machine = state.machines[instance.machine]
        sick = [gpu.id for gpu in machine.gpus if gpu.id in attempt.gpu_ids and machine.why_fenced(gpu)]
        if sick:
            raise BrokenPromise(f"{attempt.token} was put on {sick}, which nobody should get")


def check_devices_of(world: World, machine: Machine, start: StartAttempt) -> None:
    """A process that begins shares its devices with others only as far as all of them hold parts."""
    beside = [other for other in world.processes_on(machine.id) if set(other.gpu_ids) & set(start.gpu_ids)]
    if not beside:
        return
    parts = [held_part(one.gpu_share) if one.gpu_share is not None else 1.0 for one in (start, *beside)]
    if sum(parts) > 1:
        raise BrokenPromise(
            f"{start.token} begins on {start.gpu_ids}, and {beside} use too much of it already"
        )


def check_growth(job: Job) -> None:
    """After each end for want of GPU memory more is asked for, and only what nobody has ends it."""
    for before, after in zip(job.attempts, job.attempts[1:], strict=False):
        if not job.outgrew(before):
            continue
        larger = min(map(gib_of, after.gpu_ids)) > min(map(gib_of, before.gpu_ids))
        if before.gpu_share is not None:
            larger = after.gpu_share is None or after.gpu_share > before.gpu_share
        if not larger:
            raise BrokenPromise(f"tried again with no more GPU memory: {job.story()}")
    last = job.attempts[-1] if job.attempts else None
    if last is not None and job.outgrew(last) and job.state is FAILED:
        kept_from = ("Out of GPU memory", "Budget", "Max", "Job queue deleted")
        if not (job.stop_reason or (job.status_reason or "").startswith(kept_from)):
            raise BrokenPromise(f"failed where it should have been tried on a larger GPU: {job.story()}")
