"""Lets the engine of hosts follow the list of hosts: adds those that were listed, drains and resumes them.

Runs after each commit that changes the list, and once when this daemon begins to lead, so that the engine has what the
store has. Nothing waits for a host that is away: its link tries again. Must not know what runs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from windfall.capacity.hosts import Host
from windfall.control.instructions import FollowHosts
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.machines import Member
from windfall.engines.hosts.reach import SshReach

#: Makes the reach of a host.
MakeReach = Callable[[Host], SshReach]


class HostKeeper:
    """The hosts of one term of leading."""

    def __init__(
        self, engine: FleetEngine, listed: Callable[[], Mapping[str, Host]], make_reach: MakeReach
    ) -> None:
        self._engine = engine
        self._listed = listed
        self.make_reach = make_reach
        self._followed: dict[str, Host] = {}
        self._reaches: dict[str, SshReach] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, _: FollowHosts | None = None) -> None:
        """Let the engine have the hosts that are listed."""
        listed = dict(self._listed())
        for name in [name for name in self._followed if name not in listed]:
            # Its agent has been ended before, or was given up.
            task = asyncio.create_task(self.end(name))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for name, host in listed.items():
            before = self._followed.get(name)
            self._followed[name] = host
            if before is None or _place(before) != _place(host):
                self._reaches[name] = self.make_reach(host)
            if before is None or (_place(before), before.labels) != (_place(host), host.labels):
                self._engine.add(name, self._reaches[name], host.labels)
            if host.draining != (before is not None and before.draining):
                if host.draining:
                    self._engine.drain(name)
                else:
                    self._engine.resume(name)

    async def end(self, name: str) -> None:
        """End the agent of a host with all that runs there, and let the host go."""
        if self._followed.pop(name, None) is not None:
            self._reaches.pop(name, None)
            await self._engine.remove(name)

    def member(self, name: str) -> Member | None:
        """How a host stands; None if the engine does not have it."""
        return self._engine.member(name) if name in self._followed else None

    def trouble_of(self, name: str) -> str | None:
        """Why the agent of a host does not answer, for people; None while it does."""
        return self._engine.trouble_of(name) if name in self._followed else None


def _place(host: Host) -> tuple[str, ...]:
    """What decides how a host is reached, and how its agent is started."""
    return (host.destination, host.python, host.base, host.root, host.gpus, host.address or "")
