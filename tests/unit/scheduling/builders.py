"""Snapshots in a few words: `a_snapshot().with_environment("e").with_instance("i1", "e").with_waiting("a")`.

Every step answers a new builder, so that two tests never share what one of them changes. Amounts default to a
job of 1 vCPU and 1,000 MiB and an instance of 8 vCPUs and 16,000 MiB. Times are milliseconds; now is NOW.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.capacity.machines import InstanceState, Offer
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.snapshot import (
    Claim,
    EnvironmentView,
    InstanceView,
    MachineView,
    Plan,
    QueueView,
    Release,
    SchedulingRules,
    Shape,
    Shortage,
    Snapshot,
    Waiting,
    WaitingGroup,
)

NOW = 1_000_000_000
MINUTE = 60_000


def a_shape(
    vcpus: float = 1, memory_mib: int = 1_000, gpus: int = 0, *, timeout_s: int | None = None
) -> Shape:
    return Shape(Resources(vcpus, memory_mib, gpus), timeout_s)


def an_offer(
    instance_type: str = "m.large",
    vcpus: float = 8,
    memory_mib: int = 16_000,
    gpus: int = 0,
    *,
    available: int | None = None,
    machine: str | None = None,
    usd_hour: float | None = None,
    on_demand: float | None = None,
    safety: float | None = None,
) -> Offer:
    return Offer(
        instance_type,
        Resources(vcpus, memory_mib, gpus),
        available,
        MachineId(machine) if machine is not None else None,
        usd_hour,
        on_demand,
        safety,
    )


@dataclass(frozen=True)
class Job:
    """A waiting job as a test sees it."""

    queue: QueueName
    shape: Shape
    waiting: Waiting


@dataclass(frozen=True)
class Cluster:
    """A snapshot in the making."""

    queues: tuple[JobQueue, ...] = ()
    jobs: tuple[Job, ...] = ()
    environments: dict[str, EnvironmentView] = field(default_factory=dict)
    instances: tuple[InstanceView, ...] = ()
    machines: dict[str, MachineView] = field(default_factory=dict)
    rules: SchedulingRules = field(default_factory=SchedulingRules)
    now: int = NOW
    claims: tuple[Claim, ...] = ()

    def with_environment(
        self,
        name: str = "env",
        *,
        kind: Provisioning = Provisioning.EC2,
        min_vcpus: int = 0,
        max_vcpus: int = 1_000,
        enabled: bool = True,
        offers: tuple[Offer, ...] = (),
        trouble: str | None = None,
        short: dict[str, int] | None = None,
        allocation: str | None = None,
        bid_percent: int | None = None,
    ) -> Cluster:
        """An environment; `short` names types that cannot be had, and for how many seconds."""
        switch = Switch.ENABLED if enabled else Switch.DISABLED
        environment = ComputeEnvironment(
            EnvironmentName(name),
            kind,
            min_vcpus,
            max_vcpus,
            switch,
            allocation=allocation,
            bid_percent=bid_percent,
        )
        shortages = {
            each: Shortage("no capacity", self.now + again_s * 1000)
            for each, again_s in (short or {}).items()
        }
        view = EnvironmentView(environment, offers, trouble, shortages)
        return replace(self, environments={**self.environments, name: view})

    def with_queue(
        self, name: str = "queue", *environments: str, priority: int = 1, enabled: bool = True
    ) -> Cluster:
        names = tuple(EnvironmentName(each) for each in environments or ("env",))
        switch = Switch.ENABLED if enabled else Switch.DISABLED
        return replace(self, queues=(*self.queues, JobQueue(QueueName(name), priority, names, switch)))

    def with_machine(
        self, name: str, vcpus: float = 8, memory_mib: int = 16_000, gpus: tuple[str, ...] | int = ()
    ) -> Cluster:
        """A machine of its own, for several instances to share."""
        ids = tuple(f"{name}-gpu{number}" for number in range(gpus)) if isinstance(gpus, int) else gpus
        machine = MachineView(MachineId(name), Resources(vcpus, memory_mib, len(ids)), NOTHING, ids)
        return replace(self, machines={**self.machines, name: machine})

    def with_instance(
        self,
        name: str,
        environment: str = "env",
        vcpus: float = 8,
        memory_mib: int = 16_000,
        gpus: int = 0,
        *,
        machine: str | None = None,
        state: InstanceState = InstanceState.READY,
        idle_ms: int | None = None,
        instance_type: str = "m.large",
        is_share: bool = False,
    ) -> Cluster:
        """An instance, on a machine of the same size unless one is named."""
        cluster = self if machine else self.with_machine(f"machine-{name}", vcpus, memory_mib, gpus)
        known = state is not InstanceState.LAUNCHING
        instance = InstanceView(
            InstanceId(name),
            EnvironmentName(environment),
            instance_type,
            state,
            Resources(vcpus, memory_mib, gpus),
            NOTHING,
            MachineId(machine or f"machine-{name}") if known else None,
            None if idle_ms is None else self.now - idle_ms,
            is_share=is_share,
        )
        return replace(cluster, instances=(*cluster.instances, instance))

    def with_running(
        self,
        instance: str,
        vcpus: float = 1,
        memory_mib: int = 1_000,
        gpus: int = 0,
        *,
        ends_in_s: int | None = None,
        job: str | None = None,
        queue: str | None = None,
        loss: float | None = None,
        leaving: bool = False,
    ) -> Cluster:
        """An attempt that holds something on an instance, perhaps until a time; with a `loss` it is reclaimable."""
        amount = Resources(vcpus, memory_mib, gpus)
        at = None if ends_in_s is None else self.now + ends_in_s * 1000
        release = Release(
            amount,
            gpus,
            at,
            AttemptToken(f"{job}#1") if job is not None else None,
            JobId(job) if job is not None else None,
            QueueName(queue) if queue is not None else None,
            reclaimable=loss is not None and not leaving,
            leaving=leaving,
            loss=loss or 0.0,
        )
        old = next(one for one in self.instances if one.id == instance)
        new = replace(old, used=old.used + amount, releases=(*old.releases, release), idle_since=None)
        machine = self.machines[str(old.machine)]
        machine = replace(machine, used=machine.used + amount, free_gpus=machine.free_gpus[gpus:])
        return replace(
            self,
            instances=tuple(new if one is old else one for one in self.instances),
            machines={**self.machines, machine.id: machine},
        )

    def with_waiting(
        self,
        job: str,
        vcpus: float = 1,
        memory_mib: int = 1_000,
        gpus: int = 0,
        *,
        queue: str = "queue",
        count: int = 1,
        waited_ms: int = 0,
        timeout_s: int | None = None,
        order: int | None = None,
        instance_type: str | None = None,
    ) -> Cluster:
        """A job that waits behind all those named before it, or an array with `count` waiting children."""
        cluster = self if any(one.name == queue for one in self.queues) else self.with_queue(queue)
        place = order if order is not None else len(self.jobs)
        waiting = Waiting(place, JobId(job), self.now - waited_ms, count)
        shape = Shape(Resources(vcpus, memory_mib, gpus), timeout_s, instance_type)
        return replace(cluster, jobs=(*cluster.jobs, Job(QueueName(queue), shape, waiting)))

    def with_rules(self, *, reserve_after_ms: int = MINUTE, idle_after_ms: int = 5 * MINUTE) -> Cluster:
        return replace(self, rules=SchedulingRules(reserve_after_ms, idle_after_ms))

    def with_claim(self, job: str, machine: str, count: int = 1) -> Cluster:
        """Others were asked to leave a place on a machine to a waiting job."""
        waits = self.job(job)
        claim = Claim(JobId(job), waits.queue, waits.shape, MachineId(machine), waits.waiting.order, count)
        return replace(self, claims=(*self.claims, claim))

    def without(self, job: str) -> Cluster:
        return replace(self, jobs=tuple(one for one in self.jobs if one.waiting.job_id != job))

    def job(self, job: str) -> Job:
        return next(one for one in self.jobs if one.waiting.job_id == job)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now,
            [QueueView(queue, self._groups(queue.name)) for queue in self.queues],
            {EnvironmentName(name): view for name, view in self.environments.items()},
            self.instances,
            {MachineId(name): view for name, view in self.machines.items()},
            self.rules,
            self.claims,
        )

    def _groups(self, queue: QueueName) -> list[WaitingGroup]:
        entries: dict[Shape, list[Waiting]] = {}
        for job in sorted(self.jobs, key=lambda one: one.waiting.order):
            if job.queue == queue:
                entries.setdefault(job.shape, []).append(job.waiting)
        return [WaitingGroup(shape, each, sum(one.count for one in each)) for shape, each in entries.items()]


def a_snapshot() -> Cluster:
    """Nothing at all; environments, instances and jobs are added to it."""
    return Cluster()


def a_cluster(vcpus: float = 8, memory_mib: int = 16_000, gpus: int = 0) -> Cluster:
    """One environment `env` with one instance `i1`, and a queue `queue` in front of it."""
    return a_snapshot().with_environment().with_queue().with_instance("i1", "env", vcpus, memory_mib, gpus)


def started(plan: Plan) -> list[tuple[str, str]]:
    """Who starts where, in the order of the plan."""
    return [(placement.job_id, placement.instance) for placement in plan.placements]


def launched(plan: Plan) -> list[tuple[str, str]]:
    """What is launched where."""
    return [(launch.environment, launch.offer.type) for launch in plan.launches]
