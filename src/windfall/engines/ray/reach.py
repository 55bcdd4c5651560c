"""Reaches the agent of a Ray node through the door of that node, as a host is reached by ssh.

A door runs a shell command and carries its bytes, which is all that engines/hosts asks of ssh: Windfall is installed,
the agent is started and its socket is relayed by the same requests. The agent is not a child of Ray's: what starts it
ends at once, and the agent has a session of its own. Decides where on a node things are, and which node has an
address: one that joins again has another id and is the same machine. Must not know instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import Stream
from windfall.agent.settings import AgentSettings
from windfall.engines.hosts.destinations import SshDestination
from windfall.engines.hosts.reach import HostCalls, HostPlace, SshReach, agent_settings
from windfall.engines.ray.bridge_client import RayBridge

#: The id of the node that has an address now; None where the cluster has none.
NodeOf = Callable[[str], str | None]


class DoorShell:
    """Commands on nodes, by their addresses; as engines/hosts/ssh.py has them for hosts."""

    def __init__(self, bridge: RayBridge, node_of: NodeOf) -> None:
        self._bridge = bridge
        self._node_of = node_of

    async def ask(
        self, destination: SshDestination, remote: str, parts: Iterable[bytes], within_s: float
    ) -> bytes:
        """Run a command with these parts as its input and return what it prints; raises AgentUnreachable."""
        return await self._bridge.ask(self._node(destination), remote, parts, within_s)

    async def stream(self, destination: SshDestination, remote: str, greeting: bytes) -> Stream:
        """Open a stream to a command that first prints a line, the greeting; raises AgentUnreachable."""
        return await self._bridge.stream(self._node(destination), remote, greeting)

    def _node(self, destination: SshDestination) -> str:
        node = self._node_of(destination.host)
        if node is None:
            raise AgentUnreachable(f"the Ray cluster has no live node at {destination.host}")
        return node


class DoorReach:
    """An agent on one Ray node."""

    def __init__(self, shell: DoorShell, address: str, daemon: str, wanted: AgentSettings) -> None:
        self._shell = shell
        self._destination = SshDestination(address)
        self._daemon = daemon
        self._wanted = wanted
        self._inner: SshReach | None = None

    @property
    def place(self) -> str:
        """The agent's directory, with the node's address; the address alone before the node has answered."""
        return self._destination.text if self._inner is None else self._inner.place

    @property
    def digest(self) -> str:
        """The digest of its settings, which are known once the node has said where its directories are."""
        return "" if self._inner is None else self._inner.digest

    async def bring_up(self) -> None:
        """Make sure that an agent serves there, installing what it needs."""
        if self._inner is None:
            seen = await HostCalls(self._shell, self._destination).look()
            root = f"{seen.base}/agents/{self._daemon}/{self._destination.host}"
            place = HostPlace(self._destination, seen.python, seen.base, root)
            settings = msgspec.structs.replace(agent_settings(root, self._wanted), mirror=True)
            self._inner = SshReach(self._shell, place, settings)
        try:
            await self._inner.bring_up()
        except AgentUnreachable:
            self._inner = None  # Another machine may have the address by now.
            raise

    async def dial(self) -> Stream:
        """A stream to the agent's socket."""
        if self._inner is None:
            raise AgentUnreachable(f"{self._destination.text} has not been looked at yet")
        return await self._inner.dial()
