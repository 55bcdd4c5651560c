"""What is launched for the jobs that found no place, and which idle instances are terminated.

Never launches beyond an environment's maxvCpus nor for jobs that launching instances will take, and never
goes below minvCpus. Works on what assign.py has left.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.capacity.environments import Provisioning, Switch
from windfall.capacity.machines import InstanceState
from windfall.jobs.ids import InstanceId
from windfall.jobs.resources import NOTHING
from windfall.scheduling.assign import Assignment, Blocked
from windfall.scheduling.gangs import launch_all
from windfall.scheduling.launchable import Pool
from windfall.scheduling.precedence import bring
from windfall.scheduling.snapshot import Gang, InstanceView, Launch


def launches(assignment: Assignment) -> tuple[Launch, ...]:
    """Instances for what waits, most urgent first, and then what minvCpus still lacks."""
    launched: list[Launch] = []
    for left in assignment.blocked:
        if left.barred_by is None:
            launched += launch_for(assignment, left)[0]
    for pool in assignment.pools.values():
        launched += _for_minimum(pool)
    return tuple(launched)


def launch_for(assignment: Assignment, left: Blocked) -> tuple[list[Launch], int]:
    """Enough instances for these jobs, after launching ones are counted; and how many jobs get none."""
    allowed = left.count if left.launchable is None else min(left.count, left.launchable)
    shape, jobs = left.shape, max(0, allowed - left.claimed)
    if left.scheduling_class.gang is not None:
        return _launch_gangs(assignment, left, left.scheduling_class.gang, jobs)
    return bring((assignment.pools[name] for name in left.environments), shape, jobs)


def _launch_gangs(assignment: Assignment, left: Blocked, gang: Gang, jobs: int) -> tuple[list[Launch], int]:
    """The same for multi-node jobs, one after the other: for all nodes of one, or for none."""
    launched: list[Launch] = []
    for served in range(jobs):
        more = launch_all(assignment.floor, assignment.pools, left.environments, gang, left.head.job_id)
        if more is None:
            return launched, jobs - served
        launched += more
    return launched, 0


def _for_minimum(pool: Pool) -> Iterator[Launch]:
    """What keeps an enabled environment at its minvCpus."""
    environment = pool.view.environment
    if environment.switch is not Switch.ENABLED:
        return
    for index in pool.order:
        offer = pool.view.offers[index]
        missing = environment.min_vcpus - pool.lasting_vcpus
        if missing <= 0:
            return
        if offer.resources.vcpus <= 0:
            continue
        count = pool.launchable(index, int(-(-missing // offer.resources.vcpus)))
        if count:
            pool.launch(index, count)
            yield from (Launch(environment.name, offer) for _ in range(count))


def terminations(assignment: Assignment) -> tuple[InstanceId, ...]:
    """Instances idle for too long, or idle at all in an environment that is disabled or deleted."""
    snapshot = assignment.snapshot
    needed = {placement.instance for placement in assignment.placements}
    needed.update(reservation.instance for reservation in assignment.reservations)
    needed.update(place.room.view.id for claim in assignment.claims.all() for place in claim.places)
    idle = [
        (instance.idle_since, position, instance)
        for position, instance in enumerate(snapshot.instances)
        if instance.state is InstanceState.READY
        and instance.idle_since is not None
        and instance.used == NOTHING
        and instance.id not in needed
    ]
    # The longest idle goes first, so that what is kept for minvCpus is what was used last.
    ordered = sorted(idle, key=lambda item: item[:2])
    return tuple(instance.id for since, _, instance in ordered if _may_go(assignment, instance, since))


def _may_go(assignment: Assignment, instance: InstanceView, idle_since: int) -> bool:
    """Whether an idle instance is no longer needed; removes it from its pool if so."""
    snapshot = assignment.snapshot
    pool = assignment.pools.get(instance.environment)
    if pool is None:
        return True
    environment = pool.view.environment
    if environment.provisioning is Provisioning.UNMANAGED:
        return False
    if environment.switch is Switch.ENABLED:
        if snapshot.now - idle_since < snapshot.rules.idle_after_ms:
            return False
        if pool.lasting_vcpus - instance.total.vcpus < environment.min_vcpus:
            return False
        if _is_awaited(assignment, instance):
            return False
    pool.lasting_vcpus -= instance.total.vcpus
    return True


def _is_awaited(assignment: Assignment, instance: InstanceView) -> bool:
    """Whether a job waits for room on the instance's machine, which other environments fill at the moment.

    Such an instance would have to be launched again at once. An instance that has its machine to itself is
    free: a multi-node job that still waits lacks other instances, and those may come only if this one is
    terminated.
    """
    room = assignment.floor.room(instance.id)
    return room is not None and any(
        instance.environment in left.environments
        and (instance.is_share or left.scheduling_class.gang is None)
        and room.could_ever_hold(left.shape)
        for left in assignment.blocked
    )
