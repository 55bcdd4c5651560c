"""A job that ran out of GPU memory is tried again with more of it, if it asked for that (windfall:on-gpu-oom=larger).

A part of a GPU is doubled up to all of it; then a device with more memory than the last one is asked for. Every step
asks for strictly more, so that it comes to an end: when no device or offer in the environments of its queue has more,
the job fails and says what would be needed. None of these attempts is charged to its retry strategy.
"""

from __future__ import annotations

from windfall.capacity.gpu_sets import listed_kinds
from windfall.capacity.machines import GpuDevice
from windfall.control.backlog import shape_of
from windfall.control.lifecycle import finish, settle
from windfall.control.round import Round
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.gpus import GpuWish, gib
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED
from windfall.scheduling.gpu_reasons import NoSuchGpu
from windfall.scheduling.obstacles import lasting_obstacle
from windfall.scheduling.reach_reasons import OutOfReach
from windfall.scheduling.reasons import (
    AsksTooMuch,
    GpusOnFargate,
    MaxVcpusTooSmall,
    NoSingleInstance,
    NothingOffered,
    OtherInstanceType,
    Reason,
)

#: Why an environment takes no such job whatever happens; others may pass: one that is disabled can be enabled.
_FOR_GOOD = (
    *(NoSuchGpu, AsksTooMuch, GpusOnFargate, MaxVcpusTooSmall, NoSingleInstance, OtherInstanceType),
    OutOfReach,
)


def ask_for_more(state: State, job: Job, attempt: Attempt) -> str | None:
    """Ask for more GPU memory than an ended attempt had; the answer is why that cannot be done, if it cannot."""
    share = job.share
    if share is not None:
        job.gpu_share = min(1.0, share * 2)
        more = "a whole GPU" if job.share is None else f"{job.gpu_share:g} of a GPU"
        attempt.stop_words = f"{share:g} of a GPU was too little; tried again with {more}"
        return None
    memories = [gpu.memory_mib for gpu in _devices_of(state, attempt)]
    sizes = [memory for memory in memories if memory is not None]
    if not sizes or len(sizes) < len(memories):
        return (
            "Out of GPU memory, and how much its GPU has is not known, so that a larger one cannot be chosen"
            " (windfall:on-gpu-oom=larger); name one by windfall:gpu-model"
        )
    job.gpu_memory_floor_mib = max(min(sizes) + 1, (job.gpu_memory_floor_mib or 0) + 1)
    state.outgrown.add(job.id)
    had = ", ".join(listed_kinds(_devices_of(state, attempt)))
    attempt.stop_words = f"{had} was too small; tried again on a GPU with more than {gib(min(sizes))}"
    return None


def fail_the_outgrown(state: State, offers: Offers, round_: Round) -> None:
    """End the jobs that need more GPU memory than any device or offer in the environments of their queue has."""
    if not state.outgrown:
        return
    snapshot = make_snapshot(state, offers, round_.now)
    for job_id in sorted(state.outgrown):
        job = state.jobs.get(job_id)
        queue = state.queues.get(job.submission.queue) if job is not None else None
        if job is None or queue is None or state.backlog.find(job) is None:
            state.outgrown.discard(job_id)
            continue
        obstacles = [lasting_obstacle(snapshot, name, shape_of(job)) for name in queue.environments]
        if any(isinstance(reason, NothingOffered) for reason in obstacles):
            continue  # its engine has not said yet what it has
        state.outgrown.discard(job_id)
        if all(isinstance(reason, _FOR_GOOD) for reason in obstacles):
            finish(state, job, FAILED, _too_large_for_all(job, obstacles), round_)
    settle(state, round_)


def _too_large_for_all(job: Job, obstacles: list[Reason | None]) -> str:
    wish = job.submission.gpu_wish
    model = "" if wish is None else GpuWish(wish.model).words()
    needed = f"a GPU{model} with more than {gib((job.gpu_memory_floor_mib or 1) - 1)}"
    kinds = dict.fromkeys(
        kind for reason in obstacles if isinstance(reason, NoSuchGpu) for kind in reason.of_model
    )
    there = ", ".join(kinds) or f"no GPUs{model}"
    return (
        f"Out of GPU memory: {needed} is needed (windfall:on-gpu-oom=larger), and no compute environment of"
        f" queue {job.submission.queue} has one that fits the job; there are {there}"
    )


def _devices_of(state: State, attempt: Attempt) -> list[GpuDevice]:
    """The devices that an attempt had; of an instance that has just been let go, what its type has."""
    instance = state.instances.get(attempt.instance)
    machine = state.machines.get(instance.machine) if instance is not None and instance.machine else None
    if machine is not None:
        return [gpu for gpu in machine.gpus if gpu.id in attempt.gpu_ids]
    offers = state.offers.get(attempt.environment, ())
    same = (offer.gpus for offer in offers if offer.machine is None and offer.type == attempt.instance_type)
    return list(next(same, ()))[: len(attempt.gpu_ids)]
