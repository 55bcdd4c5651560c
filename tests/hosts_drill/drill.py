"""Plays rounds of misfortune against a real daemon and its hosts, and says what was wrong at the end of each."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.acceptance.daemon import ENDED, RunningWindfall
from tests.drill.drill import PYTHONPATH, TRAINER, reference
from tests.hosts_drill.script import LOSING, LOST_AFTER_S, Blow, draw
from tests.hosts_drill.witness import WITNESS, Ended, Expected, complaints, training, writing
from tests.hosts_in_a_box import HostsInABox
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError

HOSTS = 3
STEPS, STEP_S = 150, 0.04
ROUND_DEADLINE_S = 300.0
#: A lost host costs an attempt; a program that ends has ended the job, whatever its status.
RETRIES = {
    "attempts": 10,
    "evaluateOnExit": [
        {"onStatusReason": "Host EC2*", "action": "RETRY"},
        {"onExitCode": "*", "action": "EXIT"},
    ],
}
FAILING = 7


@dataclass(slots=True)
class Verdict:
    """How a round ended."""

    seed: int
    blows: list[str]
    jobs: int = 0
    attempts: int = 0
    lost: int = 0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


class HostsDrill:
    """A daemon with hosts, for all rounds. Use it as a context. The drill of another engine replaces parts of it."""

    #: What hosts see of this machine, for trainings.
    SEEN = tuple(
        path
        for path in dict.fromkeys((ROOT, Path(sys.prefix), Path(sys.base_prefix)))
        if path != Path("/usr")
    )
    engine = "hosts"
    needs: ClassVar[dict[str, str]] = {"VCPU": "1", "MEMORY": "256", "GPU": "1"}
    #: After these an attempt may be lost.
    losing: ClassVar[set[str]] = LOSING
    hosts: HostsInABox
    running: RunningWindfall

    def __init__(self, place: Path) -> None:
        self._place = place
        self._open = ExitStack()

    def __enter__(self) -> HostsDrill:
        with ExitStack() as opening:
            self._set_up(opening)
            self._client = Client(find_endpoint(self.running.data))
            self._declare()
            self._reference = reference(STEPS)
            self._open = opening.pop_all()
        return self

    def _set_up(self, opening: ExitStack) -> None:
        """Have hosts, and a daemon that uses them."""
        self.hosts = opening.enter_context(HostsInABox(HOSTS, self._place, see=self.SEEN))
        self.running = RunningWindfall("--gpus", "none", "--job-user", "root", *self._storage())
        self.running.extra_environment = {
            "WINDFALL_SSH_CONFIG": str(self.hosts.ssh_config),
            "WINDFALL_LOST_AFTER_S": str(LOST_AFTER_S),
        }
        opening.callback(self.running.close)
        self.running.up()
        names = [self.hosts.name(host) for host in range(HOSTS)]
        self.running.windfall("hosts", "add", *names, "--gpus", "simulated:2")

    def _storage(self) -> tuple[str, ...]:
        """Options of a daemon with an S3 server where the hosts reach it, at a port that no other drill has."""
        with socket.socket() as candidate:
            candidate.bind((self.hosts.gateway, 0))
            port = str(candidate.getsockname()[1])
        return ("--s3", "--s3-listen", self.hosts.gateway, "--s3-port", port)

    def blows(self, seed: int) -> list[Blow]:
        """What happens in a round."""
        return draw(seed, range(HOSTS))

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._open.close()

    def play(self, seed: int) -> Verdict:
        """Submit the jobs of a round, strike, wait for all ends, and judge."""
        blows = self.blows(seed)
        verdict = Verdict(seed, [blow.words for blow in blows])
        began = time.monotonic()
        jobs = self._submit(seed)
        try:
            self._strike(blows, jobs)
            self._await_quiet()
            ended = [(job, self._ended(job.job_id)) for job in jobs]
        except AssertionError as error:
            verdict.wrong = [str(error), *self._unfinished(jobs)]
        else:
            said = self._said()
            verdict.attempts = sum(len(end.attempts) for _, end in ended)
            verdict.lost = sum(end.lost for _, end in ended)
            verdict.wrong = [text for job, end in ended for text in complaints(job, end, said)]
            if verdict.lost and not self.losing & {blow.what for blow in blows}:
                verdict.wrong.append(f"{verdict.lost} attempts were lost, but no host was")
        verdict.jobs, verdict.took_s = len(jobs), time.monotonic() - began
        return verdict

    def keep_logs(self, to: Path) -> None:
        """Copy what the daemon and the hosts have written, for whoever looks into a failure."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        shutil.copy(self.running.log, to / "daemon.log")
        shutil.copytree(self.running.data / "logs", to / "logs")
        for host in range(HOSTS):
            name = self.hosts.name(host)
            (to / f"{name}.sshd.log").write_text(self.hosts.log(host))
            (to / f"{name}.witness").write_text(self._witness(host))
            found = self.hosts.home(host).parent.glob("var-lib/windfall-host/agents/*/*/**/*.log")
            for number, path in enumerate(sorted(found)):
                shutil.copy(path, to / f"{name}.{number}.{path.name}")

    # ------------------------------------------------------------------------------------------------------- jobs

    def _declare(self) -> None:
        resources = {"type": "EC2", "minvCpus": 0, "maxvCpus": 64, "instanceTypes": ["optimal"]}
        self._client.batch(
            "CreateComputeEnvironment",
            computeEnvironmentName=self.engine,
            type="MANAGED",
            computeResources={**resources, "subnets": ["s"], "instanceRole": "r"},
            tags={"windfall:engine": self.engine},
        )
        order = [{"order": 1, "computeEnvironment": self.engine}]
        self._client.batch(
            "CreateJobQueue", jobQueueName=self.engine, priority=1, computeEnvironmentOrder=order
        )
        trains = f"PYTHONPATH={PYTHONPATH} {sys.executable} {TRAINER} {STEPS} {STEP_S}"
        commands = {"write": writing(0), "fail": writing(FAILING), "train": training(trains)}
        needs = self.needs.items()
        for name, command in commands.items():
            self._client.batch(
                "RegisterJobDefinition",
                jobDefinitionName=name,
                type="container",
                containerProperties={
                    "image": "windfall/host",
                    "command": command,
                    "resourceRequirements": [{"type": kind, "value": value} for kind, value in needs],
                },
                retryStrategy=RETRIES,
            )

    def _submit(self, seed: int) -> list[Expected]:
        def submit(definition: str, **more: Any) -> str:
            answer = self._client.batch(
                "SubmitJob",
                jobName=f"{definition}-{seed}",
                jobQueue=self.engine,
                jobDefinition=definition,
                **more,
            )
            return str(answer["jobId"])

        kept = {"windfall:checkpoint": "true"}
        jobs = [Expected(submit("train", tags=kept), 0, self._reference) for _ in range(2)]
        jobs += [Expected(submit("write"), 0) for _ in range(2)]
        jobs.append(Expected(submit("fail"), FAILING))
        array = submit("write", arrayProperties={"size": 3})
        return jobs + [Expected(f"{array}:{index}", 0) for index in range(3)]

    def _describe(self, jobs: list[Expected]) -> list[dict[str, Any]]:
        found = self._client.batch("DescribeJobs", jobs=[job.job_id for job in jobs])["jobs"]
        assert len(found) == len(jobs), f"{len(jobs) - len(found)} jobs are lost"
        return list(found)

    def _ended(self, job_id: str) -> Ended:
        job = self._client.batch("DescribeJobs", jobs=[job_id])["jobs"][0]
        attempts = self._client.own("Attempts", jobId=job_id)["attempts"]
        streams = [attempt["container"].get("logStreamName") for attempt in job["attempts"]]
        return Ended(job, attempts, [self._log(stream) for stream in streams])

    def _log(self, stream: str | None) -> list[str]:
        if stream is None:
            return []
        answer = self._client.logs(
            "GetLogEvents", logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
        )
        return [event["message"] for event in answer["events"]]

    def _unfinished(self, jobs: list[Expected]) -> list[str]:
        return [
            f"{job['jobId']} is {job['status']}: {job.get('statusReason')}"
            for job in self._describe(jobs)
            if job["status"] not in ENDED
        ]

    # ------------------------------------------------------------------------------------------------------ blows

    def _strike(self, blows: list[Blow], jobs: list[Expected]) -> None:
        """Strike when the moments come, undo what was done, and return when all jobs have ended."""
        began = time.monotonic()
        coming: list[tuple[float, Callable[[], None]]] = []
        for blow in blows:
            strike, undo = self._acts(blow)
            coming += [(blow.at_s, strike), (blow.at_s + blow.lasts_s, undo)]
        coming.sort(key=lambda act: act[0])

        def turn() -> bool:
            while coming and time.monotonic() - began >= coming[0][0]:
                coming.pop(0)[1]()
            if self.running.process is None or self.running.process.poll() is not None:
                return False
            return not coming and all(job["status"] in ENDED for job in self._describe(jobs))

        wait_until(turn, "all jobs have ended", deadline_s=ROUND_DEADLINE_S, interval_s=0.1)

    def _acts(self, blow: Blow) -> tuple[Callable[[], None], Callable[[], None]]:
        """What a blow does, and what undoes it; both may meet a host or a daemon that another blow has taken."""
        host = blow.host
        if blow.what == "kill agent":
            return lambda: self._kill_agent(host), lambda: None
        if blow.what == "kill daemon":
            return self.running.kill_daemon, self._daemon_up
        if blow.what in ("reboot", "kill host"):
            return lambda: self.hosts.kill(host), lambda: self._boot(host)
        if blow.what == "drain":
            return lambda: self._drain(host, resume=False), lambda: self._drain(host, resume=True)
        return lambda: self.hosts.cut(host), lambda: self.hosts.heal(host)

    def _kill_agent(self, host: int) -> None:
        for pid, line in self.hosts.commands(host).items():
            if "-m windfall.agent.serve" in line and "warden.py" not in line:
                os.kill(pid, signal.SIGKILL)

    def _daemon_up(self) -> None:
        if self.running.process is not None and self.running.process.poll() is not None:
            self.running.up()
            self._client.close()
            self._client = Client(find_endpoint(self.running.data))

    def _boot(self, host: int) -> None:
        if not self.hosts.pids(host):
            # A boot waits for sshd, so it ends a cut too.
            self.hosts.heal(host)
            self.hosts.boot(host)

    def _drain(self, host: int, *, resume: bool) -> None:
        try:
            self._client.own("DrainHost", name=self.hosts.name(host), resume=resume)
        except CliError:
            # The daemon is down; `_await_quiet` ends what a daemon has kept.
            return

    def _await_quiet(self) -> None:
        """Wait until all hosts are ready, and what was superseded there has been stopped."""
        for host in range(HOSTS):
            self._drain(host, resume=True)

        def quiet() -> bool:
            return self._is_quiet() and not any(self._runs_jobs(host) for host in range(HOSTS))

        wait_until(quiet, "all hosts are ready and run nothing", deadline_s=120, interval_s=0.2)

    def _is_quiet(self) -> bool:
        hosts = self._client.own("ListHosts")["hosts"]
        ready = all(host["standing"] == "ready" and not host["draining"] for host in hosts)
        return ready and all(host["running"] == 0 for host in hosts)

    # ---------------------------------------------------------------------------------------------------- witness

    def _runs_jobs(self, host: int) -> bool:
        return any(WITNESS in line for line in self.hosts.commands(host).values())

    def _witness(self, host: int) -> str:
        path = self.hosts.home(host).parent / "var-tmp" / Path(WITNESS).name
        return path.read_text() if path.exists() else ""

    def _said(self) -> Counter[str]:
        return Counter(line for host in range(HOSTS) for line in self._witness(host).splitlines())
