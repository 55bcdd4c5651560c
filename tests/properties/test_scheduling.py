"""What holds for every plan and every explanation, over clusters that nobody thought of.

Plans are checked by sums done anew from the snapshot, never by the scheduler's own working copies.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.scheduling.builders import MINUTE, Cluster, Job, a_cluster, a_snapshot, an_offer, started
from windfall.capacity.environments import RECLAIMABLE, WITHOUT_GPUS, Provisioning, Switch
from windfall.capacity.machines import InstanceState
from windfall.jobs.resources import NOTHING, Resources
from windfall.scheduling.counterfactuals import (
    AskLess,
    EnableEnvironment,
    RaiseMaxVcpus,
    SetTimeout,
    UseEnvironment,
)
from windfall.scheduling.dispatch_order import dispatch_order, jobs_ahead
from windfall.scheduling.explain import explain
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Plan, Release, Shape, Snapshot
from windfall.scheduling.wording import Resource

ENVIRONMENTS = ("e1", "e2", "e3")
QUEUES = ("q1", "q2", "q3")
OFFERS = (
    an_offer("small", 2, 4_000),
    an_offer("large", 8, 16_000, available=2),
    an_offer("gpu", 4, 8_000, 2, available=1),
    an_offer("gone", 16, 32_000, 4, available=0),
)

many = settings(max_examples=400)
some = settings(max_examples=200)


def a_random_cluster(seed: int) -> Cluster:
    """A few environments, machines shared or not, instances with attempts, queues and waiting jobs."""
    rng = Random(seed)
    cluster = a_snapshot().with_rules(reserve_after_ms=MINUTE, idle_after_ms=5 * MINUTE)
    for name in ENVIRONMENTS:
        cluster = cluster.with_environment(
            name,
            kind=rng.choice([Provisioning.EC2] * 3 + [Provisioning.SPOT] * 2 + [Provisioning.FARGATE]),
            min_vcpus=rng.choice([0, 0, 4]),
            max_vcpus=rng.choice([4, 16, 64]),
            enabled=rng.random() < 0.9,
            offers=tuple(rng.sample(OFFERS, rng.randint(0, 2))),
            trouble=rng.choice([None, None, None, "no answer"]),
        )
    for number in range(rng.randint(1, 4)):
        vcpus = rng.choice([4, 8])
        cluster = cluster.with_machine(f"m{number}", vcpus, vcpus * 2_000, rng.choice([0, 2, 4]))
    for number in range(rng.choice([0, 2, 4, 6])):
        machine = cluster.machines[rng.choice(list(cluster.machines))]
        cluster = cluster.with_instance(
            f"i{number}",
            rng.choice(ENVIRONMENTS),
            rng.choice([2, machine.total.vcpus]),
            machine.total.memory_mib,
            rng.choice([0, machine.total.gpus]),
            machine=machine.id,
            state=rng.choice(
                [InstanceState.READY] * 6 + [InstanceState.LAUNCHING, InstanceState.TERMINATING]
            ),
            idle_ms=rng.choice([None, 0, 4 * MINUTE, 9 * MINUTE]),
        )
    cluster = with_attempts(rng, cluster)
    for number, name in enumerate(QUEUES):
        environments = rng.sample(ENVIRONMENTS, rng.randint(1, 3))
        cluster = cluster.with_queue(name, *environments, priority=rng.choice([number, 1]))
    needs = [
        (
            rng.choice([0.25, 1, 1, 2, 3, 9]),
            rng.choice([500, 500, 2_000, 18_000]),
            rng.choice([0, 0, 0, 1, 2]),
        )
        for _ in range(rng.randint(1, 4))
    ]
    for number in range(rng.randint(0, 12)):
        vcpus, memory_mib, gpus = rng.choice(needs)
        cluster = cluster.with_waiting(
            f"j{number}",
            vcpus,
            memory_mib,
            gpus,
            queue=rng.choice(QUEUES),
            count=rng.choice([1, 1, 3]),
            waited_ms=rng.choice([0, 2 * MINUTE]),
            timeout_s=rng.choice([None, 60, 1_000]),
        )
    return cluster


def with_attempts(rng: Random, cluster: Cluster) -> Cluster:
    """Attempts on READY instances, as far as there is room for them."""
    for instance in cluster.instances:
        if instance.state is not InstanceState.READY:
            continue
        for _ in range(rng.randint(0, 3)):
            wanted = Resources(rng.choice([1, 2]), 1_500, rng.choice([0, 1]))
            now = next(one for one in cluster.instances if one.id == instance.id)
            machine = cluster.machines[now.machine]
            if wanted.fits_in(now.total - now.used) and wanted.fits_in(machine.total - machine.used):
                cluster = cluster.with_running(
                    instance.id,
                    wanted.vcpus,
                    wanted.memory_mib,
                    wanted.gpus,
                    **{
                        "ends_in_s": rng.choice([None, 90, 600]),
                        **who(rng, cluster, instance.environment),
                    },
                )
    return cluster


def who(rng: Random, cluster: Cluster, environment: str) -> dict[str, Any]:
    """Whose attempt it is: on a spot environment it can be taken back, and some leave already."""
    job = f"r{sum(len(one.releases) for one in cluster.instances)}"
    if cluster.environments[environment].environment.provisioning not in RECLAIMABLE:
        return {"job": job}
    leaving = rng.random() < 0.2
    more: dict[str, Any] = (
        {"ends_in_s": 60, "leaving": True} if leaving else {"loss": rng.choice([1, 5, 30, 200])}
    )
    return {"job": job, "queue": rng.choice(QUEUES), **more}


#: Drawn from one seed, because so many small choices are slow to draw one by one; the seed replays a failure.
clusters = st.integers(0, 2**32).map(a_random_cluster)


class Ledger:
    """What is free after a plan, from the snapshot and the placements alone."""

    def __init__(self, cluster: Cluster, decided: Plan) -> None:
        snapshot = cluster.snapshot()
        self.cluster, self.now = cluster, snapshot.now
        self.instances = {one.id: one for one in snapshot.instances}
        self.machines = snapshot.machines
        self.free = {one.id: one.total - one.used for one in snapshot.instances}
        self.machine_free = {one.id: one.total - one.used for one in snapshot.machines.values()}
        self.devices = {one.id: list(one.free_gpus) for one in snapshot.machines.values()}
        for placement in decided.placements:
            wanted = cluster.job(placement.job_id).shape.resources
            machine = self.instances[placement.instance].machine
            self.free[placement.instance] = self.free[placement.instance] - wanted
            self.machine_free[machine] = self.machine_free[machine] - wanted
            for gpu in placement.gpu_ids:
                self.devices[machine].remove(gpu)

    def holds(self, instance_id: str, wanted: Resources) -> bool:
        instance = self.instances[instance_id]
        return (
            instance.state is InstanceState.READY
            and wanted.fits_in(self.free[instance_id])
            and wanted.fits_in(self.machine_free[instance.machine])
            and wanted.gpus <= len(self.devices[instance.machine])
        )


def left_waiting(cluster: Cluster, decided: Plan) -> list[tuple[Job, int]]:
    placed = Counter(placement.job_id for placement in decided.placements)
    left = [(job, job.waiting.count - placed[job.waiting.job_id]) for job in cluster.jobs]
    return [(job, count) for job, count in left if count > 0]


def takes(snapshot: Snapshot, job: Job, environment: str) -> bool:
    queue = next(view.queue for view in snapshot.queues if view.queue.name == job.queue)
    declared = snapshot.environments[environment].environment
    return (
        environment in queue.environments
        and declared.switch is Switch.ENABLED
        and not (job.shape.resources.gpus and declared.provisioning in WITHOUT_GPUS)
    )


# ------------------------------------------------------------------------------------------------- placements


@many
@given(clusters)
def test_nothing_is_given_twice_or_beyond_what_is_there(cluster):
    decided = plan(cluster.snapshot())
    ledger = Ledger(cluster, decided)  # Fails by itself when a device is given that is not free.
    for left in [*ledger.free.values(), *ledger.machine_free.values()]:
        assert NOTHING.fits_in(left)
    for placement in decided.placements:
        assert len(placement.gpu_ids) == cluster.job(placement.job_id).shape.resources.gpus


@many
@given(clusters)
def test_a_job_goes_where_it_may_and_no_more_often_than_it_waits(cluster):
    snapshot = cluster.snapshot()
    instances = {one.id: one for one in snapshot.instances}
    decided = plan(snapshot)
    for placement in decided.placements:
        instance, job = instances[placement.instance], cluster.job(placement.job_id)
        assert instance.state is InstanceState.READY
        assert placement.queue == job.queue
        assert takes(snapshot, job, instance.environment)
    for job_id, times in Counter(one.job_id for one in decided.placements).items():
        assert times <= cluster.job(job_id).waiting.count


@many
@given(clusters)
def test_nobody_overtakes_a_job_of_the_same_queue_and_shape(cluster):
    decided = plan(cluster.snapshot())
    placed = {placement.job_id for placement in decided.placements}
    for job, _ in left_waiting(cluster, decided):
        for other in cluster.jobs:
            if (other.queue, other.shape) == (
                job.queue,
                job.shape,
            ) and other.waiting.order > job.waiting.order:
                assert other.waiting.job_id not in placed


@many
@given(clusters)
def test_no_free_place_is_left_to_a_job_that_waits(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    ledger = Ledger(cluster, decided)
    kept = (*decided.reservations, *decided.claims)
    reserved = {ledger.instances[one.instance].machine for one in kept}
    for job, _ in left_waiting(cluster, decided):
        for instance in snapshot.instances:
            if instance.machine not in reserved and takes(snapshot, job, instance.environment):
                free = ledger.holds(instance.id, job.shape.resources)
                assert not free or earlier_brings(snapshot, decided, job, instance.environment), (
                    job,
                    instance,
                )


def earlier_brings(snapshot: Snapshot, decided: Plan, job: Job, environment: str) -> bool:
    """Whether an environment before this one in the order of the job's queue has an instance on its way."""
    queue = next(view.queue for view in snapshot.queues if view.queue.name == job.queue)
    earlier = queue.environments[: queue.environments.index(environment)]
    coming = {one.environment for one in snapshot.instances if one.state is InstanceState.LAUNCHING}
    coming.update(launch.environment for launch in decided.launches)
    return any(name in coming and takes(snapshot, job, name) for name in earlier)


@many
@given(clusters)
def test_nobody_waits_for_an_earlier_environment_that_brings_nothing(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    broke = replace(
        snapshot,
        environments={
            name: replace(view, trouble="it cannot launch") for name, view in snapshot.environments.items()
        },
        instances=tuple(one for one in snapshot.instances if one.state is not InstanceState.LAUNCHING),
    )
    # Where nothing can come, the order of environments holds nobody back: as many start as there is room for.
    if not decided.launches and len(broke.instances) == len(snapshot.instances):
        assert started(plan(broke)) == started(decided)


@many
@given(clusters)
def test_the_plan_is_the_same_every_time_and_leaves_the_snapshot_alone(cluster):
    snapshot = cluster.snapshot()
    before = copy.deepcopy(snapshot)
    assert plan(snapshot) == plan(snapshot) == plan(copy.deepcopy(snapshot))
    assert snapshot == before


# ----------------------------------------------------------------------------------------------- reservations


@many
@given(clusters)
def test_reservations_are_for_jobs_that_waited_too_long_and_can_fit_there(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    instances = {one.id: one for one in snapshot.instances}
    queues = {view.queue.name: view.queue for view in snapshot.queues}
    left = {job.waiting.job_id for job, _ in left_waiting(cluster, decided)}
    sets = []
    for reservation in decided.reservations:
        job, instance = cluster.job(reservation.job_id), instances[reservation.instance]
        assert reservation.job_id in left
        assert snapshot.now - job.waiting.runnable_at > snapshot.rules.reserve_after_ms
        assert takes(snapshot, job, instance.environment)
        assert job.shape.resources.fits_in(instance.total)
        assert job.shape.resources.fits_in(snapshot.machines[instance.machine].total)
        sets.append(frozenset(queues[job.queue].environments))
    assert len(set(sets)) == len(sets)
    machines = [instances[one.instance].machine for one in decided.reservations]
    assert len(set(machines)) == len(machines)
    assert set(machines).isdisjoint(instances[one.instance].machine for one in decided.claims)


@many
@given(clusters)
def test_a_reserved_job_has_its_room_at_the_expected_time_whatever_was_started(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    for reservation in decided.reservations:
        if reservation.expected_at is None:
            continue
        ledger = Ledger(cluster, decided)
        chosen = ledger.instances[reservation.instance]
        own, shared = ledger.free[chosen.id], ledger.machine_free[chosen.machine]
        for instance_id, release in ends(cluster, decided):
            if release.at is None or release.at > reservation.expected_at:
                continue
            if ledger.instances[instance_id].machine == chosen.machine:
                shared = shared + release.resources
            if instance_id == chosen.id:
                own = own + release.resources
        wanted = cluster.job(reservation.job_id).shape.resources
        assert wanted.fits_in(own)
        assert wanted.fits_in(shared)


def ends(cluster: Cluster, decided: Plan) -> list[tuple[str, Release]]:
    """When what runs and what the plan starts gives back what it holds."""
    found = [(one.id, release) for one in cluster.instances for release in one.releases]
    for placement in decided.placements:
        shape = cluster.job(placement.job_id).shape
        at = None if shape.timeout_s is None else cluster.now + shape.timeout_s * 1000
        found.append((placement.instance, Release(shape.resources, placement.gpu_ids, at)))
    return found


# ---------------------------------------------------------------------------------------------------- scaling


@many
@given(clusters)
def test_launches_respect_the_engine_and_max_vcpus(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    vcpus: dict[str, float] = defaultdict(float)
    for launch in decided.launches:
        view = snapshot.environments[launch.environment]
        assert view.environment.switch is Switch.ENABLED
        assert view.trouble is None
        assert launch.offer in view.offers
        vcpus[launch.environment] += launch.offer.resources.vcpus
    for name, added in vcpus.items():
        present = sum(one.total.vcpus for one in snapshot.instances if one.environment == name)
        assert present + added <= snapshot.environments[name].environment.max_vcpus
    for (_, offer), count in Counter((one.environment, one.offer) for one in decided.launches).items():
        assert offer.available is None or count <= offer.available


@many
@given(clusters)
def test_no_more_is_launched_than_waits_or_min_vcpus_ask_for(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    waiting = sum(count for _, count in left_waiting(cluster, decided))
    minimum = sum(view.environment.min_vcpus for view in snapshot.environments.values())
    assert len(decided.launches) <= waiting + minimum


@many
@given(clusters)
def test_only_idle_instances_go_away_and_min_vcpus_stay(cluster):
    snapshot = cluster.snapshot()
    decided = plan(snapshot)
    instances = {one.id: one for one in snapshot.instances}
    wanted = {one.instance for one in decided.placements} | {one.instance for one in decided.reservations}
    assert wanted.isdisjoint(decided.terminations)
    assert len(set(decided.terminations)) == len(decided.terminations)
    for instance_id in decided.terminations:
        assert instances[instance_id].used == NOTHING
        assert instances[instance_id].idle_since is not None
    for name, view in snapshot.environments.items():
        lasting = [
            one for one in snapshot.instances if one.environment == name and one.state != "TERMINATING"
        ]
        gone = [one for one in lasting if one.id in decided.terminations]
        if gone and view.environment.switch is Switch.ENABLED:
            after = sum(one.total.vcpus for one in lasting) - sum(one.total.vcpus for one in gone)
            launched = [one.offer.resources.vcpus for one in decided.launches if one.environment == name]
            assert after + sum(launched) >= view.environment.min_vcpus


# ------------------------------------------------------------------------------------------------- starvation


class Running:
    """A cluster that lives: jobs run for as long as they like, and more come all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.empty, self.now = cluster, cluster.now
        self.waiting: list[Job] = list(cluster.jobs)
        self.attempts: list[tuple[Job, str, int]] = []
        self.started: dict[str, int] = {}

    def tick(self, arrivals: list[Cluster], lasts: dict[str, int]) -> None:
        self.now += 10_000
        self.attempts = [one for one in self.attempts if one[2] > self.now]
        self.waiting += [job for arrival in arrivals for job in arrival.jobs]
        cluster = replace(self.empty, now=self.now, jobs=tuple(self.waiting))
        for job, instance, _ in self.attempts:
            need = job.shape.resources
            until = self.started[job.waiting.job_id] + (job.shape.timeout_s or 0) * 1000
            ends_in_s = None if job.shape.timeout_s is None else (until - self.now) // 1000
            cluster = cluster.with_running(
                instance, need.vcpus, need.memory_mib, need.gpus, ends_in_s=ends_in_s
            )
        for placement in plan(cluster.snapshot()).placements:
            job = cluster.job(placement.job_id)
            self.started[placement.job_id] = self.now
            self.attempts.append((job, placement.instance, self.now + lasts[placement.job_id]))
            self.waiting.remove(job)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    lasts=st.lists(st.integers(1, 300), min_size=5, max_size=30),
    sizes=st.lists(st.sampled_from([0.5, 1, 2, 3]), min_size=3, max_size=7),
    limits=st.lists(st.sampled_from([None, 300, 400]), min_size=2, max_size=5),
    big=st.sampled_from([5, 8]),
    other_queue=st.booleans(),
)
def test_a_big_job_starts_however_many_small_ones_come(lasts, sizes, limits, big, other_queue):
    cluster = a_cluster().with_instance("i2").with_queue("a-queue", "env")
    running = Running(cluster)
    durations: dict[str, int] = {"big": 1_000}
    for tick in range(400):
        arrivals = []
        for number in range(12):
            name = f"small-{tick}-{number}"
            turn = tick * 12 + number
            durations[name] = lasts[turn % len(lasts)] * 1_000
            arrivals.append(
                replace(a_cluster(), now=running.now + 10_000).with_waiting(
                    name,
                    sizes[turn % len(sizes)],
                    queue="a-queue" if other_queue else "queue",
                    order=1_000 * tick + number,
                    timeout_s=limits[turn % len(limits)],
                )
            )
        if tick == 5:
            late = replace(a_cluster(), now=running.now + 10_000)
            arrivals.append(late.with_waiting("big", big, order=5_500))
        running.tick(arrivals, durations)
        running.waiting = [job for job in running.waiting if job.waiting.job_id == "big"] + running.waiting[
            -40:
        ]
        running.waiting = list({job.waiting.job_id: job for job in running.waiting}.values())
        if "big" in running.started:
            return
    raise AssertionError("the big job has starved")


# ---------------------------------------------------------------------------------------------------- explain


def explained(cluster: Cluster, job: Job):
    snapshot = cluster.snapshot()
    view = next(view for view in snapshot.queues if view.queue.name == job.queue)
    return explain(snapshot, job.queue, job.shape, job.waiting, jobs_ahead(view, job.waiting))


@many
@given(clusters)
def test_every_waiting_job_has_a_reason_and_it_agrees_with_the_plan(cluster):
    decided = plan(cluster.snapshot())
    placed = {placement.job_id for placement in decided.placements}
    reserved = {one.job_id: one for one in decided.reservations}
    asked = {one.for_job for one in decided.reclaims}
    for job in cluster.jobs:
        explanation = explained(cluster, job)
        codes = {reason.code for reason in explanation.reasons}
        assert explanation.reasons
        assert all(reason.text() for reason in explanation.reasons)
        assert ("STARTS_NEXT" in codes) == (job.waiting.job_id in placed)
        if "STARTS_NEXT" in codes:
            assert codes == {"STARTS_NEXT"}
        elif job.waiting.job_id in reserved:
            assert "PLACE_RESERVED" in codes
            assert explanation.expected_at == reserved[job.waiting.job_id].expected_at
        else:
            assert "PLACE_RESERVED" not in codes
            assert "UNDETERMINED" not in codes
        if job.waiting.job_id in asked:  # of an array, one child may start while others wait for a place
            assert codes & {"PLACE_LEFT", "STARTS_NEXT"}


@some
@given(clusters)
def test_what_is_said_to_help_helps(cluster):
    for job in cluster.jobs:
        explanation = explained(cluster, job)
        for change in explanation.counterfactuals:
            assert change.text()
            changed = applied(cluster, job, change)
            decided = plan(changed.snapshot())
            if isinstance(change, RaiseMaxVcpus):
                assert any(one.environment == change.environment for one in decided.launches), change
            else:
                assert job.waiting.job_id in {one.job_id for one in decided.placements}, change


def applied(cluster: Cluster, job: Job, change) -> Cluster:
    need, timeout_s, queue = job.shape.resources, job.shape.timeout_s, job.queue
    if isinstance(change, AskLess):
        parts = {
            Resource.MEMORY: {"memory_mib": int(change.at_most)},
            Resource.VCPUS: {"vcpus": change.at_most},
            Resource.GPUS: {"gpus": int(change.at_most)},
        }
        need = replace(need, **parts[change.resource])
    elif isinstance(change, SetTimeout):
        timeout_s = change.at_most_s
    elif isinstance(change, UseEnvironment):
        priority = next(one.priority for one in cluster.queues if one.name == job.queue)
        cluster, queue = cluster.with_queue("moved", change.environment, priority=priority), "moved"
    else:
        view = cluster.environments[change.environment]
        if isinstance(change, EnableEnvironment):
            environment = replace(view.environment, switch=Switch.ENABLED)
        else:
            assert isinstance(change, RaiseMaxVcpus)
            environment = replace(view.environment, max_vcpus=change.at_least)
        views = {**cluster.environments, change.environment: replace(view, environment=environment)}
        return replace(cluster, environments=views)
    moved = Job(queue, Shape(need, timeout_s), job.waiting)
    return replace(cluster, jobs=tuple(moved if one is job else one for one in cluster.jobs))


@some
@given(clusters)
def test_the_memory_advised_is_the_most_that_would_do(cluster):
    advised = [
        (job, change)
        for job in cluster.jobs
        for change in explained(cluster, job).counterfactuals
        if isinstance(change, AskLess) and change.resource is Resource.MEMORY
    ]
    for job, change in advised:
        too_much = applied(cluster, job, replace(change, at_most=change.at_most + 1))
        decided = plan(too_much.snapshot())
        assert job.waiting.job_id not in {one.job_id for one in decided.placements}


# --------------------------------------------------------------------------------------------- dispatch order


@many
@given(clusters, st.integers(0, 10))
def test_dispatch_order_and_jobs_ahead_agree(cluster, limit):
    for view in cluster.snapshot().queues:
        ordered = dispatch_order(view, limit)
        every = dispatch_order(view, 1_000)
        assert ordered == every[:limit]
        assert [entry.order for _, entry in every] == sorted(entry.order for _, entry in every)
        ahead = 0
        for _, entry in every:
            assert jobs_ahead(view, entry) == ahead
            ahead += entry.count
