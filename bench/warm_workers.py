"""Many tiny tasks as an array: a new process for each child beside one warm worker for all of them.

A real daemon, one place (one vCPU, or one GPU), so that children run one after the other and the whole time divides
into what each costs. The task itself says how long it took with what it imports; the rest is the way there and back:
placing, start, log, end, report, commit. An array of `true` shows what of that no child can do without.

    python -m bench.warm_workers [--cold N] [--warm N] [--gpu]
"""

from __future__ import annotations

import argparse
import getpass
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.results import Bench, Result
from bench.running_daemon import environment
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint

_MEMORY_MIB = 8192


@dataclass(frozen=True, slots=True)
class Run:
    """What one array took."""

    way: str
    children: int
    wall_s: float
    #: Seconds of each task: in a process that had just begun, and in one that had done tasks before.
    first_s: list[float]
    later_s: list[float]

    @property
    def each_s(self) -> float:
        """Seconds per child over the whole array."""
        return self.wall_s / self.children

    @property
    def overhead_ms(self) -> float:
        """Milliseconds per child that are not the task's own."""
        return (self.wall_s - sum(self.first_s) - sum(self.later_s)) / self.children * 1000

    def line(self) -> str:
        """One line of the table."""
        first, later = (f"{median(taken):.4f}" if taken else "-" for taken in (self.first_s, self.later_s))
        return (
            f"{self.way:<6}{self.children:>9}{self.wall_s:>10.2f}{self.each_s * 1000:>14.1f}"
            f"{first:>12}{later:>12}{self.overhead_ms:>14.1f}"
        )


_COLUMNS = {"children": 9, "wall s": 10, "ms per child": 14, "first s": 12, "later s": 12, "overhead ms": 14}
HEADING = "way   " + "".join(f"{name:>{width}}" for name, width in _COLUMNS.items())


def measure(bench: Bench) -> list[Result]:
    """With numpy on one vCPU of this host."""
    runs = list(compare(bench.workspace, bench.count(60, 20), bench.count(300, 60), gpu=False))
    for run in runs:
        bench.say(run.line())
    true, cold, warm = runs
    return [
        Result(
            "tiny numpy tasks in a warm worker",
            warm.each_s * 1000,
            "ms per child",
            cold.each_s * 1000,
            "a process each, ms per child",
            warm.each_s / cold.each_s,
            target="overhead under 20 ms",
            reached=warm.overhead_ms < 20,
            note=f"{warm.overhead_ms:.1f} ms of it beside the task; `true` takes {true.each_s * 1000:.1f} ms per child",
            details={run.way: run.line() for run in runs},
        )
    ]


def compare(workspace: Path, cold: int, warm: int, *, gpu: bool) -> Iterator[Run]:
    """Run three arrays under one daemon, one child at a time: `true`, a process each, a warm worker."""
    data = Path(tempfile.mkdtemp(prefix="warm-", dir=workspace))
    # As this user: the job runs this very interpreter, which others may not be able to reach.
    options = ["--port", "0", "--job-user", getpass.getuser(), "--memory-mib", str(2 * _MEMORY_MIB)]
    options += [] if gpu else ["--gpus", "none", "--vcpus", "1"]
    command = [sys.executable, "-m", "windfall.cli"]
    with open(data.with_suffix(".log"), "wb") as log:
        daemon = subprocess.Popen(
            [*command, "up", "--data", str(data), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
        )
    assert daemon.stdout is not None
    try:
        if not daemon.stdout.readline():
            raise RuntimeError(data.with_suffix(".log").read_text())
        client = Client(find_endpoint(data))
        _declare(client)
        for way, children in (("true", warm), ("cold", cold), ("warm", warm)):
            yield _run(client, workspace, way, children, gpu=gpu)
    finally:
        down = [*command, "down", "--kill", "--data", str(data)]
        subprocess.run(down, capture_output=True, check=False, env=environment())
        daemon.wait(60)


def _declare(client: Client) -> None:
    resources = {
        "type": "EC2",
        "minvCpus": 0,
        "maxvCpus": 256,
        "instanceTypes": ["optimal"],
        "subnets": ["s"],
    }
    client.batch(
        "CreateComputeEnvironment",
        computeEnvironmentName="host",
        type="MANAGED",
        computeResources=resources | {"instanceRole": "r"},
    )
    order = [{"order": 1, "computeEnvironment": "host"}]
    client.batch("CreateJobQueue", jobQueueName="host", priority=1, computeEnvironmentOrder=order)


def _run(client: Client, workspace: Path, way: str, children: int, *, gpu: bool) -> Run:
    function = "torch_product" if gpu else "numpy_product"
    times = workspace / f"times-{way}-{time.monotonic_ns()}"
    variables = {
        "PYTHONPATH": environment()["PYTHONPATH"],
        "BENCH_TIMES": str(times),
        # As many threads as the job has vCPUs: more would be held back by its own CPU quota.
        "OPENBLAS_NUM_THREADS": "1",
        # A rehearsal without a GPU: BENCH_DEVICE=cpu WINDFALL_GPUS=simulated:1.
        "BENCH_DEVICE": os.environ.get("BENCH_DEVICE", "cuda"),
    }
    needs = {"VCPU": "1", "MEMORY": str(_MEMORY_MIB)} | ({"GPU": "1"} if gpu else {})
    commands = {
        "true": ["true"],
        "cold": [sys.executable, "-m", "bench.warm_job", function],
        "warm": [sys.executable],
    }
    client.batch(
        "RegisterJobDefinition",
        jobDefinitionName=way,
        type="container",
        containerProperties={
            "image": "windfall/host",
            "command": commands[way],
            "environment": [{"name": name, "value": value} for name, value in variables.items()],
            "resourceRequirements": [{"type": name, "value": value} for name, value in needs.items()],
        },
    )
    tags = {"windfall:worker": f"bench.warm_job:{function}"} if way == "warm" else {}
    begin = time.monotonic()
    job_id = client.batch(
        "SubmitJob",
        jobName=way,
        jobQueue="host",
        jobDefinition=way,
        arrayProperties={"size": children},
        tags=tags,
    )["jobId"]
    while True:
        [job] = client.batch("DescribeJobs", jobs=[job_id])["jobs"]
        if job["status"] in ("SUCCEEDED", "FAILED"):
            break
        time.sleep(0.02)
    wall_s = (job["stoppedAt"] - job["createdAt"]) / 1000 if "stoppedAt" in job else time.monotonic() - begin
    if job["status"] == "FAILED":
        raise RuntimeError(f"the {way} array failed: {job}")
    lines = [line.split() for line in times.read_text().splitlines()] if times.exists() else []
    seconds: dict[str, list[float]] = {"0": [], "1": []}
    for first, took, _ in lines:
        seconds[first].append(float(took))
    return Run(way, children, wall_s, seconds["1"], seconds["0"])


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.warm_workers", description=__doc__)
    parser.add_argument("--cold", type=int, default=60, help="children with a process each")
    parser.add_argument("--warm", type=int, default=300, help="children in a warm worker")
    parser.add_argument("--gpu", action="store_true", help="512 x 512 products with PyTorch on one GPU")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="windfall-bench-") as workspace:
        Path(workspace).chmod(0o711)
        print("512 x 512 with PyTorch on a GPU" if given.gpu else "256 x 256 with numpy on one vCPU")
        print(HEADING)
        runs = {}
        for run in compare(Path(workspace), given.cold, given.warm, gpu=given.gpu):
            print(run.line(), flush=True)
            runs[run.way] = run.each_s
        print(f"a warm child takes {runs['cold'] / runs['warm']:.1f} times less than a cold one")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
