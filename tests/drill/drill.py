"""Plays scripts of misfortune against a real daemon and compares how the trainings end."""

from __future__ import annotations

import getpass
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import RunningWindfall
from tests.drill.script import Blow, draw, reached
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError

STEPS, STEP_S = 150, 0.03
TRAINER = ROOT / "tests" / "drill" / "trainer.py"
PYTHONPATH = f"{ROOT}:{ROOT / 'src'}"
AWAY_S = 1.5
RUN_DEADLINE_S = 300.0


class Run:
    """One training and what is still to be done to it."""

    def __init__(self, seed: int, job_id: str) -> None:
        self.seed, self.job_id = seed, job_id
        self.blows = draw(seed)
        self.began = time.monotonic()
        self.done: list[str] = []
        #: The attempt that the last blow that takes a place away struck: the next one waits for another.
        self.struck = 0


class Drill:
    """A daemon for all runs, and the reference that they are held against."""

    def __init__(self) -> None:
        self.running = RunningWindfall(
            "--vcpus", "64", "--memory-mib", "65536", "--job-user", getpass.getuser()
        )
        self.running.extra_environment = {"PYTHONPATH": PYTHONPATH}
        self.blows = 0
        self.struck: Counter[str] = Counter()
        self._store_back_at: float | None = None

    def __enter__(self) -> Drill:
        self.running.up()
        self._declare()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    @property
    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the daemon that runs now: its port changes when it is killed."""
        with closing(Client(find_endpoint(self.running.data))) as client:
            yield client

    def play(self, seeds: Iterable[int], *, at_once: int, say: Callable[[str], None]) -> list[str]:
        """Play one run per seed; the answer is what was wrong, in words."""
        reference_hash = reference(STEPS)
        waiting = list(seeds)
        live: list[Run] = []
        wrong: list[str] = []

        def turn() -> bool:
            """Look at every run once; the answer is whether all are over."""
            while waiting and len(live) < at_once:
                seed = waiting.pop(0)
                live.append(Run(seed, self._submit(seed)))
            self._bring_store_back()
            for run in list(live):
                verdict = self._look(run, reference_hash)
                if verdict is None:
                    continue
                live.remove(run)
                say(f"seed {run.seed}: {verdict}; {', '.join(run.done)}")
                if verdict != "equal":
                    wrong.append(f"seed {run.seed} ({run.job_id}): {verdict}; {', '.join(run.done)}")
            return not waiting and not live

        # Every run has a deadline of its own; this one is for all of them, one after the other.
        longest_s = RUN_DEADLINE_S * (1 + len(waiting) / at_once)
        wait_until(turn, "all runs are over", deadline_s=longest_s, interval_s=0.03)
        return wrong

    def _declare(self) -> None:
        resources = {
            "type": "SPOT",
            "minvCpus": 0,
            "maxvCpus": 64,
            "instanceTypes": ["optimal"],
            "subnets": ["s"],
            "instanceRole": "r",
        }
        order = [{"order": 1, "computeEnvironment": "spot"}]
        container = {
            "image": "windfall/host",
            "command": [sys.executable, str(TRAINER), str(STEPS), str(STEP_S)],
            "environment": [{"name": "PYTHONPATH", "value": self.running.extra_environment["PYTHONPATH"]}],
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "512"}],
        }
        with self.client as client:
            client.batch(
                "CreateComputeEnvironment",
                computeEnvironmentName="spot",
                type="MANAGED",
                computeResources=resources,
            )
            client.batch("CreateJobQueue", jobQueueName="spot", priority=1, computeEnvironmentOrder=order)
            client.batch(
                "RegisterJobDefinition",
                jobDefinitionName="trainer",
                type="container",
                containerProperties=container,
            )

    def _submit(self, seed: int) -> str:
        tags = {"windfall:checkpoint": "true"}
        with self.client as client:
            answer = client.batch(
                "SubmitJob", jobName=f"run-{seed}", jobQueue="spot", jobDefinition="trainer", tags=tags
            )
        return str(answer["jobId"])

    def _look(self, run: Run, wanted: str) -> str | None:
        """Strike if a moment has come; the verdict when the run is over."""
        with self.client as client:
            job = client.batch("DescribeJobs", jobs=[run.job_id])["jobs"][0]
            attempts = client.own("Attempts", jobId=run.job_id)["attempts"]
        if job["status"] == "SUCCEEDED":
            found = self._log_hash(job)
            return "equal" if found == wanted else f"ended with {found}, not {wanted}"
        if job["status"] == "FAILED":
            return f"FAILED: {job.get('statusReason')}: {attempts[-1]['reason']}"
        if time.monotonic() - run.began > RUN_DEADLINE_S:
            return f"not over after {RUN_DEADLINE_S:g} s: {job['status']} {attempts[-1:]}"
        latest = attempts[-1] if attempts else None
        if run.blows and reached(run.blows[0], latest):
            assert latest is not None
            takes_place = run.blows[0].what in ("interrupt", "no notice")
            if not (takes_place and latest["number"] == run.struck and run.blows[0].stage != "leaving"):
                self._strike(run, run.blows.pop(0), latest["number"])
        return None

    def _strike(self, run: Run, blow: Blow, attempt: int) -> None:
        self.blows += 1
        self.struck[f"{blow.what}@{blow.stage}"] += 1
        run.done.append(f"{blow.what}@{blow.stage}#{attempt}")
        try:
            if blow.what in ("interrupt", "no notice"):
                run.struck = attempt
                notice_s = 0.0 if blow.what == "no notice" else blow.notice_s
                with self.client as client:
                    client.own("Interrupt", jobId=run.job_id, noticeS=notice_s)
            elif blow.what == "kill agent":
                self.running.kill_agent()
            elif blow.what == "kill courier":
                self._kill_courier()
            elif blow.what == "kill daemon":
                self.running.kill_daemon()
                self.running.up()
            else:
                self._take_store_away()
        except (CliError, ProcessLookupError, KeyError) as error:
            run.done.append(f"(refused: {type(error).__name__})")

    def _kill_courier(self) -> None:
        agent = self.running.agent_pids()["agent"]
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"windfall.agent.courier" in arguments and parent == agent:
                os.kill(int(entry.name), signal.SIGKILL)

    def _take_store_away(self) -> None:
        place = self.running.data / "objects"
        if self._store_back_at is None and place.exists():
            place.rename(place.with_name("objects-away"))
            # A file where the store's directory was: nothing can be read or written there.
            place.write_text("away")
            self._store_back_at = time.monotonic() + AWAY_S

    def _bring_store_back(self) -> None:
        if self._store_back_at is not None and time.monotonic() >= self._store_back_at:
            place = self.running.data / "objects"
            place.unlink()
            place.with_name("objects-away").rename(place)
            self._store_back_at = None

    def _log_hash(self, job: dict[str, Any]) -> str:
        with self.client as client:
            events = client.logs(
                "GetLogEvents",
                logGroupName="/aws/batch/job",
                logStreamName=job["container"]["logStreamName"],
                startFromHead=True,
            )["events"]
        return _hash("\n".join(event["message"] for event in events))


def reference(steps: int) -> str:
    """The hash of a training that nobody disturbs, without Windfall."""
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, str(TRAINER), str(steps), "0"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "WINDFALL_CHECKPOINT_DIR": place},
            timeout=100,
            check=True,
        )
    return _hash(done.stdout)


def _hash(text: str) -> str:
    found = re.findall(r"hash ([0-9a-f]{64})", text)
    return found[-1] if found else "no hash"
