"""A real daemon for a measurement: its own process, data directory and port, with what jobs need declared.

    python -m bench.running_daemon DATA_DIRECTORY VCPUS

runs one in the foreground and says `ready` when it listens.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.machine import children
from bench.wire import Account, Connection

ROOT = Path(__file__).resolve().parent.parent
QUEUE, DEFINITION, ENVIRONMENT = "bench-queue", "bench-true", "bench-environment"
#: What each job asks for.
VCPUS, MEMORY_MIB = 1, 64


def environment() -> dict[str, str]:
    """An environment in which child processes find this package and Windfall's."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class RunningDaemon:
    """Starts a daemon, and stops it with its agent at the end of a `with`."""

    def __init__(
        self, workspace: Path, vcpus: int, data: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are environment variables, WINDFALL_..."""
        self._settings = settings or {}
        self.data = Path(tempfile.mkdtemp(prefix="daemon-", dir=workspace)) if data is None else data
        # Jobs run as another user and must reach their working directories below.
        self.data.chmod(0o711)
        self.vcpus = vcpus
        self.started_in_s = 0.0
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> RunningDaemon:
        """Start it and wait until it listens."""
        begin = time.monotonic()
        self._log = open(self.data / "bench-daemon.log", "ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.running_daemon", str(self.data), str(self.vcpus)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**environment(), **self._settings},
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"the daemon did not start; see {self.data / 'bench-daemon.log'}")
        self.started_in_s = time.monotonic() - begin
        self.ready = json.loads(line)
        key = json.loads((self.data / "keys.json").read_text())["keys"][0]
        self.account = Account(self.ready["url"], key["access_key_id"], key["secret_access_key"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it; the agent goes with it because nothing runs any more."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self._process.pid

    @property
    def warden_pid(self) -> int:
        """The process above the agent."""
        return int((self.data / "agent" / "warden.lock").read_text())

    @property
    def agent_pid(self) -> int:
        """The process that starts attempts."""
        return children(self.warden_pid)[0]

    def log_count(self) -> int:
        """How many attempts have a log file of their own."""
        return sum(1 for file in (self.data / "logs").iterdir() if file.suffix == ".log")

    def declare(self, connection: Connection, *, enabled: bool = True) -> None:
        """Make an environment, a queue and a definition that runs `true`."""
        connection.call(
            "CreateComputeEnvironment",
            computeEnvironmentName=ENVIRONMENT,
            type="MANAGED",
            state="ENABLED" if enabled else "DISABLED",
            computeResources={
                "type": "EC2",
                "minvCpus": 0,
                "maxvCpus": self.vcpus,
                "instanceTypes": ["optimal"],
                "subnets": ["subnet-0"],
                "instanceRole": "ecsInstanceRole",
            },
        )
        order = [{"order": 1, "computeEnvironment": ENVIRONMENT}]
        connection.call("CreateJobQueue", jobQueueName=QUEUE, priority=1, computeEnvironmentOrder=order)
        self.define(connection, DEFINITION, ["/bin/true"])

    def define(self, connection: Connection, name: str, command: list[str], **container: Any) -> None:
        """Register a definition."""
        needs = [{"type": "VCPU", "value": str(VCPUS)}, {"type": "MEMORY", "value": str(MEMORY_MIB)}]
        connection.call(
            "RegisterJobDefinition",
            jobDefinitionName=name,
            type="container",
            containerProperties={
                "image": "windfall/host",
                "command": command,
                "resourceRequirements": needs,
                **container,
            },
        )


def serve(data: str, vcpus: str) -> int:
    """Be the daemon."""
    from windfall.daemon import serving
    from windfall.daemon.settings import read_settings

    settings = read_settings(
        {"data": data, "port": 0, "gpus": "none", "vcpus": int(vcpus), "memory_mib": int(vcpus) * MEMORY_MIB}
    )

    def ready(what: serving.Ready) -> None:
        print(json.dumps({"url": what.url, "live_jobs": what.live_jobs}), flush=True)

    return serving.serve(settings, ready)


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:3]))
