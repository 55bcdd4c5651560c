"""Runs the benchmark's jobs through the daemon like any client, one after another, and reads their logs.

One after another, because two that run at once would measure each other. Must not know what the results mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windfall.cli.client import Client
from windfall.cli.errors import CliError
from windfall.cli.listing import FINISHED
from windfall.cli.log_reading import LogFollower, log_group, read_all, streams
from windfall.cli.notes import note
from windfall.cli.submitting import JobRequest, submit
from windfall.cli.watching import watch

Job = dict[str, Any]
Hear = Callable[[list[str]], None]

#: What the program answers when the library sees no GPU.
NO_DEVICE = 3
#: The variables by which the libraries under numpy and PyTorch learn how many threads to use.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class OfferedMachine:
    """The machine that the daemon offers, as far as the benchmark cares."""

    vcpus: int
    memory_mib: int
    #: Names of the GPUs that are none of a simulation.
    gpus: tuple[str, ...]
    simulated_gpus: int


class JobRunner:
    """Submits with one client into one queue."""

    def __init__(self, client: Client, data: Path | None, queue: str | None) -> None:
        self._client = client
        self._data = data
        self._queue = queue

    def place(self) -> OfferedMachine:
        """What the daemon's machine has; an error while its agent is away."""
        machine = self._client.own("Status").get("machine")
        if not machine:
            raise CliError("the daemon's machine is not connected yet; try again in a moment")
        real = [gpu["name"] for gpu in machine["gpus"] if not gpu["simulated"]]
        return OfferedMachine(
            max(1, int(machine["vcpus"])),
            int(machine["memoryMib"]),
            tuple(real),
            len(machine["gpus"]) - len(real),
        )

    def submit(self, wanted: JobRequest, tags: dict[str, str] | None = None) -> str:
        """Submit one job or array; the answer is its id."""
        # The queue is chosen, or made, with the first job: a command line that is wrong must leave nothing behind.
        self._queue, submitted = submit(self._client, replace(wanted, queue=self._queue), tags)
        return str(submitted["jobId"])

    def finish(self, job_id: str, hear: Hear | None = None) -> Job:
        """Wait for a job's end while `hear` gets its lines; leaving meanwhile stops the job."""
        follower = LogFollower(
            lambda events: hear([str(event["message"]) for event in events]) if hear else None
        )

        def look(client: Client, job: Job) -> bool:
            return follower.catch_up(client, job) if hear else False

        try:
            return watch(self._client, self._data, job_id, look, lambda job: job["status"] in FINISHED)
        except KeyboardInterrupt:
            with contextlib.suppress(CliError):
                self._client.batch("TerminateJob", jobId=job_id, reason="Ctrl-C in windfall bench")
            raise

    def measure(self, wanted: JobRequest, hear: Hear) -> Job | None:
        """Run one job of the suite; None when its library saw no GPU."""
        job_id = self.submit(with_threads(wanted))
        note(f"job {job_id} ({wanted.name}) measures")
        job = self.finish(job_id, hear)
        if job["status"] == "SUCCEEDED":
            return job
        if (job.get("container") or {}).get("exitCode") == NO_DEVICE:
            return None
        raise failed(job)

    def described(self, job_ids: Sequence[str]) -> list[Job]:
        """The jobs as they are now, in any number."""
        jobs: list[Job] = []
        for start in range(0, len(job_ids), 100):
            jobs += self._client.batch("DescribeJobs", jobs=list(job_ids[start : start + 100]))["jobs"]
        return jobs

    def children_ends(self, array_id: str, size: int) -> list[Job]:
        """The children of an array, each with its times."""
        return self.described([f"{array_id}:{index}" for index in range(size)])

    def lines(self, job: Job) -> list[str]:
        """All that a finished job's latest attempt has printed."""
        stream = next(iter(streams(job)[-1:]), None)
        if stream is None:
            return []
        pages = read_all(self._client, log_group(job), stream)
        return [str(event["message"]) for page in pages for event in page]


def with_threads(wanted: JobRequest) -> JobRequest:
    """The same with as many threads as it has vCPUs."""
    return replace(
        wanted, variables={**dict.fromkeys(THREAD_VARIABLES, str(wanted.vcpus)), **wanted.variables}
    )


def failed(job: Job) -> CliError:
    """What to say about a job of the benchmark that did not work."""
    container = job.get("container") or {}
    reason = container.get("reason") or job.get("statusReason") or "no reason is known"
    code = container.get("exitCode")
    ended = f" (exit code {code})" if code is not None else ""
    return CliError(
        f"the job {job['jobName']}{ended} failed: {reason}; read `windfall logs {job['jobId']}`, and if its Python"
        " is the cause, name one that jobs may run with --python"
    )
