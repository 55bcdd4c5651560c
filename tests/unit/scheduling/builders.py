"""Snapshots in a few words: `a_snapshot().with_environment("e").with_instance("i1", "e").with_waiting("a")`.

Every step answers a new builder, so that two tests never share what one of them changes. Amounts default to a
job of 1 vCPU and 1,000 MiB and an instance of 8 vCPUs and 16,000 MiB. Times are milliseconds; now is NOW.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.capacity.gpu_sets import DeviceSet
from windfall.capacity.machines import GpuDevice, InstanceState, Machine, Offer
from windfall.capacity.occupancy import PartUse
from windfall.jobs.gpus import GpuWish, held_part
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.fair_share import FairShareView
from windfall.scheduling.snapshot import (
    ORDINARY,
    Claim,
    EnvironmentView,
    InstanceView,
    MachineView,
    Plan,
    QueueView,
    Release,
    SchedulingClass,
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
    vcpus: float = 1, memory_mib: int = 1_000, gpus: float = 0, *, timeout_s: int | None = None
) -> Shape:
    return Shape(Resources(vcpus, memory_mib, gpus), timeout_s)


def some_gpus(
    name: str, count: int, model: str = "A10G", gib: int | None = 24, *, sharing: str | None = None
) -> tuple[GpuDevice, ...]:
    """GPUs of one kind; their ids are `NAME0`, `NAME1`, ..."""
    memory_mib = None if gib is None else gib * 1024
    return tuple(GpuDevice(f"{name}{number}", model, memory_mib, sharing=sharing) for number in range(count))


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
    devices: tuple[GpuDevice, ...] = (),
) -> Offer:
    return Offer(
        instance_type,
        Resources(vcpus, memory_mib, gpus),
        available,
        MachineId(machine) if machine is not None else None,
        usd_hour,
        on_demand,
        safety,
        devices,
    )


@dataclass(frozen=True)
class Job:
    """A waiting job as a test sees it."""

    queue: QueueName
    shape: Shape
    waiting: Waiting
    scheduling_class: SchedulingClass = ORDINARY


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
    #: By queue.
    fair_shares: dict[str, FairShareView] = field(default_factory=dict)

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

    def with_gpu_machine(
        self,
        name: str,
        *devices: GpuDevice,
        vcpus: float = 8,
        memory_mib: int = 16_000,
        fenced: dict[str, str] | None = None,
    ) -> Cluster:
        """A machine with these very GPUs."""
        total = Resources(vcpus, memory_mib, len(devices))
        known = DeviceSet.of(Machine(MachineId(name), total, devices, fences=fenced or {}))
        machine = MachineView(MachineId(name), total, NOTHING, known.ids, known)
        return replace(self, machines={**self.machines, name: machine})

    def with_gpus(self, instance: str, *devices: GpuDevice, environment: str = "env", **more: Any) -> Cluster:
        """An instance on a machine of its own with these very GPUs."""
        cluster = self.with_gpu_machine(f"machine-{instance}", *devices, **more)
        size = cluster.machines[f"machine-{instance}"].total
        return cluster.with_instance(
            *(instance, environment, size.vcpus, size.memory_mib, int(size.gpus)),
            machine=f"machine-{instance}",
            is_share=True,
        )

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
        gpus: float = 0,
        *,
        on: tuple[str, ...] | None = None,
        ends_in_s: int | None = None,
        job: str | None = None,
        queue: str | None = None,
        loss: float | None = None,
        leaving: bool = False,
        gang: str | None = None,
        alone: bool = False,
    ) -> Cluster:
        """An attempt that holds something on an instance, perhaps until a time; with a `loss` it is reclaimable.

        It may be a node of a `gang`, which leaves as a whole unless this one can leave `alone`.
        Its GPUs are the first free ones, or those named by `on`; a part of one always names it.
        """
        amount = Resources(vcpus, memory_mib, gpus)
        old = next(one for one in self.instances if one.id == instance)
        machine = self.machines[str(old.machine)]
        gpu_ids = machine.free_gpus[: int(gpus)] if on is None else on
        at = None if ends_in_s is None else self.now + ends_in_s * 1000
        release = Release(
            amount,
            gpu_ids,
            at,
            AttemptToken(f"{job}#1") if job is not None else None,
            JobId(job) if job is not None else None,
            QueueName(queue) if queue is not None else None,
            reclaimable=loss is not None and not leaving,
            leaving=leaving,
            loss=loss or 0.0,
            gang=JobId(gang) if gang is not None else None,
            alone=alone or gang is None,
        )
        new = replace(old, used=old.used + amount, releases=(*old.releases, release), idle_since=None)
        machine = replace(
            machine,
            used=machine.used + amount,
            free_gpus=tuple(one for one in machine.free_gpus if one not in gpu_ids),
            shared_gpus=_shared(machine, amount.gpus, gpu_ids),
        )
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
        gpus: float = 0,
        *,
        queue: str = "queue",
        count: int = 1,
        waited_ms: int = 0,
        timeout_s: int | None = None,
        order: int | None = None,
        instance_type: str | None = None,
        wish: GpuWish | None = None,
        scheduling_class: SchedulingClass = ORDINARY,
    ) -> Cluster:
        """A job that waits behind all those named before it, or an array with `count` waiting children."""
        cluster = self if any(one.name == queue for one in self.queues) else self.with_queue(queue)
        place = order if order is not None else len(self.jobs)
        waiting = Waiting(place, JobId(job), self.now - waited_ms, count)
        if wish is not None and wish.share is not None:
            gpus = held_part(wish.share)
        shape = Shape(Resources(vcpus, memory_mib, gpus), timeout_s, instance_type, wish)
        return replace(cluster, jobs=(*cluster.jobs, Job(QueueName(queue), shape, waiting, scheduling_class)))

    def with_fair_share(self, view: FairShareView, queue: str = "queue") -> Cluster:
        """The queue has a fair-share policy, and its shares stand so."""
        return replace(self, fair_shares={**self.fair_shares, queue: view})

    def with_rules(self, *, reserve_after_ms: int = MINUTE, idle_after_ms: int = 5 * MINUTE) -> Cluster:
        return replace(self, rules=SchedulingRules(reserve_after_ms, idle_after_ms))

    def with_claim(self, job: str, machine: str, count: int = 1) -> Cluster:
        """Others were asked to leave a place on a machine to a waiting job."""
        waits = self.job(job)
        where, order = MachineId(machine), waits.waiting.order
        claim = Claim(JobId(job), waits.queue, waits.shape, where, order, count, waits.scheduling_class)
        return replace(self, claims=(*self.claims, claim))

    def without(self, job: str) -> Cluster:
        return replace(self, jobs=tuple(one for one in self.jobs if one.waiting.job_id != job))

    def job(self, job: str) -> Job:
        return next(one for one in self.jobs if one.waiting.job_id == job)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now,
            [
                QueueView(queue, self._groups(queue.name), self.fair_shares.get(queue.name))
                for queue in self.queues
            ],
            {EnvironmentName(name): view for name, view in self.environments.items()},
            self.instances,
            {MachineId(name): view for name, view in self.machines.items()},
            self.rules,
            self.claims,
        )

    def _groups(self, queue: QueueName) -> list[WaitingGroup]:
        entries: dict[tuple[Shape, SchedulingClass], list[Waiting]] = {}
        for job in sorted(self.jobs, key=lambda one: one.waiting.order):
            if job.queue == queue:
                entries.setdefault((job.shape, job.scheduling_class), []).append(job.waiting)
        return [
            WaitingGroup(shape, each, sum(one.count for one in each), scheduling_class)
            for (shape, scheduling_class), each in entries.items()
        ]


def _shared(machine: MachineView, gpus: float, gpu_ids: tuple[str, ...]) -> dict[str, PartUse]:
    shared = dict(machine.shared_gpus)
    for one in gpu_ids if 0 < gpus < 1 else ():
        part = shared.get(one, PartUse())
        shared[one] = PartUse(part.used + gpus, part.sharers + 1)
    return shared


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
