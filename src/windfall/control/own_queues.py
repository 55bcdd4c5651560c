"""Queues that nobody declares: each is made, with an environment of its own name, when the first job wants it.

Decides when a declared thing of that name stands in the way. Must not know what is submitted.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.capacity.environments import ComputeEnvironment, JobQueue, Switch
from windfall.control.declaring import on_create_compute_environment, on_create_job_queue
from windfall.control.events import CreateComputeEnvironment, CreateJobQueue
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid
from windfall.jobs.ids import QueueName


def own_queue(state: State, wanted: ComputeEnvironment, users: str, round_: Round) -> QueueName:
    """The queue in front of an environment of this name; both are made if they are missing. `users` need it."""
    environment, name = state.environments.get(wanted.name), QueueName(wanted.name)
    queue = state.queues.get(name)
    if environment is not None and environment.provisioning is not wanted.provisioning:
        raise Conflict(
            f"Compute environment {wanted.name} exists and is {environment.provisioning}, {users} need it"
            f" to be {wanted.provisioning}; delete it, and it is made anew"
        )
    if queue is not None and (environment is None or wanted.name not in queue.environments):
        raise Conflict(
            f"Job queue {name} exists and does not lead to compute environment {wanted.name}, which {users}"
            " need; delete it, and it is made anew"
        )
    if queue is not None and queue.switch is Switch.DISABLED:
        raise Invalid(f"JobQueue {name} is DISABLED and takes no new jobs; enable it with update-job-queue")
    if environment is None:
        made = replace(wanted, created_at=wanted.created_at or round_.now)
        on_create_compute_environment(state, CreateComputeEnvironment(made), round_)
    if queue is None:
        made_queue = JobQueue(name, 1, (wanted.name,), created_at=round_.now)
        on_create_job_queue(state, CreateJobQueue(made_queue), round_)
    return name
