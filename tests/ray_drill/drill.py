"""Plays rounds of misfortune against a real daemon and a real Ray cluster: a head that keeps its memory, and nodes.

The jobs and the judge are those of the drill over hosts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import ClassVar

from tests.hosts_drill.drill import HOSTS, HostsDrill
from tests.hosts_drill.script import Blow, draw
from tests.ray_scene import HEAD, RayScene, ray_scene

NODES = range(1, HOSTS)
#: A raylet that is started again needs some seconds until its node is reached.
LOST_AFTER_S = 45
#: What is done, and for how many seconds at least and at most until it is undone.
BLOWS = {
    "kill agent": (0.0, 0.0),
    "kill daemon": (0.0, 3.0),
    "kill bridge": (0.0, 0.0),
    "kill raylet": (0.0, 2.0),
    "kill head": (0.0, 3.0),
    "reboot": (0.0, 1.0),
    "kill host": (LOST_AFTER_S + 4.0, LOST_AFTER_S + 8.0),
    "short cut": (2.0, 6.0),
    "drain": (4.0, 10.0),
}
#: Longer than any job of a round takes: those that do not listen end in peace.
DRAIN_S = 120


class RayDrill(HostsDrill):
    """A daemon with a Ray cluster, for all rounds."""

    engine = "ray"
    needs: ClassVar[dict[str, str]] = {"VCPU": "1", "MEMORY": "256"}
    losing: ClassVar[set[str]] = {"reboot", "kill host"}
    scene: RayScene

    def _set_up(self, opening: ExitStack) -> None:
        # The default engine stays the local one: an environment names Ray by its tag.
        self.scene = opening.enter_context(ray_scene(self._place, HOSTS, see=self.SEEN))
        self.hosts, self.running = self.scene.hosts, self.scene.daemon
        self.running.options = (*self.running.options, "--job-user", "root", *self._storage())
        self.running.extra_environment["WINDFALL_LOST_AFTER_S"] = str(LOST_AFTER_S)
        self.scene.start_head(durable=True)
        for node in NODES:
            self.scene.start_node(node)
        self.running.up()

    def blows(self, seed: int) -> list[Blow]:
        """What happens in a round; cuts and kills of hosts are those of nodes."""
        return draw(seed, NODES, BLOWS)

    def _acts(self, blow: Blow) -> tuple[Callable[[], None], Callable[[], None]]:
        node = blow.host
        if blow.what == "kill bridge":
            return self._kill_bridge, lambda: None
        if blow.what == "kill raylet":
            return lambda: self.scene.kill_ray(node), lambda: self._join(node)
        if blow.what == "kill head":
            return lambda: self.scene.kill_ray(HEAD), self._head_up
        if blow.what == "drain":
            return lambda: self._begin_drain(node), lambda: self._rejoin(node)
        return super()._acts(blow)

    def _kill_bridge(self) -> None:
        """The far end; the near one is the daemon's ssh."""
        for pid, line in self.hosts.commands(HEAD).items():
            if "class Bridge" in line:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _head_up(self) -> None:
        if not self.scene.has_ray(HEAD):
            self.scene.restart_head()

    def _join(self, node: int) -> None:
        if self.hosts.pids(node) and not self.scene.has_ray(node):
            self._head_up()
            self.scene.start_node(node)

    def _begin_drain(self, node: int) -> None:
        # A node or a head that another blow has taken drains nothing.
        if self.scene.has_ray(HEAD) and self.scene.has_ray(node):
            self.scene.drain_node(node, DRAIN_S)

    def _rejoin(self, node: int) -> None:
        """A node that was drained stays so: another one takes its place."""
        if self.hosts.pids(node):
            self.scene.kill_ray(node)
            self._join(node)

    def _boot(self, host: int) -> None:
        super()._boot(host)
        self._join(host)

    def _drain(self, host: int, *, resume: bool) -> None:
        """Whatever became of a node in a round, it is there for the next."""
        if resume and host in NODES:
            self._join(host)

    def _is_quiet(self) -> bool:
        machines = [it for it in self._client.own("Status")["machines"] if it["engine"] == self.engine]
        idle = all(it["closed"] is None and it["usedVcpus"] == 0 for it in machines)
        return idle and len(machines) == len(NODES)
