"""A queue with quota shares in the simulated world: who submits under which, and what shares may never hold."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.service_queues import check_within
from windfall.capacity.environments import JobQueue, Switch
from windfall.capacity.policies import CapacityLimit, QuotaShare, SchedulingPolicy, SharingStrategy
from windfall.control.commands.policies import (
    CreateQuotaShare,
    CreateSchedulingPolicy,
    DeleteQuotaShare,
    UpdateQuotaShare,
)
from windfall.control.events import SubmitJob
from windfall.control.state import State
from windfall.jobs.definitions import ContainerOverrides
from windfall.jobs.ids import AttemptToken, EnvironmentName, JobId, QueueName
from windfall.jobs.retry import RetryStrategy
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.quotas import Quotas

if TYPE_CHECKING:
    from tests.simulation.clients import Clients

POLICY = SchedulingPolicy("quotas")
QUOTA_QUEUE = JobQueue(
    QueueName("quota"), 1, (EnvironmentName("shared-a"), EnvironmentName("cloud-reserve")), policy=POLICY.name
)
TAGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"windfall:checkpoint": "true"},
    {"windfall:preemptions-max": "1"},
    {"windfall:preemptions-max": "0"},
)


def _share(
    name: str, gpus: int, vcpus: int, sharing: SharingStrategy, borrow_percent: int = -1
) -> QuotaShare:
    limits = (CapacityLimit("GPU", gpus), CapacityLimit("VCPU", vcpus))
    return QuotaShare(
        name, QUOTA_QUEUE.name, limits, sharing, borrow_percent, preempts_within=name == "owner"
    )


#: Small, so that jobs are often in one another's way.
SHARES = (
    _share("owner", 1, 2, SharingStrategy.LEND),
    _share("guest", 0, 1, SharingStrategy.LEND_AND_BORROW),
    _share("half", 1, 2, SharingStrategy.LEND_AND_BORROW, 50),
    _share("keeper", 0, 1, SharingStrategy.RESERVE),
)


def quota_share_in(queue: str, rng: random.Random) -> tuple[str | None, int | None]:
    """The share and the priority that a job of a queue is submitted with."""
    if queue != QUOTA_QUEUE.name:
        return None, None
    return rng.choice([share.name for share in SHARES]), rng.choice((None, 0, 9))


def declare_quota_policy(clients: Clients) -> None:
    """The policy exists, so that the queue can have it."""
    clients.call(CreateSchedulingPolicy(POLICY))


def declare_quota_shares(clients: Clients) -> None:
    """The shares exist; those of a queue that was deleted and made again are made again."""
    for share in SHARES:
        clients.call(CreateQuotaShare(share))
        clients.call(
            UpdateQuotaShare(
                share.key, share.limits, share.sharing, share.borrow_percent, switch=Switch.ENABLED
            )
        )


def submit_burst(clients: Clients) -> None:
    """Several small jobs of one share at once, so that it borrows, and then some of those who lend."""
    rng = clients.rng
    share = rng.choice(SHARES)
    for _ in range(rng.choice((1, 2, 4))):
        clients.submitted += 1
        vcpus, gpus = rng.choice((0.5, 1, 1, 2)), rng.choice((0, 0, 0, 1))
        overrides = ContainerOverrides(vcpus=vcpus, memory_mib=256, gpus=gpus)
        command = SubmitJob(
            JobId(f"job-{clients.submitted}"),
            f"name-{clients.submitted}",
            QUOTA_QUEUE.name,
            "work",
            overrides=overrides,
            retry=rng.choice((None, RetryStrategy(3))),
            tags=rng.choice(TAGS),
            share=share.name,
            priority=rng.choice((None, 0, 0, 9)),
        )
        clients.submit(command, None)


def change_quota_share(clients: Clients) -> None:
    """Somebody gives a share other limits or another way of sharing, or closes or deletes it, while jobs run."""
    rng = clients.rng
    share = rng.choice(SHARES)
    clients.world.disturbances += 1
    if rng.random() < 0.15:
        clients.call(UpdateQuotaShare(share.key, switch=Switch.DISABLED))
        clients.call(DeleteQuotaShare(share.key))
        return
    limits = tuple(CapacityLimit(one.unit, rng.choice((0, 1, 2, 3))) for one in share.limits)
    switch = rng.choice((None, None, Switch.DISABLED, Switch.ENABLED))
    within = rng.choice((None, True, False))
    clients.call(UpdateQuotaShare(share.key, limits, rng.choice(tuple(SharingStrategy)), -1, within, switch))


class QuotaWatch:
    """Sees that nothing starts in a share that has no room for it.

    Limits that are lowered stop nobody, so a share may hold too much; but nothing new may start in it then.
    """

    def __init__(self) -> None:
        self._attempts: set[AttemptToken] = set()

    def begin(self, state: State) -> None:
        """A daemon has just read the store: what runs there is not its doing."""
        self._attempts = set(state.attempts)

    def look(self, state: State) -> None:
        """After a round: whoever has a place now and did not before was let in."""
        new = state.attempts.keys() - self._attempts
        self._attempts = set(state.attempts)
        started = [state.attempts[token] for token in sorted(new)]
        started = [job for job in started if job.submission.queue == QUOTA_QUEUE.name]
        if not started:
            return
        quotas = quotas_of(state)
        for job in started:
            check_within(quotas, job.submission.share or "", in_units(job.needs))


def quotas_of(state: State) -> Quotas:
    """What the shares of the queue hold, counted from the attempts that live."""
    quotas = Quotas([share for share in state.quota_shares.values() if share.queue == QUOTA_QUEUE.name])
    for job in state.attempts.values():
        if job.submission.queue == QUOTA_QUEUE.name and job.submission.share in quotas.shares:
            quotas.note(job.submission.share or "", in_units(job.needs))
    return quotas
