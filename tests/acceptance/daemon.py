"""A real daemon in a process of its own, real clients for it, and ways to kill parts of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3

from tests import daemon_logs
from tests.waiting import wait_until
from windfall.engines.hosts.ssh import kept_connections

WINDFALL = [sys.executable, "-m", "windfall.cli"]
ENDED = ("SUCCEEDED", "FAILED")


class RunningWindfall:
    """`windfall up` on a free port with a data directory of its own."""

    def __init__(self, *options: str) -> None:
        # Not pytest's tmp_path: jobs run as another user, who must be able to pass through.
        # Nor below /tmp where jobs are in sandboxes, which have a /tmp of their own.
        above = None if os.geteuid() == 0 else "/var/tmp"
        self.root = Path(tempfile.mkdtemp(prefix="windfall-test-", dir=above))
        self.root.chmod(0o755)
        daemon_logs.watch(self.root)
        self.data = self.root / "data"
        self.options = options
        #: How the command is run, and with what environment beside the usual. Jobs are processes unless a test says
        #: otherwise: most name no image that a container engine of this machine could have.
        self.command = WINDFALL
        self.extra_environment: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.log = self.root / "daemon.log"

    def up(self) -> RunningWindfall:
        """Start (or start again) and wait until it listens."""
        self._close_pipe()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self.command, "up", "--port", "0", "--data", str(self.data), *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "WINDFALL_RUNTIME": "process", **self.extra_environment},
                cwd="/",
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("windfall is listening on http://"), f"{line!r}\n{self.log.read_text()}"
        self.url = line.split()[-1]
        return self

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs, as `windfall env` prints it."""
        printed = self.windfall("env").stdout
        exported = [
            line.removeprefix("export ").partition("=")
            for line in printed.splitlines()
            if line.startswith("export ")
        ]
        return {name: value.strip("'\"") for name, _, value in exported}

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client that knows nothing of Windfall but its address."""
        environment = self.environment
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            **options,
        )

    def windfall(
        self, *arguments: str, check: bool = True, cwd: Path = Path("/"), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a `windfall` command against this daemon, in a directory and with more variables if given."""
        done = subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **self.extra_environment, "WINDFALL_DATA": str(self.data), **variables},
            cwd=cwd,
            timeout=200,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def shell(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command as a user would who has said `eval "$(windfall env)"`."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self.environment, "PATH": path, "AWS_PAGER": "", **more}
        return subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=200, check=False
        )

    def aws(self, command: str) -> Any:
        """Run the real aws command line and parse what it prints."""
        done = self.shell(f"aws {command}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def agent_pids(self) -> dict[str, int]:
        """The process ids of agent and warden that serve this data directory."""
        parents: dict[int, int] = {}
        warden: dict[str, int] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if f"{self.data}/agent" not in arguments:
                continue
            if "warden.py" in arguments:
                warden["warden"] = int(entry.name)
            else:
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        # A process that the agent is just starting looks like the agent until its own program is loaded.
        agents = [pid for pid, parent in parents.items() if parent not in parents]
        return {**warden, "agent": agents[0]} if agents else warden

    def kill_daemon(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _say_how_it_died(self) -> None:
        """Print the end of the log of a daemon that nobody stopped: a client only sees a refused connection."""
        status = None if self.process is None else self.process.poll()
        if status not in (None, 0, -signal.SIGKILL):
            log = self.log.read_text(errors="replace")[-20_000:]
            print(f"the daemon ended by itself with status {status}; its log ends:\n{log}", file=sys.stderr)

    def kill_agent(self) -> int:
        """kill -9 of the agent; the answer is the process id that it had."""
        pid = self.agent_pids()["agent"]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for(self, job_ids: list[str], *states: str, deadline_s: float = 150) -> list[dict[str, Any]]:
        """Wait until all these jobs are in one of the states (by default: ended) and describe them."""
        batch = self.client("batch")
        wanted = states or ENDED
        found: list[dict[str, Any]] = []

        def reached() -> bool:
            found[:] = [
                job
                for start in range(0, len(job_ids), 100)
                for job in batch.describe_jobs(jobs=job_ids[start : start + 100])["jobs"]
            ]
            return len(found) == len(job_ids) and all(job["status"] in wanted for job in found)

        wait_until(reached, f"{len(job_ids)} jobs in {wanted}", deadline_s=deadline_s, interval_s=0.1)
        return found

    def _close_pipe(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> None:
        """Stop everything that was started, by its id."""
        self._say_how_it_died()
        if self.process is not None and self.process.poll() is None:
            self.windfall("down", "--kill", check=False)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.kill_daemon()
        for pid in [*self.agent_pids().values()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._close_pipe()

    def close(self) -> None:
        """Stop everything and remove the data."""
        daemon_logs.closing(self.root)
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        # The sockets of connections to hosts lie elsewhere: their paths must be short.
        shutil.rmtree(kept_connections(str(self.data)), ignore_errors=True)


def a_queue(windfall: RunningWindfall, name: str = "q", max_vcpus: int = 256, priority: int = 1) -> Any:
    """A compute environment and a queue of the same name; the answer is a Batch client."""
    batch = windfall.client("batch")
    batch.create_compute_environment(
        computeEnvironmentName=name,
        type="MANAGED",
        computeResources={
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": max_vcpus,
            "instanceTypes": ["optimal"],
            "subnets": ["subnet-1"],
            "instanceRole": "ecsInstanceRole",
        },
    )
    batch.create_job_queue(
        jobQueueName=name,
        priority=priority,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": name}],
    )
    return batch


def a_definition(
    batch: Any, name: str, *command: str, gpus: int = 0, memory_mib: int = 64, **more: Any
) -> str:
    """Register a definition of one vCPU that runs `command` on this host; the answer is its ARN."""
    needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": str(memory_mib)}]
    if gpus:
        needs.append({"type": "GPU", "value": str(gpus)})
    properties = {"image": "windfall/host", "command": list(command), "resourceRequirements": needs}
    return str(
        batch.register_job_definition(
            jobDefinitionName=name,
            type="container",
            containerProperties={**properties, **more.pop("container", {})},
            **more,
        )["jobDefinitionArn"]
    )
