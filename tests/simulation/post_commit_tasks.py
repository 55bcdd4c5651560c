"""Post-commit tasks of the simulated daemon: it creates training jobs of service jobs and invokes schedules' targets.

A task takes a while and dies with its process; some are run a second time, as after a crash between doing and
recording. The core is told what it refuses, as by the real daemon.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.training_gangs import SHARED, peers_of, staging_at
from windfall.control import events
from windfall.control.commands.calendar import DeadLetterWritten, StartRun, TargetFailed
from windfall.control.commands.service_jobs import TrainingRefused
from windfall.control.instructions import CreateTraining, InvokeTarget, WriteDeadLetter
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import TimeLimits
from windfall.jobs.resources import Resources

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Instructions that no engine carries out.
POST_COMMIT_TASKS = CreateTraining | InvokeTarget | WriteDeadLetter
#: Where training jobs run; made by the first of them.
TRAINING = SHARED
#: A payload that makes no training job.
BAD_PAYLOAD = '{"TrainingJobName": "bad"}'
LIMITS = (
    TimeLimits(run_s=20, wait_s=600, pending_s=4),
    TimeLimits(run_s=20, wait_s=60),
    TimeLimits(run_s=60),
)


class PostCommitTasks:
    """Runs them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs = 0
        #: Jobs that were submitted for ticks, by the tick; the core takes one of each at most.
        self.asked: dict[JobId, tuple[str, int]] = {}

    def carry_out(self, asked: Any) -> None:
        """Begin one."""
        runners: dict[type, Callable[[Any], None]] = {
            CreateTraining: self._create,
            InvokeTarget: self._invoke,
            WriteDeadLetter: self._write,
        }
        runner = runners[type(asked)]
        alive = self.world.daemon.for_this_process(lambda: runner(asked))
        self.world.after(self.world.delay(0, 2000), alive)
        if self.world.fault(0.1):
            self.world.after(self.world.delay(0, 6000), alive)

    def _create(self, asked: CreateTraining) -> None:
        rng = self.world.rng

        def refused(reason: str) -> None:
            self.world.daemon.execute(TrainingRefused(asked.job_id, asked.training_job, reason), None)

        def answered(reply: Any) -> None:
            if isinstance(reply, Rejected):
                refused(str(reply))

        if asked.payload == BAD_PAYLOAD:
            return refused("ValidationException: it names no algorithm")
        hosts = json.loads(asked.payload)["ResourceConfig"]["InstanceCount"]
        size = Resources(rng.choice((1, 2)), 1024, rng.choice((0, 0, 1)))
        staging = staging_at(f"s3://simulated/services/{asked.training_job}")
        command = events.SubmitTraining(
            JobId(f"training-{asked.training_job}"),
            asked.training_job,
            TRAINING,
            ContainerSpec("image", size, ("train",)),
            staging,
            rng.choice(LIMITS),
            rng.choice((1, 3)),
            service_job=asked.job_id,
            nodes=peers_of([size] * hosts, staging) if hosts > 1 else None,
        )
        self.world.daemon.execute(command, answered)
        return None

    def _invoke(self, asked: InvokeTarget) -> None:
        key, due_at, rng = asked.schedule.key, asked.due_at, self.world.rng

        def failed(error: str, again: bool) -> None:
            self.world.daemon.execute(TargetFailed(key, due_at, error, again), None)

        def answered(reply: Any) -> None:
            if isinstance(reply, Rejected):
                failed(str(reply), again=False)

        if self.world.fault(0.15):
            return failed("simulated trouble", again=rng.random() < 0.7)
        # Not one id for each tick, as in earnest: a second run of a tick must be seen here, not refused.
        self.runs += 1
        job_id = JobId(f"run-{self.runs}")
        self.asked[job_id] = (key, due_at)
        submission = events.SubmitJob(
            job_id,
            f"run-of-{asked.schedule.name}",
            QueueName(rng.choice(("high", "high", "low"))),
            "work",
            overrides=ContainerOverrides(vcpus=1, memory_mib=256),
            timeout_s=rng.choice((None, 5)),
        )
        self.world.daemon.execute(StartRun(key, due_at, submission), answered)
        return None

    def _write(self, asked: WriteDeadLetter) -> None:
        self.world.daemon.execute(DeadLetterWritten(asked.schedule.key, asked.due_at), None)
