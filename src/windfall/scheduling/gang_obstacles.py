"""What stands between a multi-node job and one environment, for good or just now: how many of its nodes find a place.

Uses the same fit that places its nodes, so that explain cannot contradict plan. Codes of reasons are for programs and
do not change; texts may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from windfall.capacity.machines import InstanceState
from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.assign import Assignment
from windfall.scheduling.fit import least
from windfall.scheduling.gangs import can_come, needs_of, put_back, seat, seat_all
from windfall.scheduling.launchable import Bin, Pool, own_type, pack
from windfall.scheduling.obstacles import lasting_obstacle, passing_obstacles
from windfall.scheduling.reasons import LaunchesNext, Reason
from windfall.scheduling.snapshot import Gang, Snapshot
from windfall.scheduling.wording import number


@dataclass(frozen=True, slots=True)
class GangIncomplete:
    """Some of its nodes find no place now."""

    code: ClassVar[str] = "GANG_INCOMPLETE"
    environment: EnvironmentName
    #: How many nodes would have a place now, and how many there are.
    fitting: int
    size: int

    def text(self) -> str:
        return (
            f"{self.fitting} of its {self.size} nodes find a place in {self.environment} now, which leaves none for the"
            " next one; they start all together or not at all"
        )


@dataclass(frozen=True, slots=True)
class GangTooLarge:
    """An environment will never have places for all nodes at once."""

    code: ClassVar[str] = "GANG_TOO_LARGE"
    environment: EnvironmentName
    fitting: int
    size: int

    def text(self) -> str:
        return (
            f"{self.environment} has places for {self.fitting} of its {self.size} nodes if nothing else runs there,"
            " and they start all together or not at all"
        )


@dataclass(frozen=True, slots=True)
class GangAboveMaxVcpus:
    """All nodes together need more vCPUs than an environment may have."""

    code: ClassVar[str] = "GANG_ABOVE_MAX_VCPUS"
    environment: EnvironmentName
    needed: float
    max_vcpus: float

    def text(self) -> str:
        return (
            f"all its nodes together ask {number(self.needed)} vCPUs, compute environment {self.environment} may have"
            f" {number(self.max_vcpus)} (maxvCpus)"
        )


def fits_together(assignment: Assignment, names: tuple[EnvironmentName, ...], gang: Gang) -> bool:
    """Whether all nodes have a place now."""
    seats = seat_all(assignment.floor, names, gang)
    put_back(seats, assignment.floor.now)
    return bool(seats)


def lasting_gang_obstacle(snapshot: Snapshot, name: EnvironmentName, gang: Gang) -> Reason | None:
    """Why an environment will never take such a job as things are; None if it would."""
    for shape, _ in gang.parts:
        reason = lasting_obstacle(snapshot, name, shape)
        if reason is not None:
            return reason
    view = snapshot.environments[name]
    needed, most = needs_of(gang).vcpus, view.environment.max_vcpus
    if needed > most:
        return GangAboveMaxVcpus(name, needed, most)
    if view.trouble is not None:
        return None  # What its engine will offer later is unknown.
    bins = list(_bins(snapshot, name))
    without = sum(pack(bins, shape, count) for shape, count in gang.parts)
    return GangTooLarge(name, gang.size - without, gang.size) if without else None


def _bins(snapshot: Snapshot, name: EnvironmentName) -> Iterator[Bin]:
    """All instances that an environment has and could have, as if nothing ran there."""
    view = snapshot.environments[name]
    pool = Pool(view, snapshot.machines)
    for instance in snapshot.instances:
        if instance.environment != name or instance.state is InstanceState.TERMINATING:
            continue
        machine = snapshot.machines.get(instance.machine) if instance.machine is not None else None
        if machine is not None:
            total, gpus = least(instance.total, machine.total), machine.devices.devices
            yield Bin(total, 1, instance.own_type, gpus, instance.lacks)
        else:
            offer = next((offer for offer in view.offers if offer.type == instance.type), None)
            gpus = () if offer is None else pool.gpus_of(offer)
            yield Bin(instance.total, 1, instance.own_type, gpus, instance.lacks)
    for offer in view.offers:
        most = int(view.environment.max_vcpus // offer.resources.vcpus) if offer.resources.vcpus > 0 else 1
        count = most if offer.available is None else min(most, offer.available)
        yield Bin(offer.resources, count, own_type(offer), pool.gpus_of(offer), offer.lacks)


def passing_gang_obstacles(assignment: Assignment, name: EnvironmentName, gang: Gang) -> Iterator[Reason]:
    """Why an environment that accepts such jobs has no places for all nodes at this job's turn."""
    floor = assignment.floor
    seats, standees = seat(floor.rooms.get(name, ()), gang, floor.now)
    yield GangIncomplete(name, len(seats), gang.size)
    comes = can_come(assignment.pools[name], standees)
    for shape, _ in standees[:1]:
        # With its own nodes in their places: the next one lacks what they leave.
        reasons = list(passing_obstacles(assignment, name, shape))
        yield from (reason for reason in reasons if comes or reason.code != LaunchesNext.code)
    put_back(seats, floor.now)
