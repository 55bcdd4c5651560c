"""What deadlines cost the loop: a second's work with 100,000 queued jobs, without and with 1,000 deadlines."""

from __future__ import annotations

import time
import uuid

from bench.results import Bench, Result, middle
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.control.events import (
    CreateComputeEnvironment,
    CreateJobQueue,
    Event,
    RegisterJobDefinition,
    SubmitJob,
    TimePassed,
)
from windfall.control.reactor import close, handle, schedule
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources

SPOT, STEADY, QUEUE = EnvironmentName("spot"), EnvironmentName("steady"), QueueName("queue")
SHAPES = 100
SECONDS = 180


def measure(bench: Bench) -> list[Result]:
    """The same backlog twice; time passes in seconds, and nothing has room."""
    jobs, deadlines = bench.count(100_000, 10_000), bench.count(1_000, 100)
    without, with_some = _seconds(jobs, 0), _seconds(jobs, deadlines)
    ratio = middle(with_some) / middle(without)
    words = f"{jobs:,} queued jobs, {deadlines:,} of them with a deadline"
    bench.say(f"a second with {words}: {middle(with_some):.2f} ms, without {middle(without):.2f} ms")
    return [
        Result(
            f"a second's work with {words}",
            middle(with_some),
            "ms",
            middle(without),
            "without deadlines, ms",
            ratio,
            "1.2 times",
            reached=ratio <= 1.2,
            note=f"worst of {len(with_some)}: {max(with_some):.2f} ms, {max(without):.2f} ms without",
        )
    ]


def _seconds(jobs: int, deadlines: int) -> list[float]:
    state, now = State(), 1_700_000_000_000
    shapes = [
        JobDefinition(f"shape-{number}", 1, ContainerSpec("none", Resources(1, 1024 + number), ("true",)))
        for number in range(SHAPES)
    ]
    _happen(
        *(state, now),
        CreateComputeEnvironment(ComputeEnvironment(SPOT, Provisioning.SPOT, 0, 64)),
        CreateComputeEnvironment(ComputeEnvironment(STEADY, Provisioning.EC2, 0, 64)),
        CreateJobQueue(JobQueue(QUEUE, 1, (SPOT, STEADY))),
        *(RegisterJobDefinition(shape) for shape in shapes),
    )
    for number in range(jobs):
        # Spread over the queue, and over the time between looks.
        due = deadlines and number % (jobs // deadlines) == 0
        tags = {"windfall:deadline": "8h", "windfall:work": "2h"} if due else {}
        name = f"job-{number}"
        command = SubmitJob(JobId(str(uuid.uuid4())), name, QUEUE, f"shape-{number % SHAPES}", tags=tags)
        _happen(state, now + number * 120_000 // jobs, command)
    now += 120_000
    spent = []
    for _ in range(SECONDS):
        now += 1_000
        round_ = Round(now)
        begin = time.process_time()
        handle(state, TimePassed(), round_)
        schedule(state, {}, round_)
        close(state, round_)
        spent.append((time.process_time() - begin) * 1000)
    return spent


def _happen(state: State, now: int, *events: Event) -> None:
    round_ = Round(now)
    for event in events:
        handle(state, event, round_)
    close(state, round_)
