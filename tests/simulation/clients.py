"""Simulated callers: submit, cancel, terminate, declare and change things, in the proportions of a busy day."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.calendars import act_on_schedules, declare_groups
from tests.simulation.gangs import DEFINITIONS, submit_gang
from tests.simulation.gpus import GPU_TAGS
from tests.simulation.post_commit_tasks import TRAINING
from tests.simulation.quota_shares import (
    QUOTA_QUEUE,
    change_quota_share,
    declare_quota_policy,
    declare_quota_shares,
    quota_share_in,
    submit_burst,
)
from tests.simulation.service_queues import act_on_services, declare_services, submit_service_job
from tests.simulation.shares import FAIR_QUEUE, change_policy, declare_policy, share_in
from tests.simulation.tokens import change_tokens, declare_tokens, wanted_tokens
from tests.simulation.training_gangs import hosts_in, submit_training_gang
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.control import events
from windfall.control.commands import turns
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, JobDefinition
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import AttemptToken, EnvironmentName, JobId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import JobKind, TimeLimits
from windfall.jobs.resources import Resources
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.staging import Checkpoints, Staging

if TYPE_CHECKING:
    from tests.simulation.world import World

ENVIRONMENTS = {
    "shared-a": ComputeEnvironment(EnvironmentName("shared-a"), Provisioning.EC2, 0, 4),
    "shared-b": ComputeEnvironment(EnvironmentName("shared-b"), Provisioning.SPOT, 0, 2),
    "cloud": ComputeEnvironment(
        EnvironmentName("cloud"), Provisioning.SPOT, 0, 8, allocation="SPOT_PRICE_CAPACITY_OPTIMIZED"
    ),
    "cloud-reserve": ComputeEnvironment(
        EnvironmentName("cloud-reserve"), Provisioning.EC2, 0, 4, allocation="BEST_FIT_PROGRESSIVE"
    ),
}
QUEUES = {
    "high": JobQueue(QueueName("high"), 10, (EnvironmentName("shared-a"),)),
    "low": JobQueue(
        QueueName("low"),
        1,
        (EnvironmentName("shared-b"), EnvironmentName("cloud"), EnvironmentName("cloud-reserve")),
    ),
    "fair": FAIR_QUEUE,
    "quota": QUOTA_QUEUE,
}
THEMES = ("fair", "quota", "services", "calendar", "hosts", "gangs", "alike")
#: No machine of this world has so many.
TOO_MANY_GPUS = 9
TAGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"windfall:checkpoint": "true"},
    {"windfall:checkpoint": "true", "windfall:budget-usd": "0.4"},
    {"windfall:budget-usd": "0.2"},
    {"windfall:checkpoint": "somewhere"},
    # The second works longer than it says, the third can hardly be kept, and the last not at all.
    {"windfall:checkpoint": "true", "windfall:deadline": "2m", "windfall:work": "5s"},
    {"windfall:checkpoint": "true", "windfall:deadline": "30s", "windfall:work": "1s"},
    {"windfall:deadline": "12s", "windfall:work": "6s"},
    {"windfall:deadline": "6s", "windfall:work": "6s"},
)
LIMITS = (
    TimeLimits(run_s=10),
    TimeLimits(run_s=8, wait_s=20),
    TimeLimits(run_s=30, wait_s=60, pending_s=10),
    TimeLimits(run_s=60),
)
RETRIES = (
    None,
    RetryStrategy(3),
    RetryStrategy(
        3, (ExitRule(Action.RETRY, on_status_reason="Host EC2*"), ExitRule(Action.EXIT, on_reason="*"))
    ),
    RetryStrategy(2, (ExitRule(Action.EXIT, on_exit_code="7"),)),
)


class Clients:
    """Everybody who calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.submitted = 0
        self.environments = ENVIRONMENTS
        #: What most callers of this world are after; None for a bit of everything.
        self.theme: str | None = self.rng.choice((None, None, None, *THEMES))
        #: Ids of jobs that were asked for, answered or not.
        self.ids: list[JobId] = []
        #: Sizes of the arrays among them.
        self.arrays: dict[JobId, int] = {}
        self.actions: tuple[tuple[int, Callable[[], None]], ...] = (
            (40, self.submit_single),
            (18, self.submit_array),
            (10 if self.theme != "gangs" else 60, lambda: submit_gang(self)),
            (7, self.cancel),
            (8, self.terminate),
            (4, self.hold_or_release),
            (2, self.prioritize),
            (3, self.update_queue),
            (3, self.update_environment),
            (2, self.change_image),
            (1, self.tag),
            (1, self.delete_queue),
            (2, self.delete_environment),
            (1, self.register_definition),
            (8 if self.theme != "gangs" else 40, self.submit_training),
            (10 if self.theme != "hosts" else 100, lambda: submit_training_gang(self)),
            (2, self.delete_training),
            (5, self.interrupt_job),
            (2, self.interrupt_instance),
            (4, lambda: change_tokens(self)),
            (2 if self.theme != "fair" else 8, lambda: change_policy(self)),
            (10 if self.theme != "services" else 120, lambda: submit_service_job(self)),
            (4 if self.theme != "services" else 12, lambda: act_on_services(self)),
            (5 if self.theme != "calendar" else 60, lambda: act_on_schedules(self)),
            (3 if self.theme != "quota" else 8, lambda: change_quota_share(self)),
            ({"quota": 80, "gangs": 60}.get(self.theme or "", 4), lambda: submit_burst(self)),
        )
        if self.theme == "alike":
            taking_away = (self.cancel, self.terminate, self.interrupt_job, self.interrupt_instance)
            rest = (self.submit_single, self.hold_or_release, self.update_environment)
            self.actions = (
                (20, self.submit_alike),
                *((4, action) for action in taking_away),
                *((2, action) for action in rest),
            )
        #: Tokens of training jobs whose records were removed, and the names that may be used again.
        self.deleted: set[AttemptToken] = set()
        self.names: list[JobId] = []
        self.weights = [weight for weight, _ in self.actions]

    def declare(self) -> None:
        """What must exist before a job can be submitted; asked for until it does."""
        for environment in self.environments.values():
            self.call(events.CreateComputeEnvironment(environment))
        declare_policy(self)
        declare_quota_policy(self)
        for queue in QUEUES.values():
            self.call(events.CreateJobQueue(queue))
        declare_quota_shares(self)
        declare_tokens(self)
        declare_services(self)
        declare_groups(self)
        container = ContainerSpec("image", Resources(1, 1024), ("run", "Ref::what"))
        self.call(events.RegisterJobDefinition(JobDefinition("work", 0, container, {"what": "it"})))
        mapped = ContainerSpec("mapped", Resources(1, 512))
        self.call(events.RegisterJobDefinition(JobDefinition("mapped", 0, mapped, timeout_s=60)))
        for definition in DEFINITIONS:
            self.call(events.RegisterJobDefinition(definition))

    def enable_everything(self) -> None:
        """Leave nothing switched off, so that all that can run will run."""
        # Limits, tokens and switches may be other ones than those that somebody was asked to leave by.
        self.world.disturbances += 1
        self.declare()
        for name in self.environments.values():
            self.call(events.UpdateComputeEnvironment(name.name, Switch.ENABLED, 0, name.max_vcpus))
        for queue in QUEUES.values():
            self.call(events.UpdateJobQueue(queue.name, Switch.ENABLED, None, queue.environments))
        self.release_all()

    def release_all(self) -> None:
        """Nobody holds a job any more."""
        for job in list(self.world.daemon.state.jobs.values()):
            if job.held_by is not None:
                self.call(turns.ReleaseJob(job.id))

    def act(self) -> None:
        """One caller does something."""
        ((_, action),) = self.rng.choices(self.actions, self.weights)
        if action in (
            self.update_queue,
            self.update_environment,
            self.delete_queue,
            self.delete_environment,
            self.interrupt_instance,
            self.hold_or_release,
            self.prioritize,
        ):
            self.world.disturbances += 1
        action()

    def call(self, command: Any, answer: Callable[[Any], None] = lambda _: None) -> None:
        """Send a command; a refusal is an answer like any other."""
        self.world.daemon.execute(command, answer)

    # Jobs -----------------------------------------------------------------------------------------------------

    def submit_single(self) -> None:
        """A job, perhaps with dependencies, retries, a timeout or GPUs."""
        self._submit(None, self._dependencies(None))

    def submit_array(self) -> None:
        """An array, perhaps gated child by child."""
        size = self.rng.choice((2, 3, 3, 3, 5))
        self._submit(size, self._dependencies(size))

    def submit_alike(self) -> None:
        """Many short jobs that are all the same, as an array or one by one."""
        size, singles = self.rng.choice(((8, 1), (20, 1), (None, 6)))
        retry = self.rng.choice(RETRIES)
        for _ in range(singles):
            self.submitted += 1
            name = f"name-{self.submitted}"
            self.submit(
                events.SubmitJob(
                    JobId(f"job-{self.submitted}"), name, QueueName("low"), "work", size, retry=retry
                ),
                size,
            )

    def _submit(self, size: int | None, depends_on: tuple[Dependency, ...]) -> None:
        self.submitted += 1
        job_id = JobId(f"job-{self.submitted}")
        gpus = self.rng.choice((None, None, 0, 1, 1, 2))
        if self.rng.random() < 0.02:
            gpus = TOO_MANY_GPUS
        overrides = ContainerOverrides(
            vcpus=self.rng.choice((None, 0.5, 2, 4)), memory_mib=self.rng.choice((None, 4096)), gpus=gpus
        )
        queue = self.rng.choice(("high", "low", "fair", "quota"))
        if self.theme in QUEUES and self.rng.random() < 0.8:
            queue = self.theme or queue
        share, priority = share_in(queue, self.rng)
        if queue == QUOTA_QUEUE.name:
            share, priority = quota_share_in(queue, self.rng)
        command = events.SubmitJob(
            job_id,
            f"name-{self.submitted}",
            QueueName(queue),
            self.rng.choice(("work", "work", "work", "mapped")),
            size,
            depends_on,
            overrides,
            retry=self.rng.choice(RETRIES),
            timeout_s=self.rng.choice((None, None, 5)),
            tags={**self.rng.choice(TAGS), **(self.rng.choice(GPU_TAGS) if gpus else {})},
            finished=self.world.store.finished([d.job_id for d in depends_on if d.job_id is not None]),
            consumables=wanted_tokens(self.rng),
            share=share,
            priority=priority,
        )

        self.submit(command, size)

    def submit(self, command: events.SubmitJob, size: int | None) -> None:
        """Ask for a job; one that was answered must never be lost."""
        job_id = command.job_id

        def answered(reply: Any) -> None:
            if not isinstance(reply, Rejected):
                self.world.acknowledged[job_id] = size
                self.ids.append(job_id)
                if size is not None:
                    self.arrays[job_id] = size

        self.call(command, answered)

    def submit_training(self) -> None:
        """A training job, perhaps with limits and a budget, perhaps under a name that was used before."""
        self.submitted += 1
        again = self.names and self.rng.random() < 0.3
        job_id = self.names.pop() if again else JobId(f"training-{self.submitted}")
        resources = Resources(self.rng.choice((1, 2)), 1024, self.rng.choice((0, 0, 1)))
        uri = f"s3://simulated/training/{self.submitted}"
        command = events.SubmitTraining(
            job_id,
            job_id.removeprefix("training-"),
            TRAINING,
            ContainerSpec("image", resources, ("train",)),
            Staging(Checkpoints(uri, publish=True)),
            self.rng.choice(LIMITS),
            self.rng.choice((1, 3)),
            tags=self.rng.choice(({}, {}, {"windfall:budget-usd": "0.5"})),
        )
        self.submit_training_job(command)

    def submit_training_job(self, command: events.SubmitTraining) -> None:
        """Ask for a training job; one that was answered must never be lost."""

        def answered(reply: Any) -> None:
            if not isinstance(reply, Rejected):
                self.world.acknowledged[command.job_id] = None
                self.ids.append(command.job_id)

        self.call(command, answered)

    def delete_training(self) -> None:
        """The record of a training job that has ended is removed; its name is free again."""
        ended = [
            job
            for job in self.world.store.jobs.values()
            if job.submission.kind is JobKind.TRAINING and job.finished and job.parent is None
        ]
        if not ended:
            return
        job = self.rng.choice(ended)
        hosts = hosts_in(self.world.store, job)
        self.deleted.update(attempt.token for host in hosts for attempt in host.attempts)
        self.world.acknowledged.pop(job.id, None)
        self.ids = [one for one in self.ids if one != job.id]

        def answered(reply: Any) -> None:
            if not isinstance(reply, Rejected) and job.submission.service_job is None:
                self.names.append(job.id)

        self.call(events.DeleteTraining(job.id), answered)

    def interrupt_job(self) -> None:
        """A drill for one job."""
        placed = [job.id for job in self.world.daemon.state.attempts.values()]
        job_id = self.rng.choice(placed) if placed and self.rng.random() < 0.8 else self._some_job()
        self.call(events.InterruptJob(job_id, self.rng.choice((0, 1, 4))))

    def interrupt_instance(self) -> None:
        """A drill for an instance, the host's own included."""
        instances = list(self.world.daemon.state.instances)
        if instances:
            self.call(events.InterruptInstance(self.rng.choice(instances), self.rng.choice((0, 2, 4))))

    def _dependencies(self, size: int | None) -> tuple[Dependency, ...]:
        found = []
        if size is not None and self.rng.random() < 0.3:
            found.append(Dependency(type=DependencyType.SEQUENTIAL))
        # Not on training jobs: their records may go away.
        recent = [one for one in self.ids if not one.startswith("training")][-8:]
        if recent and self.rng.random() < (0.35 if size is None else 0.6):
            for _ in range(self.rng.randint(1, 2)):
                alike = [one for one in recent if self.arrays.get(one) == size]
                other = self.rng.choice(alike or recent)
                other_size = self.arrays.get(other)
                if other_size is not None and size == other_size and self.rng.random() < 0.7:
                    found.append(Dependency(other, DependencyType.N_TO_N))
                elif other_size is not None and self.rng.random() < 0.3:
                    found.append(Dependency(JobId(f"{other}:{self.rng.randrange(other_size)}")))
                else:
                    found.append(Dependency(other))
        return tuple(found)

    def _some_job(self) -> JobId:
        if not self.ids:
            return JobId("job-unknown")
        job_id = self.rng.choice(self.ids[-10:])
        size = self.arrays.get(job_id)
        if size is not None and self.rng.random() < 0.5:
            return JobId(f"{job_id}:{self.rng.randrange(size + 1)}")
        return job_id

    def cancel(self) -> None:
        """Somebody has second thoughts."""
        self.call(events.CancelJob(self._some_job(), "second thoughts"))

    def hold_or_release(self) -> None:
        """Somebody wants a job to wait, or has waited long enough."""
        held = [job.id for job in self.world.daemon.state.jobs.values() if job.held_by is not None]
        if held and self.rng.random() < 0.6:
            self.call(turns.ReleaseJob(self.rng.choice(held)))
        else:
            self.call(turns.HoldJob(self._some_job(), "somebody"))

    def prioritize(self) -> None:
        """Somebody finds a job more or less urgent than it was."""
        self.call(turns.SetPriority(self._some_job(), self.rng.choice((0, 1, 5, 9999)), "somebody"))

    def terminate(self) -> None:
        """Somebody has had enough."""
        placed = [job.id for job in self.world.daemon.state.attempts.values()]
        job_id = self.rng.choice(placed) if placed and self.rng.random() < 0.5 else self._some_job()
        self.call(events.TerminateJob(job_id, "had enough"))

    def terminate_endless(self) -> None:
        """What runs for ever is stopped by its owner."""
        for job in list(self.world.daemon.state.attempts.values()):
            self.call(events.TerminateJob(job.id, "it would never end"))

    # Declarations ---------------------------------------------------------------------------------------------

    def update_queue(self) -> None:
        """A queue is switched, or gets another priority."""
        name = QueueName(self.rng.choice(list(QUEUES)))
        switch = self.rng.choice((None, Switch.ENABLED, Switch.DISABLED, Switch.ENABLED))
        self.call(events.UpdateJobQueue(name, switch, self.rng.choice((None, 1, 5, 20))))

    def update_environment(self) -> None:
        """An environment is switched, or may have more or less."""
        name = EnvironmentName(self.rng.choice(list(ENVIRONMENTS)))
        switch = self.rng.choice((None, Switch.ENABLED, Switch.DISABLED, Switch.ENABLED))
        self.call(events.UpdateComputeEnvironment(name, switch, None, self.rng.choice((None, 2, 4, 8))))

    def change_image(self) -> None:
        """The image of one definition becomes known, or unknown."""
        if self.rng.random() < 0.7:
            self.call(events.AddImage(ImageMapping("map*", "/srv/mapped", ("python3", "train.py"))))
        else:
            self.call(events.RemoveImage("map*"))

    def tag(self) -> None:
        """Somebody labels a job."""
        self.call(events.TagResource("job", self._some_job(), {"team": str(self.rng.randint(0, 9))}))

    def delete_queue(self) -> None:
        """A queue goes away with its jobs, and is declared again."""
        name = QueueName(self.rng.choice(list(QUEUES)))
        self.call(events.UpdateJobQueue(name, Switch.DISABLED))
        self.call(events.DeleteJobQueue(name))
        self.call(events.CreateJobQueue(QUEUES[name]))
        if name == QUOTA_QUEUE.name:
            declare_quota_shares(self)

    def delete_environment(self) -> None:
        """An environment goes away, if nothing runs there, and is declared again."""
        low, cloud = QUEUES["low"], ENVIRONMENTS["cloud"]
        self.call(events.UpdateJobQueue(low.name, environments=low.environments[:1]))
        self.call(events.UpdateComputeEnvironment(cloud.name, Switch.DISABLED))
        self.call(events.DeleteComputeEnvironment(cloud.name))
        self.call(events.CreateComputeEnvironment(cloud))
        self.call(events.UpdateJobQueue(low.name, environments=low.environments))

    def register_definition(self) -> None:
        """A new revision, and perhaps the end of the old one."""
        container = ContainerSpec("image", Resources(1, 1024), ("run", "again"))
        self.call(events.RegisterJobDefinition(JobDefinition("work", 0, container, {"what": "it"})))
        if self.rng.random() < 0.5:
            self.call(events.DeregisterJobDefinition("work", 1))
