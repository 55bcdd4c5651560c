"""Whose things a command may name: the one place where the core decides that another tenant's do not exist.

A handler that finds something by an id of the caller's asks here. Names need no question: each tenant has its own. Must
not know what is done with what is found.
"""

from __future__ import annotations

from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.ids import InstanceId, JobId
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob


def is_visible(tenant: str, round_: Round) -> bool:
    """Whether the things of a tenant exist for the caller of the command at hand."""
    return round_.tenant is None or round_.tenant == tenant


def live_job(state: State, job_id: JobId, round_: Round) -> Job | None:
    """A live job with a record of its own."""
    job = state.jobs.get(job_id)
    return job if job is not None and is_visible(job.submission.submitter.tenant, round_) else None


def live_service_job(state: State, job_id: JobId, round_: Round) -> ServiceJob | None:
    """As `live_job`, for what waits in a queue of service jobs or has a training job."""
    job = state.service_jobs.get(job_id)
    return job if job is not None and is_visible(job.submitter.tenant, round_) else None


def serves_others(state: State, instance: InstanceId, round_: Round) -> bool:
    """Whether attempts of other tenants run on an instance."""
    use = state.occupancy.instances.get(instance)
    jobs = [state.attempts[token] for token in use.holds] if use is not None else []
    return not all(is_visible(job.submission.submitter.tenant, round_) for job in jobs)
