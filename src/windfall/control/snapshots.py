"""This moment, as the scheduler and explain see it: the one place where state becomes a snapshot.

Built for every scheduling pass, so it must cost instances, not jobs: waiting jobs are handed over as groups, and what
runs on an instance is listed only when somebody looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment, Provisioning
from windfall.capacity.machines import NOTHING_LACKS, Hold, Instance, Offer, largest_claim
from windfall.capacity.occupancy import InstanceUse
from windfall.control.backlog import key_in_queue
from windfall.control.consumables import tokens_named
from windfall.control.gangs import gang_of, leaves_alone
from windfall.control.interrupting import grace_of
from windfall.control.quota_shares import quota_views
from windfall.control.share_use import fair_share_view
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import EnvironmentName, JobId, MachineId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.scheduling.snapshot import (
    Claim,
    EnvironmentView,
    InstanceView,
    MachineView,
    QueueView,
    Release,
    Shortage,
    Snapshot,
)

Offers = Mapping[EnvironmentName, tuple[Offer, ...]]
_NO_USE = InstanceUse()


def make_snapshot(state: State, offers: Offers, now: int) -> Snapshot:
    """This moment, as the scheduler sees it."""
    shortages: dict[EnvironmentName, dict[str, Shortage]] = {}
    for (environment_name, type_), failed in state.failed_launches.items():
        if failed.again_at > now:
            shortage = Shortage(failed.reason, failed.again_at)
            shortages.setdefault(environment_name, {})[type_] = shortage
    lenders = {
        environment.name
        for environment in state.environments.values()
        if environment.provisioning in RECLAIMABLE
    }
    queues = [
        QueueView(queue, state.backlog.groups(queue.name), fair_share_view(state, queue, now))
        for queue in state.queues.values()
    ]
    quotas = quota_views(state)
    #: The machines that each environment has a share of; None stands for one that is not known yet.
    shared: dict[EnvironmentName, set[MachineId | None]] = {}
    for instance in state.instances.values():
        shared.setdefault(instance.environment, set()).add(instance.machine)
    return Snapshot(
        now=now,
        queues=queues,
        environments={
            name: EnvironmentView(
                environment,
                _offers_left(environment, offers.get(name, ()), shared.get(name, set())),
                shortages=shortages.get(name, {}),
            )
            for name, environment in state.environments.items()
        },
        instances=[
            _instance_view(state, instance, lenders, quotas, now) for instance in state.instances.values()
        ],
        machines=_machine_views(state),
        rules=replace(
            state.rules.scheduling,
            notice_ms=int(state.rules.notice_s * 1000),
            grace_ms=int(max(state.rules.grace_s, state.rules.training_grace_s) * 1000),
        ),
        claims=_claims(state, now) if state.left_places else (),
        tokens=tokens_named(state, queues),
        quotas=quotas,
    )


def _machine_views(state: State) -> dict[MachineId, MachineView]:
    """All machines. A view is made anew only if something of its machine has changed: a pass changes few."""
    occupancy, before = state.occupancy, state.machine_views
    views: dict[MachineId, MachineView] = {}
    for machine in state.machines.values():
        used, devices, view = (
            occupancy.used_on(machine.id),
            occupancy.devices(machine),
            before.get(machine.id),
        )
        # Every hold that is taken or given back leaves another value of `used`.
        if (
            view is None
            or view.used is not used
            or view.devices is not devices
            or view.total is not machine.total
            or view.closed != machine.closed
        ):
            free, parts = occupancy.free_gpus(machine), occupancy.shared_gpus(machine.id)
            view = MachineView(machine.id, machine.total, used, free, devices, parts, machine.closed)
        views[machine.id] = view
    state.machine_views = views
    return views


def _claims(state: State, now: int) -> list[Claim]:
    """The jobs that attempts were asked to leave for, as far as they still wait."""
    claims = []
    claimed: Counter[JobId] = Counter()
    for (job_id, machine), count in state.left_places.counted(now).items():
        job = state.jobs.get(job_id)
        waiting = state.backlog.find(job) if job is not None else None
        if job is not None and waiting is not None:
            places = min(count, waiting.count)
            if job.submission.share is not None or job.is_gang:
                # Several may leave for one job, on several machines: for its quota, or for its nodes.
                places = min(places, waiting.count - claimed[job_id])
                claimed[job_id] += places
            shape, scheduling_class = key_in_queue(job)
            left_at = state.left_places.left_at(job_id) if job.is_gang else None
            claims.append(
                Claim(
                    *(
                        job_id,
                        job.submission.queue,
                        shape,
                        machine,
                        waiting.order,
                        places,
                        scheduling_class,
                        left_at,
                    )
                )
            )
    # As their turns come: within a share the more urgent one first.
    return sorted(
        claims, key=lambda claim: (-claim.scheduling_class.priority, claim.order, claim.job_id, claim.machine)
    )


def _offers_left(
    environment: ComputeEnvironment, offers: tuple[Offer, ...], shared: Container[MachineId | None]
) -> tuple[Offer, ...]:
    """Offers clipped to the environment; one that is a share of a known machine can be taken once."""
    left = []
    for offer in offers:
        if offer.machine is None and environment.provisioning is Provisioning.UNMANAGED:
            continue  # its owner brings the machines; what is there already can be used
        available = offer.available
        if offer.machine is not None:
            offer = replace(offer, resources=largest_claim(offer.resources, environment.max_vcpus))
            taken = offer.machine in shared or None in shared
            available = 0 if taken or offer.resources.vcpus <= 0 else 1
        left.append(replace(offer, available=available))
    return tuple(left)


def _instance_view(
    state: State, instance: Instance, lenders: set[EnvironmentName], quotas: Container[QueueName], now: int
) -> InstanceView:
    use = state.occupancy.instances.get(instance.id, _NO_USE)
    machine = state.machines.get(instance.machine) if instance.machine is not None else None
    return InstanceView(
        instance.id,
        instance.environment,
        instance.type,
        instance.state,
        instance.total,
        use.used,
        instance.machine,
        use.idle_since if use is not _NO_USE else instance.launched_at,
        # What has a machine of its own stands in nobody else's way.
        _Releases(state, use, now, quotas, lends=instance.is_share and instance.environment in lenders),
        instance.is_share,
        NOTHING_LACKS if machine is None else machine.lacks,
    )


class _Releases(Sequence[Release]):
    """What runs on an instance, listed only when somebody looks: most passes do not."""

    __slots__ = ("_lends", "_now", "_quotas", "_state", "_use")

    def __init__(
        self, state: State, use: InstanceUse, now: int, quotas: Container[QueueName], *, lends: bool
    ) -> None:
        self._state, self._use, self._now, self._lends = state, use, now, lends
        #: The queues with quota shares.
        self._quotas = quotas

    def __len__(self) -> int:
        return len(self._use.holds)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Release]:
        attempts, lends = self._state.attempts, self._lends
        for token, hold in self._use.holds.items():
            job = attempts.get(token)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None:
                yield Release(hold.resources, hold.gpu_ids, None, token)
            elif lends or attempt.stop_cause is not None or job.submission.queue in self._quotas:
                yield self._lent_or_leaving(job, attempt, hold)
            else:  # what most are, in a hurry
                timed = job.submission.timeout_s is not None
                at = _given_back_at(self._state, job, attempt) if timed else None
                yield Release(hold.resources, hold.gpu_ids, at, token, job.id)

    def _lent_or_leaving(self, job: Job, attempt: Attempt, hold: Hold) -> Release:
        leaving = attempt.stop_cause is not None
        lent = self._lends and not leaving
        share = job.submission.share if job.submission.queue in self._quotas and not leaving else None
        restart_s = self._state.rules.restart_s
        return Release(
            hold.resources,
            hold.gpu_ids,
            _given_back_at(self._state, job, attempt),
            attempt.token,
            job.id,
            job.submission.queue,
            reclaimable=lent,
            leaving=leaving,
            loss=loss_of(attempt, hold.resources, restart_s, self._now) if lent or share is not None else 0.0,
            share=share,
            priority=job.submission.priority,
            gang=None if job.submission.nodes is None else gang_of(self._state, job).id,
            alone=leaves_alone(job),
        )


def _given_back_at(state: State, job: Job, attempt: Attempt) -> int | None:
    """When an attempt has left its place at the latest, if anything says so."""
    grace_ms = int(grace_of(state, job) * 1000)
    if attempt.stop_cause is not None:
        return attempt.deadline_at or (attempt.stop_at or attempt.placed_at) + grace_ms
    timeout_s = job.submission.timeout_s
    if attempt.started_at is None or timeout_s is None:
        return None
    # A timeout is when it is asked to stop: who counts on its place sooner would wait longer than was promised.
    return attempt.started_at + timeout_s * 1000 + grace_ms


def loss_of(attempt: Attempt, resources: Resources, restart_s: float, now: int) -> float:
    """What taking its place away costs: seconds of work in no checkpoint, and of a restart, times what it holds."""
    since = attempt.started_at or now
    if attempt.checkpoint is not None:
        since = max(since, attempt.checkpoint.state_at)
    return (resources.gpus or resources.vcpus) * (max(0, now - since) / 1000 + restart_s)
