"""What holds when multi-node jobs take places back, or have theirs taken: over many machines, and over random lives.

Plans are checked by letting those leave who were asked to, and planning again; lives after every round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.quota_lives import GPUS, QUEUE, Life
from tests.properties.test_taking_back import after_leaving, applied, releases_of
from tests.unit.control.quota_worlds import a_share
from tests.unit.scheduling.builders import Cluster, a_shape, a_snapshot
from windfall.capacity.environments import Provisioning
from windfall.capacity.policies import SharingStrategy
from windfall.control.backlog import scheduling_class_of, shape_of
from windfall.jobs.ids import QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.states import PLACED
from windfall.scheduling.planning import plan
from windfall.scheduling.quota_gate import amounts_of
from windfall.scheduling.snapshot import Gang, SchedulingClass, Shape

seeds = st.integers(0, 2**32)


def a_lent_fleet(seed: int, eviction_sets: int = 9) -> Cluster:
    """Machines that are shared by an environment on demand and a spot one, which lends to single jobs and to gangs."""
    rng = Random(seed)
    cluster = a_snapshot().with_environment("demand").with_environment("spot", kind=Provisioning.SPOT)
    cluster = cluster.with_queue("demand", "demand").with_queue("spot", "spot")
    machines = [f"m{number}" for number in range(rng.randint(1, 4))]
    for machine in machines:
        gpus = rng.choice((0, 2, 4))
        cluster = cluster.with_machine(machine, 8, 16_000, gpus)
        for name in ("demand", "spot"):
            size = (8, 16_000, gpus)
            cluster = cluster.with_instance(
                f"i-{name}-{machine}", name, *size, machine=machine, is_share=True
            )
    for number in range(rng.randint(1, eviction_sets)):
        cluster = _with_party(rng, cluster, f"r{number}", machines)
    parts = [(a_shape(rng.choice((1, 2, 4)), gpus=rng.choice((0, 0, 1))), rng.randint(1, 4))]
    if rng.random() < 0.3:
        parts.append((a_shape(6, 2_000), 1))
    gang, main = Gang(tuple(parts)), parts[0][0].resources
    return cluster.with_waiting(
        "g",
        main.vcpus,
        main.memory_mib,
        main.gpus,
        queue="demand",
        scheduling_class=SchedulingClass(gang=gang),
    )


def _with_party(rng: Random, cluster: Cluster, name: str, machines: list[str]) -> Cluster:
    """A job on demand, a reclaimable one, or a reclaimable gang some of whose nodes may leave alone."""
    nodes, loss = rng.choice((1, 1, 2, 3)), float(rng.choice((1, 5, 30, 200)))
    on_demand, replaced = rng.random() < 0.2, rng.random() < 0.3
    need = Resources(rng.choice((1, 2, 4)), 1_000, rng.choice((0, 0, 1)))
    for number in range(1 if on_demand else nodes):
        where = rng.choice(machines)
        machine = cluster.machines[where]
        if not need.fits_in(machine.total - machine.used):
            return cluster
        cluster = cluster.with_running(
            f"i-{'demand' if on_demand else 'spot'}-{where}",
            *(need.vcpus, need.memory_mib, need.gpus),
            ends_in_s=rng.choice((None, None, None, 60)) if nodes == 1 else None,
            job=f"{name}.{number}",
            queue="spot",
            loss=None if on_demand else loss,
            gang=name if nodes > 1 and not on_demand else None,
            alone=replaced and number > 0,
        )
    return cluster


def with_all_others(cluster: Cluster, token: str) -> frozenset[str]:
    """Who leaves when this one is asked to."""
    known = releases_of(cluster)
    asked = known[token][1]
    if asked.alone:
        return frozenset({token})
    return frozenset(other for other, (_, one) in known.items() if one.gang == asked.gang)


def eviction_sets_of(cluster: Cluster) -> set[frozenset[str]]:
    """All who could be asked, with those who leave with them."""
    latest = cluster.now + cluster.rules.notice_ms
    lent = [
        token
        for token, (_, one) in releases_of(cluster).items()
        if one.reclaimable and (one.at is None or one.at > latest)
    ]
    return {with_all_others(cluster, token) for token in lent}


def loss_of(cluster: Cluster, tokens: Iterable[str]) -> float:
    known = releases_of(cluster)
    return sum(known[token][1].loss for token in tokens)


def ending(cluster: Cluster) -> set[str]:
    """Who ends before a notice that is given now is over."""
    latest = cluster.now + cluster.rules.notice_ms
    return {
        token for token, (_, one) in releases_of(cluster).items() if one.at is not None and one.at <= latest
    }


def placed_when_gone(cluster: Cluster, gone: Iterable[str]) -> bool:
    """Whether the gang starts when these have left, and those who end before a notice is over."""
    then = plan(after_leaving(cluster, {*gone, *ending(cluster)}).snapshot())
    nodes = [one.node for one in then.placements if one.job_id == "g"]
    gang = cluster.job("g").scheduling_class.gang
    assert gang is not None
    assert nodes in ([], list(range(gang.size)))
    return bool(nodes)


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_a_gang_asks_each_party_once_all_of_them_are_needed_and_then_it_starts(seed):
    cluster = a_lent_fleet(seed)
    decided = plan(cluster.snapshot())
    asked = [with_all_others(cluster, str(one.token)) for one in decided.reclaims]
    assert len(set(asked)) == len(asked)
    assert set(asked) <= eviction_sets_of(cluster)
    if not asked:
        return
    assert not decided.placements
    gang = cluster.job("g").scheduling_class.gang
    assert gang is not None
    assert placed_when_gone(cluster, frozenset().union(*asked))
    for one in asked:
        others = [other for other in asked if other is not one]
        # Where nodes differ, it may be that with fewer gone they are tried in a luckier order.
        assert len(gang.parts) > 1 or not placed_when_gone(cluster, frozenset().union(*others))


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_few_who_could_be_asked_are_asked_at_the_least_loss_there_is(seed):
    cluster = a_lent_fleet(seed, eviction_sets=5)
    eviction_sets = eviction_sets_of(cluster)
    if len(eviction_sets) > 6 or placed_when_gone(cluster, ()):
        return
    enough = [
        loss_of(cluster, tokens)
        for count in range(1, len(eviction_sets) + 1)
        for chosen in combinations(eviction_sets, count)
        if placed_when_gone(cluster, tokens := frozenset().union(*chosen))
    ]
    decided = plan(cluster.snapshot())
    asked = frozenset().union(*(with_all_others(cluster, str(one.token)) for one in decided.reclaims))
    assert loss_of(cluster, asked) == min(enough, default=0.0)
    assert bool(asked) == bool(enough)


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_nobody_else_is_asked_and_nobody_gets_its_places_while_they_leave(seed):
    cluster = a_lent_fleet(seed)
    decided = plan(cluster.snapshot())
    if not decided.reclaims:
        return
    rng = Random(seed)
    leaving = frozenset().union(*(with_all_others(cluster, str(one.token)) for one in decided.reclaims))
    cluster = told(cluster, leaving).with_claim("g", str(cluster.instances[0].machine))
    for number in range(4):
        cluster = cluster.with_waiting(
            f"late{number}", rng.choice((1, 2, 4)), gpus=rng.choice((0, 1)), queue="demand", order=-number
        )
    for _ in range(30):
        decided = plan(cluster.snapshot())
        assert "g" not in {one.for_job for one in decided.reclaims}
        if "g" in {one.job_id for one in decided.placements}:
            return
        # Those before it in the order may ask others in turn, and start in what is free before it is.
        asked = frozenset().union(*(with_all_others(cluster, str(one.token)) for one in decided.reclaims))
        leaving |= asked
        cluster = told(applied(cluster, decided), asked)
        gone = set(sorted(leaving)[: rng.choice((1, 1, 9))]) or ending(cluster)
        leaving -= gone
        cluster = after_leaving(cluster, gone)
    pytest.fail("others left for it, and it never started")


def told(cluster: Cluster, tokens: Iterable[str]) -> Cluster:
    """These have notice."""
    at = cluster.now + cluster.rules.notice_ms
    instances = [
        replace(
            instance,
            releases=tuple(
                replace(one, leaving=True, reclaimable=False, at=at) if one.token in tokens else one
                for one in instance.releases
            ),
        )
        for instance in cluster.instances
    ]
    return replace(cluster, instances=tuple(instances))


# ------------------------------------------------------------------------------------------------ quota shares


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_gangs_of_quota_shares_are_whole_within_limits_and_nobody_leaves_in_vain(seed):
    life = Life(seed, gangs=0.5).lives(40)
    life.all_leave()


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_same_holds_when_limits_change_meanwhile(seed):
    life = Life(seed, gangs=0.5, updates=True).lives(40)
    life.all_leave()


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_what_was_lent_returns_to_gangs_when_those_have_left_who_were_asked(seed):
    """With vCPUs for all: whatever a guest holds beyond its own is enough for what the owner may have."""
    rng = Random(seed)
    own = rng.randint(2, GPUS)
    shares = (
        a_share("a", SharingStrategy.LEND, GPU=own),
        a_share("b", SharingStrategy.LEND_AND_BORROW, GPU=GPUS - own),
    )
    life = Life(seed, *shares, gangs=0.5, vcpus=64, largest=2)
    for _ in range(8):
        life.submits("b")
    life.world.now += rng.choice((0, 60_000))
    before = set(life.world.state.jobs)
    for _ in range(rng.randint(1, 3)):
        life.submits_gang("a")
    life.all_leave()
    held, waiting = 0.0, []
    for job in life.world.state.jobs.values():
        if job.submission.share == "a" and job.id not in before and job.parent is None:
            needs = amounts_of(Waits(QUEUE, shape_of(job), scheduling_class_of(job)))["GPU"]
            if job.state in PLACED:
                held += needs
            else:
                waiting.append(needs)
    assert all(held + needs > own for needs in waiting), (held, waiting, own)


class Waits(NamedTuple):
    """A job that waits, as a gate sees it."""

    queue: QueueName
    shape: Shape
    scheduling_class: SchedulingClass


def test_the_random_lives_have_gangs_ask_and_be_asked():
    lives = [Life(seed, gangs=0.5).lives(40) for seed in range(12)]
    assert sum(life.seen["asked for"] for life in lives) > 2
    assert sum(life.seen["asked"] for life in lives) > 2
