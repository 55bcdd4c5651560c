"""A replica's job: how it is submitted, what it is now, and how it is stopped.

One on-demand job of the hidden queue for each replica, tried once: a replica that ended is replaced by another one, and
never by a second try. Decides ports. Must not know deployments, nor how a replica is asked whether it is well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from windfall.capacity.environments import ENDPOINTS
from windfall.capacity.machines import ENGINE_FACT, Machine
from windfall.control.events import TerminateJob
from windfall.control.gang_addresses import ADDRESS_FACT
from windfall.control.gpu_requests import check_gpu_wish
from windfall.control.job_options import gpu_wish_of, pull_of, runtime_of, stays_on_sick_gpu
from windfall.control.job_users import check_user, claim_user
from windfall.control.lifecycle import make_runnable
from windfall.control.round import Round
from windfall.control.state import State
from windfall.control.state_changes import tell_of
from windfall.control.stopping import on_terminate_job
from windfall.control.storage_rules import check_staging
from windfall.hosting.deploying import ReplicaJob
from windfall.hosting.endpoint import Generation, HostedEndpoint, Replica, Variant
from windfall.jobs.attempts import Attempt
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import DefinitionKey, JobId, QueueName
from windfall.jobs.job import Job, JobKind, Submission
from windfall.jobs.retry import ONCE
from windfall.jobs.states import PLACED, SUBMITTED
from windfall.jobs.submitters import DEFAULT_TENANT, Submitter
from windfall.jobs.tenants import split_name

#: Below the ports that systems give to clients by default.
FIRST_PORT, LAST_PORT = 20_000, 29_999
#: What AWS's inference toolkit and the servers of its images listen on, where they are told.
PORT_VARIABLE, PORTS_VARIABLE = "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE"
#: The address that a replica is reached at, for servers that would otherwise listen on all of them.
ADDRESS_VARIABLE = "WINDFALL_SERVE_ADDRESS"
LOOPBACK = "127.0.0.1"
QUEUE = QueueName(ENDPOINTS)


def check_generation(state: State, submitter: Submitter, generation: Generation) -> None:
    """Refuse variants whose replicas could never be started with the rights of this submitter."""
    wish, runtime = gpu_wish_of(generation.tags), runtime_of(generation.tags)
    pull_of(generation.tags)
    for variant in generation.variants:
        check_gpu_wish(state, (ENDPOINTS,), variant.container.resources, wish)
        check_staging(state, submitter, variant.staging)
        check_user(state, submitter, (variant.container.image,), runtime)


def start_replica(
    state: State, endpoint: HostedEndpoint, wanted: Replica, round_: Round
) -> tuple[HostedEndpoint, Replica]:
    """Submit the job of a replica; the answer is the endpoint that has had one more, and the replica."""
    number = endpoint.replicas_made + 1
    generation = next(it for it in endpoint.generations() if it.number == wanted.generation)
    variant = generation.variant(wanted.variant)
    assert variant is not None, endpoint.story()
    job_id = _job_id(endpoint, number)
    replica = replace(wanted, id=job_id, port=_free_port(state, job_id))
    submission = _submission(endpoint, generation, variant, replica.port)
    claim_user(state, endpoint.submitter, round_)
    job = Job(replica.id, submission, SUBMITTED, round_.now)
    tell_of(state, job)
    state.jobs[job.id] = round_.changes.jobs[job.id] = job
    make_runnable(state, job, round_)
    made = replace(endpoint, replicas=(*endpoint.replicas, replica), replicas_made=number)
    return made, replica


def stop_replica(state: State, job_id: JobId, round_: Round) -> None:
    """Stop the job of a replica, if it has not ended."""
    on_terminate_job(state, TerminateJob(job_id, "Replica not needed any more"), round_)


def job_of(state: State, replica: Replica, ended: Mapping[JobId, Job]) -> ReplicaJob:
    """What a replica's job is now; `ended` has those that ended in this round."""
    job = state.jobs.get(replica.id)
    if job is not None:
        attempt = job.attempt
        return ReplicaJob(job.state in PLACED, None if attempt is None else attempt.started_at)
    last = ended.get(replica.id)
    return ReplicaJob(ended=True, fault=None if last is None else _fault(last))


def address_of(machine: Machine | None) -> str:
    """Where the servers of a machine are reached: on the daemon's own, and on those played there, at the loopback."""
    if machine is None or ENGINE_FACT not in machine.facts:
        return LOOPBACK
    return machine.facts.get(ADDRESS_FACT) or LOOPBACK


def _fault(job: Job) -> str | None:
    """Why a job ended, if that is a fault of its own."""
    last: Attempt | None = job.attempts[-1] if job.attempts else None
    if job.terminated or job.cancelled or last is None or last.interrupted:
        return None
    if last.reason or last.failure:
        return last.failure or last.reason
    return f"its process ended with exit code {last.exit_code}"


def _job_id(endpoint: HostedEndpoint, number: int) -> JobId:
    """As of training jobs, with the endpoint's time: an endpoint of this name may have been there before."""
    tenant, given = split_name(endpoint.name)
    name = given if tenant == DEFAULT_TENANT else f"{tenant}.{given}"
    return JobId(f"replica-{name}-{endpoint.created_at:x}-{number}")


def _free_port(state: State, job_id: JobId) -> int:
    """A port that no replica has, spread over all of them: another daemon of this host gives ports too."""
    used = {replica.port for endpoint in state.endpoints.values() for replica in endpoint.replicas}
    count = LAST_PORT - FIRST_PORT + 1
    first = int(hashlib.md5(job_id.encode(), usedforsecurity=False).hexdigest()[:8], 16) % count
    free = (FIRST_PORT + (first + step) % count for step in range(count))
    return next(port for port in free if port not in used)


def _submission(endpoint: HostedEndpoint, generation: Generation, variant: Variant, port: int) -> Submission:
    tags = generation.tags
    return Submission(
        f"{split_name(endpoint.name)[1]}-{variant.name}",
        QUEUE,
        DefinitionKey(""),
        variant.container.resources,
        ONCE,
        tags=tags,
        submitter=endpoint.submitter,
        kind=JobKind.REPLICA,
        container=_listening(variant.container, port),
        staging=variant.staging,
        instance_type=variant.instance_type,
        gpu_wish=gpu_wish_of(tags),
        runtime=runtime_of(tags),
        stays_on_sick_gpu=stays_on_sick_gpu(tags),
        pull=pull_of(tags),
    )


def _listening(container: ContainerSpec, port: int) -> ContainerSpec:
    variables = {PORT_VARIABLE: str(port), PORTS_VARIABLE: f"{port}-{port}"}
    options = replace(container.options, publishes=port)
    return replace(container, environment={**container.environment, **variables}, options=options)
