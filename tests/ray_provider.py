"""A node provider for Ray's autoscaler whose machines are hosts in a box, reached by ssh from the head, as in a cloud.

Runs in the monitor process on the head, under the cluster's Python: the standard library and Ray alone. A launch is
`ray start` on a host that is free; a termination ends every process of the host but its sshd.
"""

from __future__ import annotations

import shlex
import subprocess
import threading
from typing import Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_NAME,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

HEAD = "head"
#: Ends what a machine runs; sshd stays, so that the machine can be launched again.
_END = """
import os, signal
mine = {1}
pid = os.getpid()
while pid > 1:
    mine.add(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in mine:
        try:
            if "sshd" not in open(f"/proc/{name}/cmdline").read():
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
"""


class BoxProvider(NodeProvider):
    """Launches and terminates hosts in a box."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._lock = threading.RLock()
        #: Names of hosts, with their addresses.
        self._addresses: dict[str, str] = dict(provider_config["hosts"])
        self._free = [name for name in self._addresses if name != HEAD]
        self._count = 0
        tags = {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_USER_NODE_TYPE: "ray.head.default"}
        tags |= {TAG_RAY_NODE_NAME: HEAD, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}
        self._nodes: dict[str, tuple[str, dict[str, str]]] = {HEAD: (HEAD, tags)}

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        with self._lock:
            return [
                node
                for node, (_, tags) in self._nodes.items()
                if all(tags.get(key) == value for key, value in tag_filters.items())
            ]

    def is_running(self, node_id: str) -> bool:
        return node_id in self._nodes

    def is_terminated(self, node_id: str) -> bool:
        return node_id not in self._nodes

    def node_tags(self, node_id: str) -> dict[str, str]:
        return self._nodes[node_id][1]

    def internal_ip(self, node_id: str) -> str:
        return self._addresses[self._nodes[node_id][0]]

    external_ip = internal_ip

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        self._nodes[node_id][1].update(tags)

    def create_node(self, *_: Any) -> None:
        raise NotImplementedError

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],
        labels: dict[str, str],
    ) -> None:
        for _ in range(count):
            with self._lock:
                if not self._free:
                    raise RuntimeError("no host is free")
                host = self._free.pop(0)
                self._count += 1
                node = f"{host}-{self._count}"
                common = {TAG_RAY_NODE_KIND: NODE_KIND_WORKER, TAG_RAY_NODE_NAME: node}
                self._nodes[node] = (host, {**common, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE, **tags})
            words = [
                "env",
                "RAY_AUTH_MODE=token",
                f"RAY_CLOUD_INSTANCE_ID={node}",
                f"RAY_NODE_TYPE_NAME={tags[TAG_RAY_USER_NODE_TYPE]}",
                *self.provider_config["start"],
                f"--node-ip-address={self._addresses[host]}",
                f"--num-cpus={int(resources.get('CPU', 0))}",
                f"--num-gpus={int(resources.get('GPU', 0))}",
                f"--memory={int(resources.get('memory', 0))}",
                f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}",
            ]
            subprocess.run(
                ["ssh", host, shlex.join(words)], check=True, stdin=subprocess.DEVNULL, timeout=120
            )

    def terminate_node(self, node_id: str) -> None:
        with self._lock:
            host = self._nodes.pop(node_id)[0]
        subprocess.run(["ssh", host, "python3", "-"], input=_END, text=True, check=False, timeout=60)
        with self._lock:
            self._free.append(host)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config
