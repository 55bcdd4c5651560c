"""From the interruption to the first new training step, and where the time goes, for states of several sizes.

A real job under a real daemon in a SPOT environment of this host: notice, save at the step boundary, exit, last flush
to the object store, a new place, restore, start, first step. There is no boot here: the place is free at once. What the
kernel and the disk need for the bytes themselves is measured beside it: write, read and write them once more, synced.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.results import Bench, Result, middle
from bench.running_daemon import ROOT, environment
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint

MB = 1_000_000
#: What each stage lies between, on one attempt or from it to the next.
STAGES = (
    ("save and leave", "stopAt", "exitedAt"),
    ("flush to the store", "exitedAt", "stoppedAt"),
    ("new place", "stoppedAt", "next placedAt"),
    ("restore", "next placedAt", "next preparedAt"),
    ("start", "next preparedAt", "next startedAt"),
    ("first step", "next startedAt", "next firstStepAt"),
)


def measure(bench: Bench) -> list[Result]:
    """1 MB, 100 MB and 1 GB."""
    sizes = (1 * MB, 100 * MB) if bench.quick else (1 * MB, 100 * MB, 1000 * MB)
    return [_of_size(bench, size, bench.count(5, 2)) for size in sizes]


def _of_size(bench: Bench, size: int, times: int) -> Result:
    raw_s = _raw_s(bench.workspace, size)
    runs: list[dict[str, float]] = []
    data = bench.workspace / f"changeover-{size}"
    with _Daemon(data) as client:
        job_id = _submit(client, size)
        for number in range(1, times + 1):
            _wait(client, job_id, number, lambda a: _stepped(a) and a["progress"]["step"] is not None)
            client.own("Interrupt", jobId=job_id, noticeS=120)
            _wait(client, job_id, number + 1, _stepped)
            attempts = client.own("Attempts", jobId=job_id)["attempts"]
            runs.append(_stages(attempts[number - 1], attempts[number]))
            bench.say(f"changeover of {size // MB} MB: {runs[-1]}")
        client.batch("TerminateJob", jobId=job_id, reason="measured")
    total = middle([run["all"] for run in runs])
    parts = ", ".join(f"{name} {middle([run[name] for run in runs]):.2f} s" for name, *_ in STAGES)
    at_100 = size == 100 * MB
    return Result(
        f"interruption to first new step, {size // MB} MB of state",
        total,
        "s",
        raw_s,
        "the bytes written, read and written again, synced, s",
        total / raw_s,
        target="2 s" if at_100 else "",
        reached=total <= 2 if at_100 else None,
        note=f"median of {times}: {parts}",
        details={"runs": runs},
    )


def _stages(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    times = {**before, **{f"next {name}": value for name, value in after.items()}}
    times["next firstStepAt"] = after["progress"]["firstStepAt"]
    times["exitedAt"] = times["exitedAt"] or times["stoppedAt"]
    times["next preparedAt"] = times["next preparedAt"] or times["next placedAt"]
    found = {name: (times[until] - times[since]) / 1000 for name, since, until in STAGES}
    return {**found, "all": (times["next firstStepAt"] - times["stopAt"]) / 1000}


def _stepped(attempt: dict[str, Any]) -> bool:
    return bool(attempt["progress"] and attempt["progress"]["firstStepAt"])


def _wait(client: Client, job_id: str, number: int, reached: Any, deadline_s: float = 300) -> None:
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        attempts = client.own("Attempts", jobId=job_id)["attempts"]
        if len(attempts) >= number and reached(attempts[number - 1]):
            return
        time.sleep(0.05)
    raise TimeoutError(f"attempt {number} of {job_id} did not get there: {json.dumps(attempts[-1])}")


def _submit(client: Client, size: int) -> str:
    resources = {"type": "SPOT", "minvCpus": 0, "maxvCpus": 8, "instanceTypes": ["optimal"], "subnets": ["s"]}
    client.batch(
        "CreateComputeEnvironment",
        computeEnvironmentName="spot",
        type="MANAGED",
        computeResources=resources | {"instanceRole": "r"},
    )
    order = [{"order": 1, "computeEnvironment": "spot"}]
    client.batch("CreateJobQueue", jobQueueName="spot", priority=1, computeEnvironmentOrder=order)
    container = {
        "image": "windfall/host",
        "command": [sys.executable, str(ROOT / "bench" / "changeover_job.py"), str(size)],
        "environment": [{"name": "PYTHONPATH", "value": environment()["PYTHONPATH"]}],
        "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "16384"}],
    }
    client.batch(
        "RegisterJobDefinition", jobDefinitionName="job", type="container", containerProperties=container
    )
    tags = {"windfall:checkpoint": "true"}
    answer = client.batch("SubmitJob", jobName="job", jobQueue="spot", jobDefinition="job", tags=tags)
    return str(answer["jobId"])


class _Daemon:
    def __init__(self, data: Path) -> None:
        self._data = data

    def __enter__(self) -> Client:
        self._data.mkdir(mode=0o711)
        # As this user: the job runs this very interpreter, which others may not be able to reach.
        options = ["--port", "0", "--vcpus", "8", "--memory-mib", "65536", "--job-user", getpass.getuser()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "windfall.cli", "up", "--data", str(self._data), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return Client(find_endpoint(self._data))

    def __exit__(self, *_: object) -> None:
        command = [sys.executable, "-m", "windfall.cli", "down", "--kill", "--data", str(self._data)]
        subprocess.run(command, capture_output=True, check=False, env=environment())
        self._process.wait(60)


def _raw_s(workspace: Path, size: int) -> float:
    """What a program needs that does nothing but move the bytes: to disk, back, and into the store's place."""
    content = os.urandom(min(size, 64 * MB))
    one, two = workspace / f"raw-{size}-1", workspace / f"raw-{size}-2"
    begin = time.monotonic()
    with open(one, "wb", buffering=0) as file:
        file.writelines(content[: size - start] for start in range(0, size, len(content)))
        os.fsync(file.fileno())
    with open(one, "rb", buffering=0) as source, open(two, "wb", buffering=0) as target:
        while piece := source.read(16 * MB):
            target.write(piece)
        os.fsync(target.fileno())
    took_s = time.monotonic() - begin
    one.unlink()
    two.unlink()
    return took_s
