"""Where attempts hold places, and which leave together: the nodes of a gang, unless lost ones are replaced.

Built once per plan, when first needed. Must not know which attempts may be asked to leave, nor for which job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from windfall.jobs.ids import AttemptToken, JobId
from windfall.scheduling.fit import Floor, Room
from windfall.scheduling.snapshot import Release


@dataclass(frozen=True, slots=True, eq=False)
class EvictionSet:
    """Attempts that leave together or not at all."""

    members: tuple[Release, ...]
    #: The cost of all of them leaving.
    loss: float

    @property
    def triggers(self) -> list[Release]:
        """The attempts that make all others leave too when they are asked."""
        return [member for member in self.members if not member.alone] or list(self.members)

    @property
    def share(self) -> str:
        """The quota share that all of them belong to."""
        return self.members[0].share or ""


def members_of(eviction_sets: Iterable[EvictionSet]) -> Iterator[Release]:
    """All attempts that leave with these, each once; one that can leave alone may be listed beside the others too."""
    seen: set[AttemptToken | None] = set()
    for eviction_set in eviction_sets:
        for member in eviction_set.members:
            if member.token not in seen:
                seen.add(member.token)
                yield member


@dataclass(slots=True)
class Holders:
    """All attempts that hold a place, where, and which leave together."""

    floor: Floor
    #: How long after now a notice is over.
    notice_ms: int
    #: The attempts that this plan has asked to leave.
    asked: set[AttemptToken | None] = field(default_factory=set)
    _where: dict[AttemptToken | None, Room] = field(default_factory=dict)
    _all: list[Release] | None = None
    _gangs: dict[JobId, list[Release]] = field(default_factory=dict)

    def everyone(self) -> list[Release]:
        """All of them."""
        if self._all is None:
            self._all = []
            for machine in self.floor.machines.values():
                for room in machine.rooms:
                    for release in room.view.releases:
                        self._all.append(release)
                        self._where[release.token] = room
                        if release.gang is not None:
                            self._gangs.setdefault(release.gang, []).append(release)
        return self._all

    def room_of(self, release: Release) -> Room:
        """The room that an attempt is in."""
        self.everyone()
        return self._where[release.token]

    def ends_soon(self, release: Release) -> bool:
        """Whether it gives its place back before a notice that is given now is over."""
        return release.leaving or (release.at is not None and release.at <= self.floor.now + self.notice_ms)

    def eviction_sets(self, releases: Iterable[Release]) -> list[EvictionSet]:
        """The attempts that could be asked now, each with those that leave with it; every set once.

        A set in which an attempt already leaves or ends is not a candidate.
        """
        sets, seen = [], set[JobId]()
        for release in releases:
            gang = None if release.alone else release.gang
            if gang is not None and gang in seen:
                continue
            members: tuple[Release, ...] = (release,)
            if gang is not None:
                seen.add(gang)
                self.everyone()
                others = (node for node in self._gangs.get(gang, ()) if node.token != release.token)
                members = (release, *others)
            if not any(member.token in self.asked or self.ends_soon(member) for member in members):
                sets.append(EvictionSet(members, sum(member.loss for member in members)))
        return sets
