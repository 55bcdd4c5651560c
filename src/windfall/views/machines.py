"""All machines with their GPUs, what was measured of them, and the instances on them with the jobs that they run.

Decides nothing. Jobs that the caller cannot see are only counted.
"""

from __future__ import annotations

from windfall.advisor.samples import GpuSample
from windfall.capacity.machines import Instance, Machine, own_machine
from windfall.control.state import State
from windfall.views.capacity import gpus_of, machine_line
from windfall.views.measurements import MachineSample, fresh
from windfall.views.spelling import Answer, measured, picked

#: Jobs that are named on one instance.
JOBS_NAMED = 20
#: What machines say of themselves that people want to read.
_FACTS = ("hostname", "isolation", "kernel", "driver", "job_user")


def machines(state: State) -> list[Answer]:
    """The machines as the state has them, without samples."""
    own = own_machine(state.machines.values())
    by_machine: dict[str, list[Instance]] = {}
    for instance in state.instances.values():
        by_machine.setdefault(instance.machine or "", []).append(instance)
    listed = [
        _machine(state, machine, by_machine.get(machine.id, []), own=machine is own)
        for machine in state.machines.values()
    ]
    if by_machine.get(""):
        # Instances that are being launched have no machine yet.
        listed.append(
            {"id": None, "own": False, "instances": [_instance(state, it) for it in by_machine[""]]}
        )
    return listed


def with_samples(listed: list[Answer], newest: MachineSample | None, now: int) -> list[Answer]:
    """The same with the newest sample of the daemon's own machine."""
    sample = None if newest is None else fresh(newest[1], now)
    if newest is None or sample is None:
        return listed
    by_gpu = dict(zip((gpu.id for gpu in newest[0]), sample.gpus, strict=False))
    return [
        {**machine, "gpus": [{**gpu, "sample": _sample(by_gpu.get(gpu["id"]))} for gpu in machine["gpus"]]}
        if machine["own"]
        else machine
        for machine in listed
    ]


def _sample(sample: GpuSample | None) -> Answer | None:
    return None if sample is None else measured(sample)


def _machine(state: State, machine: Machine, instances: list[Instance], *, own: bool) -> Answer:
    return {
        **machine_line(state, machine, own=own),
        "facts": {name: machine.facts[name] for name in _FACTS if machine.facts.get(name)},
        "gpus": [{**gpu, "sample": None} for gpu in gpus_of(state, machine)],
        "instances": [_instance(state, instance) for instance in instances],
    }


def _instance(state: State, instance: Instance) -> Answer:
    use = state.occupancy.instances.get(instance.id)
    seen = [] if use is None else [state.attempts[token] for token in use.holds if token in state.attempts]
    return {
        **picked(instance, "id environment type state usd_hour reclaim_at"),
        **picked(instance.total, "vcpus gpus"),
        "runningJobs": 0 if use is None else use.count,
        "jobs": [{"jobId": job.id, "jobName": job.submission.name} for job in seen[:JOBS_NAMED]],
    }
