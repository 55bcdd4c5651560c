"""What a job may ask of its GPUs: refused at once where it makes no sense, or no machine could ever do it.

A kind of GPU that nobody has now may come with another machine, so a job that asks for it waits and is told why. A part
of a GPU is refused only where this host is all there can be and none of its GPUs can be shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.capacity.gpu_sets import can_be_shared, listed_kinds
from windfall.capacity.machines import GpuDevice
from windfall.control.state import State
from windfall.jobs.errors import Invalid
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import EnvironmentName
from windfall.jobs.resources import Resources

#: What a device's share of its multiprocessors is set in.
LEAST_SHARE = 0.01


def check_gpu_wish(
    state: State, environments: Sequence[EnvironmentName], resources: Resources, wish: GpuWish | None
) -> None:
    """Refuse what cannot be, with what to ask for instead."""
    if wish is None:
        return
    if not resources.gpus:
        raise Invalid(
            "The job asks for GPUs of a kind (windfall:gpu-...) and for no GPU;"
            " add one of type GPU to resourceRequirements, or leave the tags out"
        )
    if wish.share is None:
        return
    if resources.gpus != 1:
        raise Invalid(
            f"windfall:gpu-share={wish.share:g} is a part of one GPU, and the job asks for {resources.gpus};"
            " ask for 1 GPU in resourceRequirements, or leave the share out"
        )
    if wish.share < LEAST_SHARE:
        raise Invalid(f"windfall:gpu-share must be at least {LEAST_SHARE}; it is {wish.share:g}")
    _check_somebody_shares(state, environments, wish.share)


def _check_somebody_shares(state: State, environments: Sequence[EnvironmentName], share: float) -> None:
    whole: list[GpuDevice] = []
    for name in environments:
        devices = _only_devices(state, name)
        if devices is None or any(can_be_shared(gpu) for gpu in devices):
            return
        whole += [gpu for gpu in devices if gpu not in whole]
    if whole:
        notes = dict.fromkeys(note for gpu in whole for note in gpu.notes)
        why = f" ({'; '.join(notes)})" if notes else ""
        raise Invalid(
            f"windfall:gpu-share={share:g} cannot be met: none of {', '.join(listed_kinds(whole))} can be shared{why};"
            " leave the share out to have a whole GPU, or see `windfall gpus`"
        )


def _only_devices(state: State, name: EnvironmentName) -> tuple[GpuDevice, ...] | None:
    """The devices of the machines that an environment is a share of; None when it has, or may get, others."""
    offers = state.offers.get(name)
    if not offers or any(offer.machine is None for offer in offers):
        return None
    machines = {offer.machine for offer in offers}
    machines |= {instance.machine for instance in state.instances.values() if instance.environment == name}
    present = [
        state.machines[machine_id]
        for machine_id in machines
        if machine_id is not None and machine_id in state.machines
    ]
    return tuple(gpu for machine in present for gpu in machine.gpus) if present else None
