"""An agent of this machine that is reached through the door of a Ray node: the stream is Ray's, the agent is ours.

Nothing is installed, so that agents may have directories of a test; the reach of a daemon installs (test_ray_engine).
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys

from tests.ray_cluster import RayCluster
from windfall.agent import relay
from windfall.agent.reach import Stream, UnixReach
from windfall.agent.settings import AgentSettings
from windfall.engines.ray.bridge_client import BridgeSettings, RayBridge
from windfall.engines.ray.lines import ClusterLine, NodesSeen

NODE = "127.0.0.2"


class NodeBridge:
    """A bridge to a cluster, and the one node of it that takes work."""

    def __init__(self, cluster: RayCluster, daemon: str) -> None:
        self.bridge = RayBridge(BridgeSettings(cluster.command, cluster.python, daemon=daemon), self._hear)
        self._node: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self.bridge.run())

    def _hear(self, line: ClusterLine) -> None:
        if isinstance(line, NodesSeen) and not self._node.done():
            for node in line.nodes:
                if node.ip == NODE:
                    self._node.set_result(node.id)

    async def node(self) -> str:
        """The node's id, once the cluster has said it."""
        return await asyncio.shield(self._node)

    async def close(self) -> None:
        """End the bridge."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class RelayedReach:
    """An agent behind the door of a node."""

    def __init__(self, settings: AgentSettings, bridge: NodeBridge) -> None:
        self._inner, self._bridge = UnixReach(settings), bridge
        self._directory = settings.directory
        self.place, self.digest = self._inner.place, self._inner.digest

    async def bring_up(self) -> None:
        """Make sure that the agent serves."""
        await self._inner.bring_up()

    async def dial(self) -> Stream:
        """A stream through the door."""
        node = await self._bridge.node()
        command = shlex.join([sys.executable, "-I", "-S", relay.__file__, self._directory])
        return await self._bridge.bridge.stream(node, f"exec {command}", relay.GREETING)
