"""A daemon with a real Ray cluster: its head and nodes are hosts in a box, and the head is reached by ssh.

The head is host 0 and takes no work. Nodes join by `start_node`, or are launched by a real autoscaler whose machines
are the other hosts (ray_provider.py). `ray stop` is never used: it ends Ray by name on the whole machine.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import kill
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import RunningWindfall
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.ray_cluster import require_ray
from tests.waiting import wait_until

HEAD, NODE = 0, 1
PORT = 6379
#: The one instance type of an autoscaled cluster.
GROUP = "spot-box"
_START = ("--object-store-memory=80000000", "--disable-usage-stats")
_MEMORY = 2 << 30
#: What a head needs that is to find its cluster again.
_DURABLE = ("RAY_gcs_storage=rocksdb", "RAY_gcs_storage_path=/var/tmp/gcs")
#: How a raylet's processes are called; the agent's are not among them.
_OF_RAY = ("ray/core/src/ray/", "ray::", "/ray/_private/", "/ray/dashboard/", "/ray/autoscaler/")


class RayScene:
    """A daemon, and a cluster of a head and nodes."""

    def __init__(self, hosts: HostsInABox, daemon: RunningWindfall, python: str) -> None:
        self.hosts, self.daemon, self._python = hosts, daemon, python
        self._head_words: tuple[str, ...] = ()
        self._head_options: tuple[str, ...] = ()

    # The cluster ----------------------------------------------------------------------------------------

    def ray_start(self, host: int, *options: str, words: tuple[str, ...] = ()) -> None:
        """Start Ray on a host; `words` are variables."""
        start = [self._python, "-m", "ray.scripts.scripts", "start", *_START, *options]
        start.append(f"--node-ip-address={self.hosts.address(host)}")
        self.hosts.run(host, "env", "RAY_AUTH_MODE=token", *words, *start)

    def start_head(self, *, durable: bool = False, launchable: int = 0, promised: int = 0) -> None:
        """Start the head; one that keeps what it knows on its disk, or one with an autoscaler.

        An autoscaler may launch so many hosts; its configuration may promise more, whose launches then fail.
        """
        options = ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
        words = list(_DURABLE if durable else ())
        if launchable:
            options.append("--autoscaling-config=/var/tmp/autoscaler.json")
            words += ["AUTOSCALER_UPDATE_INTERVAL_S=1", "RAY_enable_autoscaler_v2=1"]
            words += ["RAY_CLOUD_INSTANCE_ID=head", "PYTHONPATH=/var/tmp"]
            self._configure_autoscaler(launchable, promised or launchable)
        self._head_options, self._head_words = tuple(options), tuple(words)
        self.ray_start(HEAD, *self._head_options, words=self._head_words)

    def restart_head(self) -> None:
        """Start a head that was killed with what it was started with."""
        # Ray refuses while the file names a cluster, whether that lives or not.
        self.hosts.run(HEAD, "rm", "-f", "/tmp/ray/ray_current_cluster")
        self.ray_start(HEAD, *self._head_options, words=self._head_words)

    def start_node(self, host: int = NODE, *words: str) -> None:
        """Let a node join the cluster."""
        address = f"--address={self.hosts.address(HEAD)}:{PORT}"
        self.ray_start(host, address, "--num-cpus=2", "--labels=windfall/type=box,zone=a", words=words)

    def _configure_autoscaler(self, launchable: int, promised: int) -> None:
        home, hosts = self.hosts.home(HEAD), self.hosts
        files = home.parent / "var-tmp"
        names = {"head": hosts.address(HEAD)}
        names |= {hosts.name(host): hosts.address(host) for host in range(1, launchable + 1)}
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700)
        shutil.copy(hosts.key, ssh / "id_ed25519")
        shutil.copy(hosts.known_hosts, ssh / "known_hosts")
        shutil.copy(Path(__file__).with_name("ray_provider.py"), files / "ray_provider.py")
        start = [self._python, "-m", "ray.scripts.scripts", "start", *_START]
        config = {
            "cluster_name": "boxes",
            "max_workers": promised,
            "provider": {
                "type": "external",
                "module": "ray_provider.BoxProvider",
                "hosts": names,
                "start": [*start, f"--address={hosts.address(HEAD)}:{PORT}"],
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
                "launch_multiple": True,
                "head_node_id": "head",
            },
            "available_node_types": {
                "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
                GROUP: {
                    "resources": {"CPU": 2, "memory": _MEMORY},
                    "labels": {"windfall/type": GROUP},
                    "node_config": {},
                    "min_workers": 0,
                    "max_workers": promised,
                },
            },
            "head_node_type": "ray.head.default",
            "upscaling_speed": 1.0,
            "idle_timeout_minutes": 0.05,
            **{name: {} for name in ("auth", "docker", "file_mounts")},
            **{
                name: []
                for name in (
                    "initialization_commands",
                    "setup_commands",
                    "head_setup_commands",
                    "worker_setup_commands",
                    "head_start_ray_commands",
                    "worker_start_ray_commands",
                    "cluster_synced_files",
                    "rsync_exclude",
                    "rsync_filter",
                )
            },
            "file_mounts_sync_continuously": False,
        }
        (files / "autoscaler.json").write_text(json.dumps(config))

    def drain_node(self, host: int = NODE, seconds: int = 120) -> None:
        """Let the cluster drain a node, with so many seconds to go."""
        program = (
            "import time\nfrom ray._raylet import GcsClient\n"
            f"client = GcsClient(address='{self.hosts.address(HEAD)}:{PORT}')\n"
            "nodes = client.get_all_node_info().items()\n"
            f"at = '{self.hosts.address(host)}'\n"
            "node = next(key.hex() for key, it in nodes if it.node_manager_address == at and it.state == 0)\n"
            f"print(client.drain_node(node, 2, 'spot', int(time.time() * 1000) + {seconds * 1000}))"
        )
        done = self.hosts.run(HEAD, "env", "RAY_AUTH_MODE=token", self._python, "-c", program)
        assert "True" in done, done

    def kill_raylet(self, host: int = NODE) -> None:
        """Kill a node's raylet; all that Ray has there dies with it."""
        kill(self.pid_of(host, "raylet/raylet --raylet_socket"), signal.SIGKILL)
        wait_until(lambda: not self._of_ray(host, ("ray::",)), "the door has gone with its raylet")

    def kill_ray(self, host: int) -> None:
        """Kill all of Ray on a host at once. An agent there lives on."""
        for pid in self._of_ray(host, _OF_RAY):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        wait_until(lambda: not self._of_ray(host, _OF_RAY), f"Ray has gone from host {host}")

    def _of_ray(self, host: int, marks: tuple[str, ...]) -> list[int]:
        commands = self.hosts.commands(host)
        return [pid for pid, command in commands.items() if any(mark in command for mark in marks)]

    def has_ray(self, host: int) -> bool:
        """Whether a raylet runs on a host."""
        return bool(self._of_ray(host, ("raylet/raylet --raylet_socket",)))

    def pid_of(self, host: int, text: str) -> int:
        """The process of a host whose command has a text."""
        return next(pid for pid, command in self.hosts.commands(host).items() if text in command)

    # Jobs -----------------------------------------------------------------------------------------------

    def run(self, command: str, *options: str) -> str:
        """Submit a shell command as a job; returns its id."""
        words = ("run", "--detach", "--memory", "64M", *options, "--", "sh", "-c", command)
        return str(self.daemon.windfall(*words).stdout.split()[-1])

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as AWS describes it."""
        return dict(self.daemon.client("batch").describe_jobs(jobs=[job_id])["jobs"][0])

    def status(self, job_id: str) -> str:
        """The state of a job."""
        return str(self.job(job_id)["status"])

    def await_status(self, job_id: str, status: str, deadline_s: float = 120.0) -> dict[str, Any]:
        """The job, once it has a state."""
        wait_until(lambda: self.status(job_id) == status, f"{job_id} is {status}", deadline_s=deadline_s)
        return self.job(job_id)

    def logs(self, job_id: str) -> list[str]:
        """The words of a job's log."""
        return str(self.daemon.windfall("logs", job_id).stdout).split()


@contextmanager
def ray_scene(place: Path, hosts: int, *, see: Sequence[Path] = ()) -> Iterator[RayScene]:
    """Hosts, and a daemon that is not up yet; nothing of Ray runs. Hosts see Ray, and what is in `see`."""
    require_hosts()
    python = require_ray()
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # Its interpreter may live in a home directory, which hosts do not see.
    seen = [Path(python).parent.parent, *([Path(prefix)] if not prefix.startswith("/usr") else [])]
    with HostsInABox(hosts, place, see=list(dict.fromkeys((*see, *seen)))) as boxes:
        token = secrets.token_hex(32)
        for host in range(hosts):
            path = boxes.home(host) / ".ray" / "auth_token"
            path.parent.mkdir()
            path.write_text(token)
        daemon = RunningWindfall("--gpus", "none", "--engine", "ray", "--ray-python", python)
        daemon.extra_environment["WINDFALL_RAY"] = " ".join(boxes.ssh(HEAD))
        try:
            yield RayScene(boxes, daemon, python)
        finally:
            daemon.close()
