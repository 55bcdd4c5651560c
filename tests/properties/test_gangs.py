"""Multi-node jobs are never partial: not in any plan, and not at any moment of a life with crashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TestWorld, a_job
from tests.gang_builders import a_container, a_gang_definition, a_world_of_gangs
from tests.simulation.gangs import check_gangs
from tests.simulation.invariants import check_backlog, check_occupancy
from tests.unit.scheduling.builders import MINUTE, Cluster, a_shape, a_snapshot, an_offer
from windfall.control import events
from windfall.jobs.definitions import NodeRange
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId
from windfall.jobs.resources import NOTHING
from windfall.scheduling.gangs import needs_of
from windfall.scheduling.planning import plan
from windfall.scheduling.snapshot import Gang, SchedulingClass

seeds = st.integers(0, 2**32 - 1)


def a_random_cluster(seed: int) -> Cluster:
    """Two environments with instances in use, and gangs among single jobs."""
    rng = Random(seed)
    cluster = a_snapshot()
    for name in ("e1", "e2"):
        offers = tuple(
            rng.sample((an_offer("m.large", 8), an_offer("g.large", 8, gpus=2)), rng.randint(0, 2))
        )
        cluster = cluster.with_environment(name, offers=offers, max_vcpus=rng.choice((8, 24, 64)))
    for number in range(rng.randint(0, 5)):
        name = f"i{number}"
        cluster = cluster.with_instance(name, rng.choice(("e1", "e2")), gpus=rng.choice((0, 2)))
        if rng.random() < 0.6:
            cluster = cluster.with_running(name, rng.randint(1, 8), ends_in_s=rng.choice((None, 100)))
    cluster = cluster.with_queue("q", *rng.choice((("e1",), ("e2", "e1"))))
    for number in range(rng.randint(1, 6)):
        waited = rng.choice((0, 2 * MINUTE))
        if rng.random() < 0.4:
            cluster = cluster.with_waiting(f"s{number}", rng.randint(1, 4), queue="q", waited_ms=waited)
            continue
        parts = tuple(
            dict.fromkeys(
                a_shape(rng.choice((1, 2, 4)), gpus=rng.choice((0, 0, 1))) for _ in range(rng.randint(1, 2))
            )
        )
        gang = Gang(tuple((shape, rng.randint(1, 3)) for shape in parts))
        main = parts[0].resources
        cluster = cluster.with_waiting(
            f"g{number}",
            main.vcpus,
            main.memory_mib,
            main.gpus,
            queue="q",
            waited_ms=waited,
            scheduling_class=SchedulingClass(gang=gang),
        )
    return cluster


@given(seeds)
@settings(max_examples=300)
def test_every_plan_places_all_nodes_of_a_gang_or_none(seed: int) -> None:
    cluster = a_random_cluster(seed)
    decided = plan(cluster.snapshot())
    instances = {one.id: one for one in cluster.instances}
    used = {one.id: one.used for one in cluster.instances}
    by_job = defaultdict(list)
    for placement in decided.placements:
        by_job[placement.job_id].append(placement)
    for job_id, placements in by_job.items():
        gang = cluster.job(job_id).scheduling_class.gang
        if gang is None:
            used[placements[0].instance] += cluster.job(job_id).shape.resources
            continue
        assert [one.node for one in placements] == list(range(gang.size))
        assert len({instances[one.instance].environment for one in placements}) == 1
        shapes = [shape for shape, count in gang.parts for _ in range(count)]
        for shape, placement in zip(shapes, placements, strict=True):
            used[placement.instance] += shape.resources
    for name, amount in used.items():
        assert amount.fits_in(instances[name].total), name
    devices = Counter(gpu for one in decided.placements for gpu in one.gpu_ids)
    assert not devices or max(devices.values()) == 1


@given(seeds)
@settings(max_examples=200)
def test_what_is_launched_for_a_gang_holds_all_of_it(seed: int) -> None:
    """With no other job about: either nothing is launched, or with it the whole gang has room."""
    rng = Random(seed)
    size, vcpus = rng.randint(1, 9), rng.choice((2, 4, 8))
    cluster = a_snapshot().with_environment(
        offers=(an_offer("m.large", 8, available=rng.choice((None, 1, 2, 3))),),
        max_vcpus=rng.choice((8, 16, 32)),
    )
    gang = Gang(((a_shape(vcpus), size),))
    decided = plan(cluster.with_waiting("a", vcpus, scheduling_class=SchedulingClass(gang=gang)).snapshot())
    room = sum((one.offer.resources for one in decided.launches), NOTHING)
    assert not decided.launches or needs_of(gang).fits_in(room)


def an_event(world: TestWorld, rng: Random) -> None:
    """Something happens to a job, or to the daemon."""
    live = [job for job in world.state.attempts.values() if job.attempt is not None]
    choice = rng.random()
    if choice < 0.15:
        job = a_job(f"g{len(world.store.jobs)}", definition="gang").retried(rng.choice((1, 3)))
        if rng.random() < 0.5:
            job = job.tagged(replace_lost_nodes="true")
        world.submits(job)
    elif choice < 0.25:
        world.restarted()
        world.connected(running=tuple(job.id for job in live if job.state == "RUNNING"))
    elif choice < 0.3:
        world.later(rng.choice((1_000, 40_000)))
    elif not live:
        return
    else:
        _to_a_job(world, rng, rng.choice(live).id)


def _to_a_job(world: TestWorld, rng: Random, job_id: JobId) -> None:
    gang = JobId(job_id.partition("#")[0])
    job = world.state.jobs[job_id]
    choice = rng.random()
    main = world.state.jobs[gang].attempts[-1]
    if choice < 0.55 and job.state == "STARTING" and (job_id == gang or main.started_at is not None):
        world.starts(job_id)
    elif choice < 0.75:
        world.exits(job_id, rng.choice((0, 0, 1, 143)))
    elif choice < 0.83:
        world.happens(events.AttemptLost(world.token(job_id), world.now))
    elif choice < 0.91:
        world.happens(events.InterruptJob(job_id, rng.choice((0, 30))))
    else:
        try:
            world.happens(events.TerminateJob(job_id, "enough"))
        except Rejected:
            assert "#" in job_id


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_a_gang_is_whole_at_every_moment_whatever_happens_and_wherever_the_daemon_dies(seed: int) -> None:
    rng = Random(seed)
    ranges = (NodeRange(0, None, a_container()), NodeRange(1, 1, a_container(vcpus=2)))
    definition = a_gang_definition("gang", 3, rng.randrange(3), *ranges, timeout_s=60)
    world = a_world_of_gangs(definition, vcpus=rng.choice((4, 6, 9)))
    for _ in range(60):
        an_event(world, rng)
        for state in (world.state, world.restarted().state):
            check_gangs(state)
            check_occupancy(state)
            check_backlog(state)
    for job in world.store.jobs.values():
        ended_together = job.finished == world.store.jobs[job.parent or job.id].finished
        assert ended_together, job.story()
