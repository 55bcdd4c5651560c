"""What the bridge to a Ray cluster asks of Ray: whether the cluster may be used, its nodes, groups and launches.

A part of the text that is sent to a node of the cluster (bridge.py): the standard library and Ray. Decides which
clusters are refused, and says only what has changed. Ray has no public way to ask for drains and launches; what is used
of its insides is in this module.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from typing import Any

#: The first with labels for actors and with tokens.
LEAST_RAY = (2, 58)
_ASK_WITHIN_S = 5.0
_PROBE_WITHIN_S = 20
#: Nodes that have died are said once; more than these are not kept.
_FORGET_DEAD = 200

#: Asked without a token: a cluster that answers has none.
_PROBE = """
import json, sys
def say(**words): print(json.dumps(words)); sys.exit()
try: import ray
except ImportError as error: say(no_ray=str(error))
from ray._raylet import GcsClient
address = sys.argv[1]
if not address:
    from ray._private.utils import read_ray_address
    address = read_ray_address() or ""
if not address: say(ray=ray.__version__, address="")
try:
    GcsClient(address=address).get_all_node_info(timeout=10)
    say(ray=ray.__version__, address=address, open=True)
except Exception as error:
    kind = type(error).__name__
    why = f"{kind}: {error}"[:300]
    say(ray=ray.__version__, address=address, open=False, token=kind == "AuthenticationError", why=why)
"""


class ClusterRefused(Exception):
    """The bridge cannot serve; a word for programs, and a text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def probe() -> dict[str, Any]:
    """What answers here when nobody shows a token. In a process of its own: Ray reads the mode once, and may abort."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment["RAY_AUTH_MODE"] = "disabled"
    command = [sys.executable, "-c", _PROBE, os.environ.get("RAY_ADDRESS", "")]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_PROBE_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return {"ray": "", "address": "?", "open": False, "token": False, "why": "it does not answer"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1][:300] if said else "it says nothing"
        return {"ray": "", "address": "?", "open": False, "token": False, "why": why}
    return dict(json.loads(lines[-1]))


def check(seen: dict[str, Any], *, trusts_network: bool) -> str:
    """The address of a cluster that may be used; raises ClusterRefused. Sets the mode in which Ray shows its token."""
    if "no_ray" in seen:
        raise ClusterRefused("no-ray", f"{sys.executable} cannot import ray ({seen['no_ray']})")
    version = str(seen.get("ray") or "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < LEAST_RAY:
        raise ClusterRefused("old-ray", version)
    if not seen["address"]:
        raise ClusterRefused(
            "no-cluster",
            "no Ray node runs here: there is neither RAY_ADDRESS nor a current cluster in /tmp/ray",
        )
    if seen["open"] and not trusts_network:
        raise ClusterRefused("open", f"the cluster at {seen['address']} answers without a token")
    if seen["open"]:
        return str(seen["address"])
    if not seen.get("token"):
        raise ClusterRefused(
            "no-answer", f"the cluster at {seen['address']} does not answer: {seen.get('why', '')}"
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    if not os.environ.get("RAY_AUTH_TOKEN") and not os.path.isfile(path):
        raise ClusterRefused("no-token", f"there is neither RAY_AUTH_TOKEN nor {path}")
    return str(seen["address"])


def node_line(node_id: str, node: Any, deadline_ms: int | None) -> dict[str, Any]:
    """A node of Ray's in the words of the lines."""
    is_dead = node.state != 0
    state = "DEAD" if is_dead else "ALIVE" if deadline_ms is None else "DRAINING"
    return {
        "id": node_id,
        "ip": node.node_manager_address,
        "host": node.node_manager_hostname,
        "labels": dict(node.labels),
        "cpus": float(node.resources_total.get("CPU", 0)),
        "gpus": float(node.resources_total.get("GPU", 0)),
        "memory_bytes": int(node.resources_total.get("memory", 0)),
        "group": node.node_type_name,
        "state": state,
        "deadline_ms": None if is_dead or not deadline_ms else int(deadline_ms),
        "death": int(node.death_info.reason) if is_dead else 0,
        "reason": node.death_info.reason_message[:300] if is_dead else "",
    }


def autoscaled_groups() -> list[dict[str, Any]]:
    """The node groups that an autoscaler on this host may launch, from the file that it was started with."""
    for place in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(place, "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(
            word.endswith(("autoscaler/_private/monitor.py", "autoscaler/v2/monitor.py")) for word in words
        ):
            for word in words:
                option, _, path = word.partition("=")
                if option == "--autoscaling-config" and path:
                    root = os.path.join(os.path.dirname(place), "root")
                    return _groups_in(root + path)
    return []


def _groups_in(path: str) -> list[dict[str, Any]]:
    try:
        import yaml

        with open(path, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        types = dict(config["available_node_types"])
        head = config.get("head_node_type")
    except (OSError, KeyError, TypeError, ValueError):
        return []
    except Exception as error:  # noqa: BLE001 - yaml's errors; a file that cannot be read has no groups
        sys.stderr.write(f"{path} cannot be read: {error}\n")
        return []
    groups = []
    for name, kind in types.items():
        resources = kind.get("resources") or {}
        if name != head and kind.get("max_workers") != 0:
            groups.append(
                {
                    "name": str(name),
                    "labels": {str(key): str(value) for key, value in (kind.get("labels") or {}).items()},
                    "cpus": float(resources.get("CPU", 0)),
                    "gpus": float(resources.get("GPU", 0)),
                    "memory_bytes": int(resources.get("memory", 0)),
                    "most": kind.get("max_workers"),
                }
            )
    return groups


class ClusterLook:
    """What was last said of the cluster, so that only what changes is said again."""

    def __init__(self, address: str) -> None:
        from ray._raylet import GcsClient

        self._address = address
        self._client = GcsClient(address=address)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._launches: dict[str, Any] = {}
        self._is_first = True

    def look(self) -> list[dict[str, Any]]:
        """Lines about what has changed; raises whatever Ray raises when the head does not answer. Takes a thread."""
        infos = self._client.get_all_node_info(timeout=_ASK_WITHIN_S)
        drains = self._client.get_draining_nodes()
        now = {}
        for key, info in infos.items():
            node_id = key.hex()
            if info.state == 0 or node_id in self._nodes:
                now[node_id] = node_line(node_id, info, drains.get(node_id))
        for node_id, before in self._nodes.items():
            # A head that was started anew has never heard of it.
            now.setdefault(node_id, {**before, "state": "UNKNOWN", "deadline_ms": None})
        changed = [node for node_id, node in now.items() if self._nodes.get(node_id) != node]
        gone = [node_id for node_id, node in now.items() if node["state"] in ("DEAD", "UNKNOWN")]
        lines = []
        if changed or self._is_first:
            lines.append({"is": "nodes", "nodes": changed, "all": self._is_first})
        self._nodes, self._is_first = now, False
        for node_id in gone[:-_FORGET_DEAD]:
            del self._nodes[node_id]
        return lines + self._look_at_launches()

    def _look_at_launches(self) -> list[dict[str, Any]]:
        from ray.autoscaler.v2.sdk import get_cluster_status

        try:
            status = get_cluster_status(self._address, timeout=int(_ASK_WITHIN_S))
        except Exception:  # noqa: BLE001 - without an autoscaler there is no status, and Ray has no class for that
            return []
        launches = {
            "is": "launches",
            "pending": [
                {"group": launch.ray_node_type_name, "count": launch.count}
                for launch in status.pending_launches
            ],
            "failed": [
                {
                    "group": launch.ray_node_type_name,
                    "at_s": launch.failed_ts_s or 0,
                    "why": (launch.details or "")[:300],
                }
                for launch in status.failed_launches
            ],
        }
        if launches == self._launches or not (self._launches or launches["pending"] or launches["failed"]):
            return []
        self._launches = launches
        return [launches]
