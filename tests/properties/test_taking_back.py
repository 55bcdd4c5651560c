"""What holds whenever places are taken back, and for every order in which types of instance are launched.

Plans are checked by letting those leave who were asked to, and planning again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scheduling.builders import MINUTE, Cluster, a_snapshot, an_offer
from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment, Provisioning
from windfall.capacity.occupancy import PartUse
from windfall.jobs.ids import AttemptToken, EnvironmentName
from windfall.jobs.resources import Resources
from windfall.scheduling.allocate import in_order, too_expensive
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import MachineView, Plan, Release
from windfall.scheduling.victims import Need, freed_by, victims

many = settings(max_examples=400)
most = settings(max_examples=1_000)


def a_crowded_cluster(seed: int) -> Cluster:
    """Machines that environments on demand share with spot ones, full of what can be taken back and what cannot."""
    rng = Random(seed)
    cluster = (
        a_snapshot()
        .with_environment("demand", max_vcpus=rng.choice([8, 64]))
        .with_environment("other")
        .with_environment("spot", kind=Provisioning.SPOT)
    )
    names = rng.sample(["demand", "other", "spot"], 3)
    cluster = cluster.with_queue("demand", "demand", priority=rng.choice([1, 5]))
    cluster = cluster.with_queue("spot", "spot", priority=rng.choice([1, 9]))
    cluster = cluster.with_queue("mixed", *names[: rng.randint(1, 3)], priority=rng.choice([1, 9]))
    for machine in ("m1", "m2")[: rng.randint(1, 2)]:
        gpus = rng.choice([0, 2, 4])
        cluster = cluster.with_machine(machine, 8, 16_000, gpus)
        for name in rng.sample(["demand", "other", "spot"], rng.choice([2, 3, 3])):
            own = rng.choice([8, 8, 4])
            cluster = cluster.with_instance(
                f"i-{name}-{machine}", name, own, 16_000, gpus, machine=machine, is_share=True
            )
    for _ in range(rng.randint(2, 9)):
        instance = rng.choice(cluster.instances)
        cluster = _with_attempt(rng, cluster, instance.id)
    for number in range(rng.randint(1, 6)):
        cluster = cluster.with_waiting(
            f"j{number}",
            rng.choice([1, 2, 4, 8]),
            rng.choice([500, 500, 6_000]),
            rng.choice([0, 0, 1, 2]),
            queue=rng.choice(["demand", "demand", "demand", "spot", "mixed"]),
            count=rng.choice([1, 1, 3]),
            waited_ms=rng.choice([0, 0, 2 * MINUTE]),
            timeout_s=rng.choice([None, None, 60]),
        )
    return cluster


def _with_attempt(rng: Random, cluster: Cluster, instance_id: str) -> Cluster:
    instance = next(one for one in cluster.instances if one.id == instance_id)
    machine = cluster.machines[str(instance.machine)]
    need = Resources(rng.choice([1, 2, 4]), rng.choice([500, 4_000]), rng.choice([0, 1, 1, 2]))
    if not need.fits_in(instance.total - instance.used) or not need.fits_in(machine.total - machine.used):
        return cluster
    lent = instance.environment == "spot"
    leaving = rng.random() < 0.15
    return cluster.with_running(
        instance.id,
        need.vcpus,
        need.memory_mib,
        need.gpus,
        ends_in_s=rng.choice([5, 90]) if leaving else rng.choice([None, None, None, 60, 600]),
        job=f"r{sum(len(one.releases) for one in cluster.instances)}",
        queue=rng.choice(["spot", "mixed"]),
        loss=rng.choice([1.0, 5.0, 30.0, 200.0]) if lent and not leaving else None,
        leaving=leaving,
    )


crowded = st.integers(0, 2**32).map(a_crowded_cluster)


def releases_of(cluster: Cluster) -> dict[str, tuple[str, Release]]:
    """Every attempt that has a name, and where it is."""
    return {
        str(release.token): (one.id, release)
        for one in cluster.instances
        for release in one.releases
        if release.token is not None
    }


def after_leaving(cluster: Cluster, gone: set[str]) -> Cluster:
    """The cluster when these attempts have left."""
    for token in gone:
        instance_id, release = releases_of(cluster)[token]
        amount = release.resources
        old = next(one for one in cluster.instances if one.id == instance_id)
        left = tuple(one for one in old.releases if one is not release)
        new = replace(old, used=old.used - amount, releases=left)
        machine = cluster.machines[str(old.machine)]
        machine = given_back_on(machine, release)
        cluster = replace(
            cluster,
            instances=tuple(new if one is old else one for one in cluster.instances),
            machines={**cluster.machines, machine.id: machine},
        )
    return cluster


def given_back_on(machine: MachineView, release: Release) -> MachineView:
    """A machine when an attempt has left it."""
    shared, free = dict(machine.shared_gpus), list(machine.free_gpus)
    for one in release.gpu_ids:
        part = shared.pop(one, None)
        if part is not None and part.sharers > 1:
            shared[one] = PartUse(part.used - release.resources.gpus, part.sharers - 1)
        elif one not in machine.devices.fenced:
            free.append(one)
    rank = machine.devices.rank
    free.sort(key=lambda one: rank.get(one, 0))
    used = machine.used - release.resources
    return replace(machine, used=used, free_gpus=tuple(free), shared_gpus=shared)


def applied(cluster: Cluster, decided: Plan) -> Cluster:
    """The cluster in the next round: what was placed runs, who was asked to leave is leaving."""
    asked = {one.token for one in decided.reclaims}
    for number, placement in enumerate(decided.placements):
        shape = cluster.job(placement.job_id).shape
        need = shape.resources
        cluster = cluster.with_running(
            placement.instance,
            need.vcpus,
            need.memory_mib,
            need.gpus,
            on=placement.gpu_ids,
            ends_in_s=shape.timeout_s,
            job=f"new{number}",
        )
        cluster = _one_less(cluster, placement.job_id)
    return replace(
        cluster,
        instances=tuple(
            replace(
                one,
                releases=tuple(
                    replace(release, leaving=True, reclaimable=False, at=cluster.now + 120_000)
                    if release.token in asked
                    else release
                    for release in one.releases
                ),
            )
            for one in cluster.instances
        ),
    )


def _one_less(cluster: Cluster, job_id: str) -> Cluster:
    jobs = []
    for job in cluster.jobs:
        if job.waiting.job_id == job_id:
            job = replace(job, waiting=replace(job.waiting, count=job.waiting.count - 1))
        jobs.append(job)
    return replace(cluster, jobs=tuple(jobs))


def claimed(cluster: Cluster, decided: Plan) -> Cluster:
    """The cluster with what the daemon remembers of who was asked to leave for whom."""
    machines = {one.id: str(one.machine) for one in cluster.instances}
    wanted: dict[tuple[str, str], int] = {}
    for one in decided.reclaims:
        key = (one.for_job, machines[one.instance])
        wanted[key] = wanted.get(key, 0) + 1
    for (job_id, machine), count in wanted.items():
        cluster = cluster.with_claim(job_id, machine, min(count, cluster.job(job_id).waiting.count))
    return cluster


@most
@given(crowded)
def test_only_reclaimable_attempts_are_asked_and_each_once_for_a_job_on_demand(cluster):
    decided = plan(cluster.snapshot())
    known = releases_of(cluster)
    instances = {one.id: one for one in cluster.instances}
    tokens = [one.token for one in decided.reclaims]
    assert len(set(tokens)) == len(tokens)
    for one in decided.reclaims:
        where, release = known[one.token]
        assert where == one.instance
        assert release.reclaimable
        job = cluster.job(one.for_job)
        assert release.queue != job.queue
        claims = [claim for claim in decided.claims if claim.job_id == one.for_job]
        assert claims
        kinds = {
            cluster.environments[instances[claim.instance].environment].environment.provisioning
            for claim in claims
        }
        assert kinds.isdisjoint(RECLAIMABLE)


def when_they_have_left(cluster: Cluster, decided: Plan) -> Plan:
    """The plan when all have left who were asked, and on their machines all who leave or end by then."""
    machines = {one.id: one.machine for one in cluster.instances}
    touched = {machines[one.instance] for one in decided.reclaims}
    later = claimed(applied(cluster, decided), decided)
    latest = cluster.now + 120_000
    gone = {
        token
        for token, (where, release) in releases_of(later).items()
        if machines[where] in touched and (release.leaving or (release.at or latest + 1) <= latest)
    }
    return plan(after_leaving(later, gone).snapshot())


@most
@given(crowded)
def test_nobody_leaves_in_vain(cluster):
    """As many jobs on demand start; not always the very same ones, because those before them come first."""
    decided = plan(cluster.snapshot())
    if not decided.reclaims:
        return
    lenders = {one.id for one in cluster.instances if one.environment == "spot"}
    then = when_they_have_left(cluster, decided)
    on_demand = [one for one in then.placements if one.instance not in lenders]
    assert len(on_demand) >= len({one.for_job for one in decided.reclaims})


@most
@given(crowded)
def test_a_job_that_waits_alone_gets_the_place_that_others_leave(cluster):
    first = replace(cluster, jobs=cluster.jobs[:1])
    decided = plan(first.snapshot())
    if decided.reclaims:
        then = when_they_have_left(first, decided)
        assert cluster.jobs[0].waiting.job_id in {one.job_id for one in then.placements}


@most
@given(crowded)
def test_nobody_else_is_asked_while_they_leave(cluster):
    decided = plan(cluster.snapshot())
    again = plan(claimed(applied(cluster, decided), decided).snapshot())
    asked = {one.for_job for one in decided.reclaims}
    count = {job.waiting.job_id: job.waiting.count for job in cluster.jobs}
    for one in again.reclaims:
        assert one.for_job not in asked or count[one.for_job] > 1


releases = st.lists(
    st.builds(
        lambda number, vcpus, gpus, loss: Release(
            Resources(vcpus, int(vcpus * 1_000), gpus),
            tuple(f"r{number}-{n}" for n in range(gpus)),
            None,
            AttemptToken(f"r{number}"),
            reclaimable=True,
            loss=loss,
        ),
        st.integers(0, 10**6),
        st.sampled_from([0.5, 1, 2, 4]),
        st.integers(0, 3),
        st.integers(0, 50).map(float),
    ),
    max_size=9,
)
needs = st.builds(
    Resources, st.sampled_from([0, 1, 2, 5]), st.sampled_from([0, 500, 3_000]), st.integers(0, 4)
)


@many
@given(releases, needs)
def test_enough_leave_and_none_of_them_could_have_stayed(candidates, missing):
    if missing.fits_in(Resources(0, 0, 0)):
        return
    chosen = victims(Need(missing), candidates)
    if chosen is None:
        assert not missing.fits_in(freed_by(tuple(candidates)))
        return
    assert missing.fits_in(freed_by(chosen))
    for one in chosen:
        assert not missing.fits_in(freed_by(tuple(other for other in chosen if other is not one)))


@many
@given(releases, needs)
def test_no_single_one_and_no_equal_ones_would_have_lost_less(candidates, missing):
    if missing.fits_in(Resources(0, 0, 0)):
        return
    chosen = victims(Need(missing), candidates)
    if chosen is None:
        return
    loss = sum(one.loss for one in chosen)
    assert all(one.loss >= loss for one in candidates if missing.fits_in(freed_by((one,))))
    if len({one.resources for one in candidates}) == 1:
        best = min(
            sum(one.loss for one in some)
            for count in range(1, len(candidates) + 1)
            for some in combinations(candidates, count)
            if missing.fits_in(freed_by(some))
        )
        assert loss == best


# ------------------------------------------------------------------------------------------------ allocation

STRATEGIES = (
    None,
    "BEST_FIT",
    "BEST_FIT_PROGRESSIVE",
    "BEST_FIT_PROGRESSIVE_ORDERED",
    "SPOT_CAPACITY_OPTIMIZED",
    "SPOT_PRICE_CAPACITY_OPTIMIZED",
    "SPOT_CAPACITY_OPTIMIZED_PRIORITIZED",
)
offers = st.lists(
    st.builds(
        lambda number, vcpus, usd, factor, safety: an_offer(
            f"t{number}",
            vcpus,
            usd_hour=usd,
            on_demand=None if usd is None else usd * factor,
            safety=safety,
        ),
        st.integers(0, 10**6),
        st.sampled_from([2, 4, 8, 64]),
        st.one_of(st.none(), st.sampled_from([0.1, 1.0, 2.5, 30.0])),
        st.sampled_from([1.0, 2.0, 4.0]),
        st.one_of(st.none(), st.integers(1, 5).map(float)),
    ),
    max_size=7,
    unique_by=lambda one: one.type,
).map(tuple)


@many
@given(offers, st.sampled_from(STRATEGIES), st.sampled_from([None, 40, 100]))
def test_every_offer_within_the_bid_has_its_turn_once(offered, allocation, bid):
    environment = ComputeEnvironment(
        EnvironmentName("e"), Provisioning.SPOT, 0, 100, allocation=allocation, bid_percent=bid
    )
    within = [n for n, one in enumerate(offered) if not too_expensive(environment, one)]
    assert sorted(in_order(environment, offered, within, None)) == within


@many
@given(offers, st.sampled_from(STRATEGIES))
def test_none_that_is_better_by_what_the_strategy_says_stands_behind(offered, allocation):
    environment = ComputeEnvironment(EnvironmentName("e"), Provisioning.SPOT, 0, 100, allocation=allocation)
    ordered = [offered[index] for index in in_order(environment, offered, range(len(offered)), None)]
    for before, after in combinations(ordered, 2):
        cheaper = _below(after.usd_hour, before.usd_hour)
        cheaper_vcpu = _below(_per_vcpu(after), _per_vcpu(before))
        safer = after.safety is not None and (before.safety is None or after.safety > before.safety)
        if allocation == "BEST_FIT":
            assert not cheaper
        elif allocation == "BEST_FIT_PROGRESSIVE":
            assert not cheaper_vcpu
        elif allocation == "SPOT_CAPACITY_OPTIMIZED":
            assert not safer
        elif allocation == "SPOT_PRICE_CAPACITY_OPTIMIZED":
            assert not (safer and cheaper_vcpu)
        else:
            assert offered.index(before) < offered.index(after)


def _per_vcpu(offer) -> float | None:
    return None if offer.usd_hour is None else offer.usd_hour / offer.resources.vcpus


def _below(one: float | None, other: float | None) -> bool:
    return one is not None and (other is None or one < other)
