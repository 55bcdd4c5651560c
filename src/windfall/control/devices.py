"""GPUs that fall ill and get well: who keeps away from them, and whose job is moved.

The agent's fences come and go with its reports. What somebody said by hand stays with the machine over every report
and restart: a fence until it is taken back, a pardon as long as the agent's reason is the one that was pardoned. Must
not know how a device's health is found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windfall.capacity.machines import NAME_FACT, GpuDevice, Machine
from windfall.control.commands.hosts import FenceDevice
from windfall.control.events import DevicesChanged
from windfall.control.instances import resize_instances
from windfall.control.interrupting import give_notice
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import StopCause
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import AttemptToken, MachineId
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources

#: What a job may still save on a sick device; none of it on one that is lost.
SICK_NOTICE_MS = 30_000
_LONGEST_REASON = 200


def on_devices_changed(state: State, report: DevicesChanged, round_: Round) -> None:
    """Know a machine's devices as they are now, and move whose device has fallen ill."""
    machine = state.machines.get(report.machine)
    if machine is None or machine.gpus == report.gpus:
        return
    total = Resources(machine.total.vcpus, machine.total.memory_mib, len(report.gpus))
    _know(state, _without_spent_pardons(replace(machine, gpus=report.gpus, total=total)), round_)
    resize_instances(state, round_)
    leave_sick_devices(state, machine.id, round_)


def on_fence_device(state: State, command: FenceDevice, round_: Round) -> int:
    """Keep new jobs from a device, or allow them again; the reply is how many attempts hold it."""
    machine, gpu = _find(state, command)
    fences, pardons = dict(machine.fences), dict(machine.pardons)
    if command.reason is not None:
        reason = command.reason.strip()
        if not reason or len(reason) > _LONGEST_REASON or not reason.isprintable():
            raise Invalid(f"The reason for a fence must be a line of 1 to {_LONGEST_REASON} characters")
        fences[command.gpu_id] = reason
    else:
        if fences.pop(command.gpu_id, None) is None and gpu is not None and gpu.lost:
            raise Invalid(f"GPU {gpu.id} does not answer; it gets jobs again by itself when it does")
        if gpu is not None and gpu.fence is not None:
            pardons[gpu.id] = gpu.fence
    _know(state, replace(machine, fences=fences, pardons=pardons), round_)
    return sum(command.gpu_id in hold_ids for _, _, hold_ids in _holders(state, machine.id))


def keep_fences(remembered: Machine | None, machine: Machine) -> Machine:
    """A machine as its agent describes it anew, with what was said of its devices by hand."""
    if remembered is None or not (remembered.fences or remembered.pardons):
        return machine
    return _without_spent_pardons(replace(machine, fences=remembered.fences, pardons=remembered.pardons))


def leave_sick_devices(state: State, machine_id: MachineId, round_: Round) -> None:
    """Give notice to the attempts on devices that are too sick to go on, or not there any more."""
    machine = state.machines.get(machine_id)
    if machine is None:
        return
    devices = {gpu.id: gpu for gpu in machine.gpus}
    for _, job, gpu_ids in list(_holders(state, machine_id)):
        if job.submission.stays_on_sick_gpu:
            continue
        for gpu_id in gpu_ids:
            gpu = devices.get(gpu_id)
            if gpu is None:
                _move(state, job, f"GPU {gpu_id} is not there any more", 0, round_)
            elif gpu.evacuate and (fence := machine.own_fence(gpu)) is not None:
                notice_ms = 0 if gpu.lost else SICK_NOTICE_MS
                _move(state, job, f"GPU {gpu.id} ({gpu.name}) is sick: {fence}", notice_ms, round_)


def _move(state: State, job: Job, words: str, notice_ms: int, round_: Round) -> None:
    deadline_at = round_.now + min(notice_ms, int(state.rules.notice_s * 1000))
    give_notice(state, job, deadline_at, words, round_, cause=StopCause.SICK_GPU)


def _holders(state: State, machine: MachineId) -> Iterator[tuple[AttemptToken, Job, tuple[str, ...]]]:
    """The attempts that hold devices of a machine."""
    for instance in state.instances.values():
        use = state.occupancy.instances.get(instance.id) if instance.machine == machine else None
        for token, hold in use.holds.items() if use is not None else ():
            job = state.attempts.get(token)
            if hold.gpu_ids and job is not None:
                yield token, job, hold.gpu_ids


def _find(state: State, command: FenceDevice) -> tuple[Machine, GpuDevice | None]:
    """The machine that has a device, or has a fence for one that is away."""
    gpu_id, wanted = command.gpu_id, command.machine
    having: list[tuple[Machine, GpuDevice | None]] = []
    for machine in state.machines.values() if wanted is None else _one(state, wanted):
        gpu = next((gpu for gpu in machine.gpus if gpu.id == gpu_id), None)
        if gpu is not None or gpu_id in machine.fences:
            having.append((machine, gpu))
    if not having:
        raise NotFound(f"GPU {gpu_id} does not exist; `windfall gpus` shows what there is")
    if len(having) > 1:
        names = ", ".join(machine.facts.get(NAME_FACT, machine.id) for machine, _ in having)
        raise Invalid(f"Several machines have a GPU {gpu_id}: {names}; name one of them (machineId, --host)")
    return having[0]


def _one(state: State, wanted: MachineId) -> list[Machine]:
    machine = state.machines.get(wanted)
    return [] if machine is None else [machine]


def _know(state: State, machine: Machine, round_: Round) -> None:
    state.machines[machine.id] = round_.changes.machines[machine.id] = machine
    state.unsettled = True


def _without_spent_pardons(machine: Machine) -> Machine:
    """A pardon is for one illness: it ends with it."""
    reasons = {gpu.id: gpu.fence for gpu in machine.gpus}
    pardons = {gpu_id: text for gpu_id, text in machine.pardons.items() if reasons.get(gpu_id) == text}
    return replace(machine, pardons=pardons) if pardons != machine.pardons else machine
