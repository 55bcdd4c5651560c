"""Restart with 100,000 live jobs: from the start of the process until it listens, with nothing lost.

The store is filled by the real reactor and commits; the environment is DISABLED, so that all of them still wait
when they are counted.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

from bench.results import Bench, Result, middle
from bench.running_daemon import DEFINITION, ENVIRONMENT, MEMORY_MIB, QUEUE, VCPUS, RunningDaemon
from bench.wire import Connection
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.control.events import (
    CreateComputeEnvironment,
    CreateJobQueue,
    Event,
    RegisterJobDefinition,
    SubmitJob,
)
from windfall.control.reactor import close, handle
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.store.opening import open_store

TARGET_S = 5.0
ROUND = 1_000


def measure(bench: Bench) -> list[Result]:
    """Fill a data directory once and start a daemon on it a few times, beside one on an empty directory."""
    jobs = bench.count(100_000, 10_000)
    data = Path(tempfile.mkdtemp(prefix="restart-", dir=bench.workspace))
    begin = time.perf_counter()
    fill(data, jobs)
    bench.say(f"filled a store with {jobs:,} live jobs in {time.perf_counter() - begin:.1f} s")
    times, empty = [], []
    for number in range(1, bench.count(3, 2) + 1):
        with RunningDaemon(bench.workspace, 2) as daemon:
            empty.append(daemon.started_in_s)
        with RunningDaemon(bench.workspace, 2, data) as daemon:
            times.append(daemon.started_in_s)
            _check(daemon, jobs)
        bench.say(f"restart {number}: {times[-1]:.2f} s with {jobs:,} live jobs, {empty[-1]:.2f} s with none")
    value = middle(times)
    return [
        Result(
            f"restart with {jobs:,} live jobs, process start to listening",
            value,
            "s",
            middle(empty),
            "the same with an empty store, s",
            target=f"{TARGET_S:.0f} s",
            reached=value <= TARGET_S,
            note="all jobs are there afterwards (counted by the daemon) and none was run; "
            "the agent is started anew in both",
            details={"runs": times, "empty": empty},
        )
    ]


def fill(data: Path, jobs: int) -> None:
    """Write live single jobs as a daemon would have written them."""
    (data / "store").mkdir(mode=0o700)
    store = open_store(f"sqlite:///{data / 'store' / 'windfall.db'}")
    state = State()
    now = time.time_ns() // 1_000_000
    environment = ComputeEnvironment(EnvironmentName(ENVIRONMENT), Provisioning.EC2, 0, 2, Switch.DISABLED)
    definition = JobDefinition(DEFINITION, 1, ContainerSpec("none", Resources(VCPUS, MEMORY_MIB), ("true",)))
    queue = JobQueue(QueueName(QUEUE), 1, (environment.name,))
    events: list[Event] = [CreateComputeEnvironment(environment), CreateJobQueue(queue)]
    events.append(RegisterJobDefinition(definition))
    events += [
        SubmitJob(JobId(str(uuid.uuid4())), f"job-{number}", queue.name, DEFINITION) for number in range(jobs)
    ]
    for first in range(0, len(events), ROUND):
        round_ = Round(now)
        for event in events[first : first + ROUND]:
            handle(state, event, round_)
        close(state, round_)
        store.commit(round_.changes)
    store.close()


def _check(daemon: RunningDaemon, jobs: int) -> None:
    if daemon.ready["live_jobs"] != jobs:
        raise RuntimeError(f"{daemon.ready['live_jobs']} live jobs after the restart instead of {jobs}")
    connection = Connection(daemon.account)
    listed = connection.call("ListJobs", jobQueue=QUEUE, jobStatus="RUNNABLE", maxResults=1)["jobSummaryList"]
    if len(listed) != 1 or daemon.log_count():
        raise RuntimeError("the restarted daemon does not show its jobs as RUNNABLE, or ran some")
    connection.close()
