"""Machines, GPUs, compute environments, queues and their shares, as the state has them.

Everything is copied out of the state, so an answer does not change after it was made. Decides nothing.
"""

from __future__ import annotations

from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import ENGINE_FACT, NAME_FACT, GpuDevice, Machine, own_machine
from windfall.control.queue_shares import QueueShares, ShareStatus, queue_shares
from windfall.control.state import State
from windfall.jobs.ids import MachineId, QueueName
from windfall.scheduling.fair_share import Amount
from windfall.views.spelling import Answer, picked

#: Stands for the jobs of other tenants.
OTHERS = "others"


def overview(state: State) -> Answer:
    """What `windfall status` takes from the state: the daemon's own host, environments, queues and counts."""
    machine = own_machine(state.machines.values())
    warnings = "" if machine is None else machine.facts.get("warnings", "")
    return {
        "machine": None if machine is None else _machine(state, machine),
        "machines": [
            machine_line(state, each, own=each is machine)
            for each in state.machines.values()
            if "simulated" not in each.facts
        ],
        "environments": [_environment(state, environment) for environment in state.environments.values()],
        "queues": [
            {"name": queue.name, "state": queue.switch, "priority": queue.priority}
            for queue in state.queues.values()
        ],
        "waiting": state.backlog.count,
        "running": len(state.attempts) - len(state.standbys),
        "warnings": [line for line in warnings.splitlines() if line],
    }


def all_gpus(state: State) -> list[Answer]:
    """The GPUs of all machines."""
    return [
        {"machine": machine.id, "machineName": _name(machine), **gpu}
        for machine in state.machines.values()
        for gpu in gpus_of(state, machine)
    ]


def holders(state: State) -> dict[tuple[MachineId | None, str], list[Answer]]:
    """The jobs that hold each GPU, and their shares of it; jobs that the caller cannot see are `others`.

    By machine and GPU: simulated GPUs have the same ids on all machines.
    """
    by_gpu: dict[tuple[MachineId | None, str], list[Answer]] = {}
    for instance_id, use in state.occupancy.instances.items():
        instance = state.instances.get(instance_id)
        machine = None if instance is None else instance.machine
        for token, hold in use.holds.items():
            job = state.attempts.get(token)
            part = job.attempt.gpu_share if job is not None and job.attempt is not None else None
            for gpu_id in hold.gpu_ids:
                holder = {"jobId": OTHERS if job is None else job.id, "share": part}
                by_gpu.setdefault((machine, gpu_id), []).append(holder)
    return by_gpu


def shares(state: State, queue: QueueName | None, now: int) -> list[Answer]:
    """The shares of one queue, or of all queues that have some; empty when there is no such queue."""
    names = state.queues if queue is None else [queue]
    listed = [queue_shares(state, name, now) for name in names]
    return [
        _queue(status)
        for status in listed
        if status is not None and (status.policy is not None or queue is not None)
    ]


def machine_line(state: State, machine: Machine, *, own: bool) -> Answer:
    """One machine in a list of all: its name, its engine, what is used of it, and why it takes nothing new."""
    used = state.occupancy.used_on(machine.id)
    return {
        "id": machine.id,
        "own": own,
        "name": _name(machine),
        "engine": machine.facts.get(ENGINE_FACT, "local"),
        "labels": machine.facts.get("labels", ""),
        "closed": machine.closed,
        **picked(machine.total, "vcpus memory_mib gpus"),
        "usedVcpus": used.vcpus,
        "usedMemoryMib": used.memory_mib,
        "usedGpus": used.gpus,
    }


def _machine(state: State, machine: Machine) -> Answer:
    used, uids = state.occupancy.used_on(machine.id), state.rules.job_users
    job_user = machine.facts.get("job_user", "")
    return {
        **picked(machine.total, "vcpus memory_mib"),
        "usedVcpus": used.vcpus,
        "usedMemoryMib": used.memory_mib,
        "isolation": machine.facts.get("isolation", ""),
        "jobUser": job_user,
        "jobUsers": "" if uids is None else uids.words(job_user),
        "gpus": gpus_of(state, machine),
    }


def _name(machine: Machine) -> str:
    return machine.facts.get(NAME_FACT) or machine.facts.get("hostname") or machine.id


def gpus_of(state: State, machine: Machine) -> list[Answer]:
    """The GPUs of one machine; `heldBy` is the first job on each, `holders` lists all with their shares."""
    holders_by_gpu = holders(state)
    return [_gpu(machine, gpu, holders_by_gpu.get((machine.id, gpu.id), [])) for gpu in machine.gpus]


def _gpu(machine: Machine, gpu: GpuDevice, holders: list[Answer]) -> Answer:
    fence = machine.why_fenced(gpu)
    health = "lost" if gpu.lost else "fenced" if fence is not None else "noted" if gpu.notes else "well"
    return {
        **picked(gpu, "id name memory_mib simulated driver parent sharing sharing_note"),
        "health": health,
        "fence": fence,
        "fencedByHand": gpu.id in machine.fences,
        #: A fence of the agent's that an administrator removed.
        "pardoned": gpu.fence if fence is None else None,
        "notes": list(gpu.notes),
        "heldBy": holders[0]["jobId"] if holders else None,
        "holders": holders,
    }


def _environment(state: State, environment: ComputeEnvironment) -> Answer:
    instances = [
        instance for instance in state.instances.values() if instance.environment == environment.name
    ]
    uses = [state.occupancy.instances.get(instance.id) for instance in instances]
    running = [0 if use is None else use.count for use in uses]
    return {
        "name": environment.name,
        "type": environment.provisioning,
        "state": environment.switch,
        "minvCpus": environment.min_vcpus,
        "maxvCpus": environment.max_vcpus,
        "engine": environment.engine,
        "instances": len(instances),
        "instanceList": [
            {
                **picked(instance, "id type state usd_hour reclaim_at"),
                **picked(instance.total, "vcpus gpus"),
                "runningJobs": jobs,
            }
            for instance, jobs in zip(instances, running, strict=True)
        ],
        "runningJobs": sum(running),
    }


def _queue(queue: QueueShares) -> Answer:
    kind = "fairshare" if queue.is_fair else "quota"
    return {
        **picked(queue, "queue policy unit"),
        "kind": kind if queue.policy is not None else "fifo",
        "total": _amount(queue.total),
        "used": _amount(queue.held),
        "kept": _amount(queue.kept),
        "windowSeconds": queue.window_s,
        "computeReservation": queue.reservation_percent,
        "shares": [_share(share, fair=queue.is_fair) for share in queue.shares],
    }


def _share(share: ShareStatus, *, fair: bool) -> Answer:
    answer: Answer = {
        "share": share.name,
        "used": _amount(share.held),
        **picked(share, "waiting running"),
    }
    if fair:
        return answer | {"average": _amount(share.average), **picked(share, "weight score")}
    return answer | {
        "sharing": share.sharing,
        "limits": dict(share.limits),
        "usedOfLimits": dict(share.used),
        "borrowed": dict(share.borrowed),
    }


def _amount(amount: Amount) -> dict[str, float]:
    return {"vcpus": amount.vcpus, "gpus": float(amount.gpus)}
