"""Service jobs in the simulated world: three queues in front of two environments, and what these may never hold.

Their training jobs are the world's own: they end, fail, lose their place and lack capacity as all others do.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tests.simulation.post_commit_tasks import BAD_PAYLOAD
from tests.simulation.store import BrokenPromise
from windfall.aws_api.batch.service_jobs import instances_of, name_prefix_of
from windfall.capacity.environments import JobQueue, ServiceEnvironment, Switch
from windfall.capacity.policies import (
    INSTANCES,
    CapacityLimit,
    FairShare,
    QuotaShare,
    SchedulingPolicy,
    SharingStrategy,
)
from windfall.control import events
from windfall.control.commands.policies import CreateQuotaShare, CreateSchedulingPolicy, UpdateQuotaShare
from windfall.control.commands.service_jobs import (
    CreateServiceEnvironment,
    SubmitServiceJob,
    TerminateServiceJob,
    UpdateServiceEnvironment,
    UpdateServiceJob,
)
from windfall.control.service_dispatch import SERVICE_REASONS
from windfall.control.state import State
from windfall.control.state_limits import reason_code
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.service_jobs import HOLDING, ServiceJob, ServiceState
from windfall.scheduling.quotas import Quotas
from windfall.scheduling.service_views import counted, needs_of

if TYPE_CHECKING:
    from tests.simulation.clients import Clients
    from tests.simulation.world import World

SMALL, LARGE = "ml.small", "ml.large"
ENVIRONMENTS = (
    ServiceEnvironment("counted", ((INSTANCES, 3),)),
    ServiceEnvironment("typed", ((SMALL, 3), (LARGE, 2))),
)
FAIR, QUOTA = SchedulingPolicy("fair-services", FairShare(600, 0)), SchedulingPolicy("quota-services")
QUEUES = (
    JobQueue(QueueName("services"), 1, (), service_environment="counted"),
    JobQueue(QueueName("services-fair"), 5, (), policy=FAIR.name, service_environment="counted"),
    JobQueue(QueueName("services-quota"), 1, (), policy=QUOTA.name, service_environment="typed"),
)


def _share(
    name: str, small: int, large: int, sharing: SharingStrategy, borrow_percent: int = -1
) -> QuotaShare:
    limits = (CapacityLimit(SMALL, small), CapacityLimit(LARGE, large))
    queue = QUEUES[2].name
    return QuotaShare(name, queue, limits, sharing, borrow_percent, preempts_within=name != "guest")


SHARES = (
    _share("owner", 1, 1, SharingStrategy.LEND),
    _share("guest", 1, 0, SharingStrategy.LEND_AND_BORROW),
    _share("keeper", 1, 1, SharingStrategy.RESERVE),
)
RETRIES = (
    RetryStrategy(1),
    RetryStrategy(3),
    RetryStrategy(2, (ExitRule(Action.RETRY, on_status_reason="*AlgorithmError*"),)),
)
#: How long a job may wait after all have left that were asked to leave for it.
PATIENCE_MS = 6_000


def declare_services(clients: Clients) -> None:
    """Environments, queues and shares exist and are as they were meant to be."""
    for environment in ENVIRONMENTS:
        clients.call(CreateServiceEnvironment(environment))
        clients.call(UpdateServiceEnvironment(environment.name, Switch.ENABLED, environment.limits))
    for policy in (FAIR, QUOTA):
        clients.call(CreateSchedulingPolicy(policy))
    for queue in QUEUES:
        clients.call(events.CreateJobQueue(queue))
        clients.call(events.UpdateJobQueue(queue.name, Switch.ENABLED))
    for share in SHARES:
        clients.call(CreateQuotaShare(share))
        clients.call(UpdateQuotaShare(share.key, share.limits, share.sharing, switch=Switch.ENABLED))


def submit_service_job(clients: Clients) -> None:
    """A service job for any of the queues."""
    rng, world = clients.rng, clients.world
    clients.submitted += 1
    queue = QUEUES[2] if clients.theme == "services" and rng.random() < 0.5 else rng.choice(QUEUES)
    payload = _payload(rng)
    job = ServiceJob(
        JobId(f"service-{clients.submitted}"),
        f"service-{clients.submitted}",
        queue.name,
        payload,
        priority=rng.choice((0, 0, 9)),
        share=rng.choice(("red", "blue")) if queue.policy == FAIR.name else None,
        quota_share=rng.choice(SHARES).name if queue.policy == QUOTA.name else None,
        preemptions_max=rng.choice((None, None, 0, 1)) if queue.policy == QUOTA.name else None,
        timeout_s=rng.choice((None, None, 6)),
        retry=rng.choice(RETRIES),
        instances=instances_of(payload),
        name_prefix=name_prefix_of(payload),
    )

    def answered(reply: Any) -> None:
        if not isinstance(reply, Rejected):
            world.services.acknowledged.append(job.id)

    clients.call(SubmitServiceJob(job), answered)


def _payload(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return BAD_PAYLOAD
    kind, count = rng.choice((SMALL, SMALL, LARGE)), rng.choice((1, 1, 2))
    if rng.random() < 0.03:
        count = 9  # never
    config = {"InstanceType": kind, "InstanceCount": count}
    return json.dumps({"TrainingJobName": "it", "ResourceConfig": config})


def act_on_services(clients: Clients) -> None:
    """Somebody terminates a service job or gives it another priority, or changes what there is for all."""
    rng, state = clients.rng, clients.world.daemon.state
    live, chance = list(state.service_jobs), rng.random()
    clients.world.disturbances += 1
    if live and chance < 0.35:
        clients.call(TerminateServiceJob(rng.choice(live), "had enough"))
    elif live and chance < 0.5:
        clients.call(UpdateServiceJob(rng.choice(live), rng.choice((0, 5, 9))))
    elif chance < 0.65:
        _change_environment(clients)
    elif chance < 0.9:
        _change_share(clients)
    else:
        queue = rng.choice(QUEUES)
        clients.call(events.UpdateJobQueue(queue.name, Switch.DISABLED))
        if rng.random() < 0.5:
            clients.call(events.DeleteJobQueue(queue.name))
        declare_services(clients)


def _change_environment(clients: Clients) -> None:
    rng = clients.rng
    environment = rng.choice(ENVIRONMENTS)
    limits = tuple((unit, rng.choice((0, 1, amount, amount + 1))) for unit, amount in environment.limits)
    clients.call(
        UpdateServiceEnvironment(
            environment.name, rng.choice((None, Switch.ENABLED, Switch.DISABLED)), limits
        )
    )


def _change_share(clients: Clients) -> None:
    rng = clients.rng
    share = rng.choice(SHARES)
    limits = tuple(CapacityLimit(one.unit, rng.choice((0, 1, 2))) for one in share.limits)
    switch = rng.choice((None, None, Switch.DISABLED, Switch.ENABLED))
    clients.call(UpdateQuotaShare(share.key, limits, rng.choice(tuple(SharingStrategy)), switch=switch))


#: Nothing leads out of these.
_ENDS = (ServiceState.SUCCEEDED, ServiceState.FAILED)


class ServiceWatch:
    """Follows what service jobs hold from round to round, and the path of each through its states."""

    def __init__(self) -> None:
        self.acknowledged: list[JobId] = []
        self._attempts: dict[JobId, int] = {}
        #: Since when nobody leaves any more for a job that others left for.
        self._free_at: dict[JobId, tuple[int, int]] = {}
        self._states: dict[JobId, ServiceState] = {}

    def begin(self, state: State) -> None:
        """A daemon has just read the store."""
        self._attempts = {job.id: job.trainings for job in state.service_jobs.values()}

    def look(self, world: World) -> None:
        """After a round: what was dispatched found room, in its environment and in its share."""
        state = world.daemon.state
        started = [
            job
            for job in state.service_jobs.values()
            if job.trainings > self._attempts.get(job.id, 0) and job.state in HOLDING
        ]
        self._attempts = {job.id: job.trainings for job in state.service_jobs.values()}
        for job in state.service_jobs.values():
            if (job.state in HOLDING) is not (job.attempt is not None):
                raise BrokenPromise(f"holds without an attempt, or the other way round: {job}")
        for environment in {state.queues[job.queue].service_environment for job in started}:
            _check_environment(state, environment or "", started)
        _check_shares(state, [job for job in started if job.quota_share is not None])
        self._check_preemptions(world)

    def _check_preemptions(self, world: World) -> None:
        state = world.daemon.state
        leaving = {
            job.attempt.leaves_for for job in state.service_jobs.values() if job.attempt is not None
        } - {None}
        for job in state.service_jobs.values():
            if not job.promised or job.state is not ServiceState.RUNNABLE or job.id in leaving:
                self._free_at.pop(job.id, None)
                continue
            free_at, disturbances = self._free_at.setdefault(job.id, (world.now, world.disturbances))
            if world.disturbances == disturbances and world.now - free_at > PATIENCE_MS:
                raise BrokenPromise(f"others have left for it in vain: {job}")
            if world.disturbances != disturbances:
                self._free_at[job.id] = (world.now, world.disturbances)

    def look_stored(self, jobs: dict[JobId, ServiceJob]) -> None:
        """After a commit: a finished job stays as it is, and none goes back to where it was submitted."""
        for job in jobs.values():
            before = self._states.get(job.id)
            if before in _ENDS and job.state is not before:
                raise BrokenPromise(f"was {before}: {job}")
            self._states[job.id] = job.state


def _check_environment(state: State, name: str, started: list[ServiceJob]) -> None:
    environment = state.service_environments.get(name)
    if environment is None:
        raise BrokenPromise(f"jobs were dispatched to {name}, which does not exist")
    limits = {unit: float(amount) for unit, amount in environment.limits}
    queues = {queue.name for queue in state.queues.values() if queue.service_environment == name}
    held: dict[str, float] = {}
    touched: set[str] = set()
    for job in state.service_jobs.values():
        if job.queue in queues and job.state in HOLDING:
            amounts = counted(needs_of(job.instances), limits)
            touched |= {unit for unit, amount in amounts.items() if amount} if job in started else set()
            for unit, amount in amounts.items():
                held[unit] = held.get(unit, 0.0) + amount
    for unit in touched:
        if held[unit] > limits.get(unit, 0.0) + 1e-9:
            raise BrokenPromise(f"{environment} holds {held} after {[job.id for job in started]} started")
    if environment.switch is Switch.DISABLED:
        raise BrokenPromise(f"{[job.id for job in started]} started in {environment}, which is DISABLED")


def _check_shares(state: State, started: list[ServiceJob]) -> None:
    if not started:
        return
    quotas = Quotas([share for share in state.quota_shares.values() if share.queue == QUEUES[2].name])
    for job in state.service_jobs.values():
        if job.quota_share in quotas.shares and job.state in HOLDING:
            quotas.note(job.quota_share or "", needs_of(job.instances))
    for job in started:
        check_within(quotas, job.quota_share or "", needs_of(job.instances))


def check_within(quotas: Quotas, share: str, needs: dict[str, float]) -> None:
    """A share in which something has just started holds no more than it may, and borrows only what is lent."""
    if share not in quotas.shares:
        raise BrokenPromise(f"something started in quota share {share}, which does not exist")
    for unit in [unit for unit, amount in needs.items() if amount and unit in quotas.limits(share)]:
        held, limit = quotas.used(share).get(unit, 0.0), quotas.limits(share)[unit]
        if held > quotas.ceiling(share, unit) + 1e-6:
            raise BrokenPromise(
                f"quota share {share} holds {held} {unit}, and may {quotas.ceiling(share, unit)}"
            )
        reserves = quotas.shares[share].sharing is SharingStrategy.RESERVE
        if reserves and held <= limit + 1e-6:
            continue
        if quotas.borrowed(unit) > quotas.lendable(unit) + 1e-6:
            raise BrokenPromise(
                f"{share} has started, and {quotas.borrowed(unit)} {unit} are borrowed of {quotas.lendable(unit)}"
            )


def services_settled(state: State) -> bool:
    """Whether every service job has ended, or says that it never can."""
    return all(
        job.state is ServiceState.RUNNABLE and reason_code(job.status_reason) in SERVICE_REASONS[1:]
        for job in state.service_jobs.values()
    )


def check_services_at_rest(world: World) -> None:
    """No acknowledged job is lost, every training job has ended with its attempt, and each attempt had one."""
    for job_id in world.services.acknowledged:
        if job_id not in world.store.service_jobs:
            raise BrokenPromise(f"service job {job_id} was acknowledged and is lost")
    for job in world.store.service_jobs.values():
        if job.finished and job.attempt is not None:
            raise BrokenPromise(f"finished with an open attempt: {job}")
        if job.finished and job.id in world.daemon.state.service_jobs:
            raise BrokenPromise(f"finished in the store and live in memory: {job}")
        if job.preemptions_max is not None:
            preempted = sum(attempt.preempted for attempt in job.attempts)
            if preempted > job.preemptions_max + 1:
                raise BrokenPromise(f"was preempted {preempted} times of {job.preemptions_max}: {job}")
    for training in world.store.jobs.values():
        service_job = training.submission.service_job
        if service_job is None or training.is_node:
            continue
        owner = world.store.service_jobs.get(service_job)
        if owner is None or training.id not in [attempt.training_id for attempt in owner.attempts]:
            raise BrokenPromise(f"nobody's training job: {training.story()}")
