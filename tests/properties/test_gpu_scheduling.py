"""What holds for GPUs of several kinds, shared ones and fenced ones, over clusters that nobody thought of.

Plans are checked against devices counted anew from the snapshot, never by the scheduler's own working copies.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.test_scheduling import explained, left_waiting, takes
from tests.properties.test_taking_back import (
    after_leaving,
    applied,
    claimed,
    releases_of,
    when_they_have_left,
)
from tests.unit.scheduling.builders import MINUTE, Cluster, Job, a_snapshot, an_offer, some_gpus
from windfall.capacity.environments import Provisioning
from windfall.capacity.gpu_sets import MOST_SHARERS
from windfall.capacity.machines import GpuDevice, InstanceState
from windfall.capacity.occupancy import PartUse
from windfall.jobs.gpus import GpuWish, held_part
from windfall.jobs.resources import NOTHING
from windfall.scheduling.counterfactuals import (
    AskAnyGpuModel,
    AskLess,
    AskLessGpuMemory,
    AskSmallerShare,
    SetTimeout,
    UseEnvironment,
)
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import MachineView, Plan, Shape
from windfall.scheduling.wording import Resource

many = settings(max_examples=400)
some = settings(max_examples=200)

WISHES = (
    None,
    None,
    GpuWish(model="A10G"),
    GpuWish(model="h100"),
    GpuWish(memory_mib=20 * 1024),
    GpuWish(memory_mib=60 * 1024),
    GpuWish(share=0.5),
    GpuWish(share=0.3),
    GpuWish(model="h100", share=0.7),
)
KINDS = (("T4", 16), ("A10G", 24), ("H100", 80), ("nobody knows", None))
OFFERS = (
    an_offer("two-a10g", 8, 16_000, 2, available=2, devices=some_gpus("o", 2)),
    an_offer("one-h100", 8, 16_000, 1, available=1, devices=some_gpus("o", 1, "H100", 80, sharing="mps")),
)


def a_gpu_cluster(seed: int) -> Cluster:
    """Machines that environments share, some of them spot, with GPUs of several kinds, and jobs that are choosy."""
    rng = Random(seed)
    cluster = (
        a_snapshot()
        .with_environment("demand", offers=tuple(rng.sample(OFFERS, rng.randint(0, 1))))
        .with_environment("spot", kind=Provisioning.SPOT)
    )
    cluster = cluster.with_queue("demand", "demand", priority=rng.choice([1, 5]))
    cluster = cluster.with_queue("spot", "spot", priority=rng.choice([1, 9]))
    for machine in ("m1", "m2")[: rng.randint(1, 2)]:
        devices = _devices(rng, machine)
        fenced = {gpu.id: "XID 79" for gpu in devices if rng.random() < 0.1}
        cluster = cluster.with_gpu_machine(machine, *devices, vcpus=16, memory_mib=64_000, fenced=fenced)
        for name in rng.choice([("demand",), ("demand", "spot"), ("demand", "spot")]):
            cluster = cluster.with_instance(
                f"i-{name}-{machine}", name, 16, 64_000, len(devices), machine=machine, is_share=True
            )
    for _ in range(rng.randint(0, 7)):
        cluster = _with_attempt(rng, cluster)
    for number in range(rng.randint(1, 7)):
        wish = rng.choice(WISHES)
        cluster = cluster.with_waiting(
            f"j{number}",
            rng.choice([1, 1, 2, 9]),
            rng.choice([500, 500, 6_000]),
            1 if wish is not None and wish.share is not None else rng.choice([0, 1, 1, 2, 3]),
            queue=rng.choice(["demand", "spot"]),
            count=rng.choice([1, 1, 3]),
            waited_ms=rng.choice([0, 2 * MINUTE]),
            timeout_s=rng.choice([None, None, 60, 1_000]),
            wish=wish,
        )
    return cluster


def _devices(rng: Random, machine: str) -> tuple[GpuDevice, ...]:
    kinds = rng.sample(KINDS, rng.choice([1, 1, 2, 3]))
    found = [
        gpu
        for model, gib in kinds
        for gpu in some_gpus(
            f"{machine}-{model}-", rng.randint(1, 3), model, gib, sharing=rng.choice([None, "mps"])
        )
    ]
    return tuple(rng.sample(found, len(found)))


def _with_attempt(rng: Random, cluster: Cluster) -> Cluster:
    instance = rng.choice(cluster.instances)
    machine = cluster.machines[str(instance.machine)]
    part = held_part(rng.choice([0.5, 0.3, 0.25]))
    open_to_part = [
        one
        for one, gpu in machine.devices.by_id.items()
        if gpu.sharing
        and (
            one in machine.free_gpus
            or (one in machine.shared_gpus and machine.shared_gpus[one].used + part <= 1)
        )
    ]
    if rng.random() < 0.4 and open_to_part:
        gpus, on = part, (rng.choice(open_to_part),)
    elif machine.free_gpus:
        gpus, on = 1, (rng.choice(machine.free_gpus),)
    else:
        return cluster
    lent, leaving = instance.environment == "spot", rng.random() < 0.15
    return cluster.with_running(
        instance.id,
        1,
        500,
        gpus,
        on=on,
        ends_in_s=rng.choice([5, 90]) if leaving else rng.choice([None, None, 60, 600]),
        job=f"r{sum(len(one.releases) for one in cluster.instances)}",
        queue="spot",
        loss=rng.choice([1.0, 5.0, 30.0]) if lent and not leaving else None,
        leaving=leaving,
    )


clusters = st.integers(0, 2**32).map(a_gpu_cluster)


class Counted:
    """The devices of one machine, counted by hand."""

    def __init__(self, machine: MachineView) -> None:
        self.known = machine.devices.by_id
        self.free = set(machine.free_gpus)
        self.parts = dict(machine.shared_gpus)
        self.fenced = set(machine.devices.fenced)

    def give(self, gpus: float, gpu_ids: tuple[str, ...]) -> None:
        for one in gpu_ids:
            assert one not in self.fenced
            if not 0 < gpus < 1:
                self.free.remove(one)  # fails by itself when it is not free
                continue
            part = self.parts.get(one, PartUse())
            self.free.discard(one)
            self.parts[one] = PartUse(part.used + gpus, part.sharers + 1)
            assert self.known[one].sharing
            assert part.used + gpus <= 1
            assert part.sharers < MOST_SHARERS

    def back(self, gpus: float, gpu_ids: tuple[str, ...]) -> None:
        for one in gpu_ids:
            part = self.parts.pop(one, PartUse(gpus, 1))
            if part.sharers > 1:
                self.parts[one] = PartUse(part.used - gpus, part.sharers - 1)
            elif one not in self.fenced:
                self.free.add(one)

    def has(self, shape: Shape) -> bool:
        wish, wanted = shape.gpu_wish or GpuWish(), shape.resources.gpus
        fitting = [gpu for gpu in self.known.values() if wish.admits(gpu.name, gpu.memory_mib)]
        if wish.share is not None:
            left = {one: 1 - part.used for one, part in self.parts.items() if one not in self.fenced}
            left |= dict.fromkeys(self.free, 1.0)
            return any(gpu.sharing and left.get(gpu.id, 0) >= wanted for gpu in fitting)
        free = [gpu for gpu in fitting if gpu.id in self.free]
        if wish.model is None:
            return len(free) >= wanted
        kinds = [(gpu.name, gpu.memory_mib) for gpu in free]
        return not wanted or max((kinds.count(kind) for kind in kinds), default=0) >= wanted


def counted_after(cluster: Cluster, decided: Plan) -> dict[str, Counted]:
    """The devices of all machines when a plan was carried out."""
    machines = {one.id: str(one.machine) for one in cluster.instances}
    counted = {name: Counted(machine) for name, machine in cluster.machines.items()}
    for placement in decided.placements:
        gpus = cluster.job(placement.job_id).shape.resources.gpus
        counted[machines[placement.instance]].give(gpus, placement.gpu_ids)
    return counted


@many
@given(clusters)
def test_no_device_is_given_beyond_what_is_left_of_it_and_all_are_as_asked_for(cluster):
    decided = plan(cluster.snapshot())
    counted_after(cluster, decided)
    machines = {one.id: cluster.machines[str(one.machine)] for one in cluster.instances}
    for placement in decided.placements:
        shape = cluster.job(placement.job_id).shape
        devices = [machines[placement.instance].devices.by_id[one] for one in placement.gpu_ids]
        assert len(devices) == (1 if shape.is_part else shape.resources.gpus)
        if shape.gpu_wish is not None:
            assert all(shape.gpu_wish.admits(gpu.name, gpu.memory_mib) for gpu in devices)
            if shape.gpu_wish.model is not None:
                assert len({(gpu.name, gpu.memory_mib) for gpu in devices}) <= 1


@many
@given(clusters)
def test_amounts_add_up_exactly(cluster):
    """Parts of GPUs are given and given back for ever: nothing may be left over."""
    decided = plan(cluster.snapshot())
    later = applied(cluster, decided)
    empty = after_leaving(later, set(releases_of(later)))
    for one in (*empty.instances, *empty.machines.values()):
        assert one.used == NOTHING
    for machine in empty.machines.values():
        assert (set(machine.free_gpus), machine.shared_gpus) == (set(machine.devices.ids), {})


@many
@given(clusters)
def test_no_free_place_is_left_to_a_choosy_job(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    counted = counted_after(cluster, decided)
    later = {one.id: one for one in applied(cluster, decided).instances}
    on = {one.id: one for one in applied(cluster, decided).machines.values()}
    kept = {str(later[one.instance].machine) for one in (*decided.reservations, *decided.claims)}
    for job, _ in left_waiting(cluster, decided):
        for instance in later.values():
            machine = str(instance.machine)
            if machine in kept or not takes(snapshot, job, instance.environment):
                continue
            wanted = job.shape.resources
            roomy = wanted.fits_in(instance.total - instance.used)
            roomy = roomy and wanted.fits_in(on[instance.machine].total - on[instance.machine].used)
            assert not (roomy and counted[machine].has(job.shape)), (job, instance)


@many
@given(clusters)
def test_a_smaller_free_device_is_never_left_for_a_larger_one(cluster):
    decided = plan(cluster.snapshot())
    if decided.reservations or decided.claims:
        return
    counted = counted_after(cluster, decided)
    machines = {one.id: str(one.machine) for one in cluster.instances}
    for placement in decided.placements:
        shape = cluster.job(placement.job_id).shape
        if shape.gpu_wish is None and shape.resources.gpus == 1:
            here = counted[machines[placement.instance]]
            given_memory = here.known[placement.gpu_ids[0]].memory_mib or 0
            assert all((here.known[one].memory_mib or 0) >= given_memory for one in here.free)


@many
@given(clusters)
def test_a_reserved_job_has_its_devices_at_the_expected_time_whatever_was_started(cluster):
    decided = plan(cluster.snapshot())
    later = applied(cluster, decided)
    instances = {one.id: one for one in later.instances}
    for reservation in decided.reservations:
        if reservation.expected_at is None:
            continue
        machine = instances[reservation.instance].machine
        counted = counted_after(cluster, decided)[str(machine)]
        for one in later.instances:
            for release in one.releases if one.machine == machine else ():
                if release.at is not None and release.at <= reservation.expected_at:
                    counted.back(release.resources.gpus, release.gpu_ids)
        assert counted.has(cluster.job(reservation.job_id).shape)


@many
@given(clusters)
def test_every_choosy_job_has_a_reason_and_it_agrees_with_the_plan(cluster):
    decided = plan(cluster.snapshot())
    placed = {placement.job_id for placement in decided.placements}
    for job in cluster.jobs:
        explanation = explained(cluster, job)
        codes = {reason.code for reason in explanation.reasons}
        assert all(reason.text() for reason in explanation.reasons)
        assert ("STARTS_NEXT" in codes) == (job.waiting.job_id in placed)
        assert "UNDETERMINED" not in codes


@some
@given(clusters)
def test_what_is_said_to_help_a_choosy_job_helps(cluster):
    for job in cluster.jobs:
        for change in explained(cluster, job).counterfactuals:
            assert change.text()
            if not getattr(change, "at_once", True):
                continue
            if isinstance(change, AskLess | AskAnyGpuModel | AskLessGpuMemory | AskSmallerShare | SetTimeout):
                decided = plan(changed(cluster, job, change).snapshot())
                assert job.waiting.job_id in {one.job_id for one in decided.placements}, change
            else:
                assert isinstance(change, UseEnvironment), change


def changed(cluster: Cluster, job: Job, change: object) -> Cluster:
    shape, wish = job.shape, job.shape.gpu_wish or GpuWish()
    if isinstance(change, AskLess):
        part = {Resource.MEMORY: "memory_mib", Resource.VCPUS: "vcpus", Resource.GPUS: "gpus"}[
            change.resource
        ]
        shape = replace(shape, resources=replace(shape.resources, **{part: change.at_most}))
    elif isinstance(change, SetTimeout):
        shape = replace(shape, timeout_s=change.at_most_s)
    elif isinstance(change, AskAnyGpuModel):
        shape = replace(shape, gpu_wish=replace(wish, model=None))
    elif isinstance(change, AskLessGpuMemory):
        shape = replace(shape, gpu_wish=replace(wish, memory_mib=int(change.at_most_gib * 1024)))
    elif isinstance(change, AskSmallerShare):
        resources = replace(shape.resources, gpus=held_part(change.at_most))
        shape = Shape(resources, shape.timeout_s, None, replace(wish, share=change.at_most))
    moved = replace(job, shape=shape)
    return replace(cluster, jobs=tuple(moved if one is job else one for one in cluster.jobs))


@many
@given(clusters)
def test_nobody_leaves_a_device_in_vain(cluster):
    """The job alone gets its place when those have left who were asked to."""
    first = replace(cluster, jobs=cluster.jobs[:1])
    decided = plan(first.snapshot())
    if decided.reclaims:
        known = releases_of(first)
        assert all(known[one.token][1].reclaimable for one in decided.reclaims)
        then = when_they_have_left(first, decided)
        assert cluster.jobs[0].waiting.job_id in {one.job_id for one in then.placements}


@many
@given(clusters)
def test_nobody_else_is_asked_while_devices_are_left(cluster):
    decided = plan(cluster.snapshot())
    again = plan(claimed(applied(cluster, decided), decided).snapshot())
    asked = {one.for_job for one in decided.reclaims}
    count = {job.waiting.job_id: job.waiting.count for job in cluster.jobs}
    assert all(one.for_job not in asked or count[one.for_job] > 1 for one in again.reclaims)


@many
@given(clusters)
def test_what_is_launched_has_the_devices_that_somebody_asked_for(cluster):
    decided = plan(cluster.snapshot())
    waiting = [job.shape for job, _ in left_waiting(cluster, decided) if job.queue == "demand"]
    for launch in decided.launches:
        assert any(
            shape.gpu_wish is None
            or any(shape.gpu_wish.admits(gpu.name, gpu.memory_mib) for gpu in launch.offer.gpus)
            for shape in waiting
        )
        assert all(one.state is InstanceState.READY for one in cluster.instances)
