"""Builders, so that a test reads as five lines of English: `a_world().with_host(gpus=2).submits(a_job("train"))`.

`a_world()` runs the real reactor and scheduler round by round over a store in memory, with no agent: the test says
what is reported.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.store import FakeStore
from windfall.aws_api.sagemaker.endings import SageMakerTexts
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import GpuDevice, Machine, Offer
from windfall.control import events
from windfall.control.changes import LogStream
from windfall.control.instructions import Instruction, LaunchInstance, StartAttempt
from windfall.control.reactor import close, handle, schedule
from windfall.control.rebuild import rebuild
from windfall.control.round import Round
from windfall.control.state import Rules, State
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, JobDefinition
from windfall.jobs.dependencies import Dependency, DependencyType
from windfall.jobs.ids import AttemptToken, EnvironmentName, JobId, MachineId, QueueName, attempt_token
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import JobState
from windfall.jobs.submitters import Submitter

HOST = MachineId("host")
START = 1_700_000_000_000
#: May name any storage.
ADMIN = Submitter(key_id="ADMIN", is_admin=True)


@dataclass(frozen=True)
class Submitted:
    """A SubmitJob command in the making."""

    command: events.SubmitJob

    def _with(self, **changes: Any) -> Submitted:
        return Submitted(replace(self.command, **changes))

    def gpus(self, count: int) -> Submitted:
        overrides = self.command.overrides or ContainerOverrides()
        return self._with(overrides=replace(overrides, gpus=count))

    def vcpus(self, count: float) -> Submitted:
        overrides = self.command.overrides or ContainerOverrides()
        return self._with(overrides=replace(overrides, vcpus=count))

    def array(self, size: int) -> Submitted:
        return self._with(array_size=size)

    def after(self, *job_ids: str) -> Submitted:
        """Waits for whole jobs."""
        return self._depends(*(Dependency(JobId(job_id)) for job_id in job_ids))

    def after_each_of(self, job_id: str) -> Submitted:
        """Waits child by child (N_TO_N)."""
        return self._depends(Dependency(JobId(job_id), DependencyType.N_TO_N))

    def one_by_one(self) -> Submitted:
        """Its children wait for one another (SEQUENTIAL)."""
        return self._depends(Dependency(type=DependencyType.SEQUENTIAL))

    def _depends(self, *more: Dependency) -> Submitted:
        return self._with(depends_on=(*self.command.depends_on, *more))

    def retried(self, attempts: int, *rules: Any) -> Submitted:
        return self._with(retry=RetryStrategy(attempts, tuple(rules)))

    def limited_to(self, timeout_s: int) -> Submitted:
        return self._with(timeout_s=timeout_s)

    def knowing(self, *finished: events.FinishedJob) -> Submitted:
        """What the store said of its dependencies."""
        return self._with(finished=finished)

    def of(self, definition: str) -> Submitted:
        return self._with(definition=definition)

    def tagged(self, **tags: str) -> Submitted:
        """With tags of our own, spelled `windfall:name`: `tagged(checkpoint="true", budget_usd="5")`."""
        named = {f"windfall:{name.replace('_', '-')}": value for name, value in tags.items()}
        return self._with(tags={**self.command.tags, **named})

    def wanting(self, **tokens: int) -> Submitted:
        """Needs so many tokens of consumable resources."""
        return self._with(consumables=tuple(tokens.items()))

    def under(self, share: str, priority: int | None = None) -> Submitted:
        """Submitted under a share."""
        return self._with(share=share, priority=priority)

    def of_tenant(self, tenant: str) -> Submitted:
        return self._with(submitter=Submitter(tenant))

    def in_queue(self, queue: str) -> Submitted:
        return self._with(queue=QueueName(queue))

    def by(self, submitter: Submitter) -> Submitted:
        return self._with(submitter=submitter)


def a_job(job_id: str = "job", queue: str = "queue", definition: str = "work") -> Submitted:
    """A submission of a job that asks one vCPU and 1,024 MiB."""
    name = f"name-of-{job_id}"
    return Submitted(events.SubmitJob(JobId(job_id), name, QueueName(queue), definition, submitter=ADMIN))


def a_definition(name: str = "work", **changes: Any) -> JobDefinition:
    """A definition of a command that needs little."""
    container = ContainerSpec("image", Resources(1, 1024), ("true",))
    return replace(JobDefinition(name, 0, container), **changes)


def a_machine(vcpus: float = 64, memory_mib: int = 262_144, gpus: int = 0) -> Machine:
    """The host, with simulated devices and all that keeps jobs of different tenants apart."""
    devices = tuple(GpuDevice(f"gpu{n}", "simulated", simulated=True) for n in range(gpus))
    return Machine(HOST, Resources(vcpus, memory_mib, gpus), devices, {"isolation": "process, bubblewrap"})


@dataclass
class TestWorld:
    """A state, a store, and the rounds that move them."""

    __test__ = False

    state: State = field(default_factory=lambda: State(Rules(aws_texts=SageMakerTexts())))
    store: FakeStore = field(default_factory=FakeStore)
    now: int = START
    machine: Machine = field(default_factory=a_machine)
    places: bool = True
    #: What could be launched for some environments; the others get a share of the host.
    offers: dict[str, tuple[Offer, ...]] = field(default_factory=dict)
    #: What the last round asked for.
    instructions: list[Instruction] = field(default_factory=list)
    #: Everything that was ever asked for.
    asked: list[Instruction] = field(default_factory=list)
    #: The log streams of all attempts.
    streams: list[LogStream] = field(default_factory=list)

    def happens(self, *happened: Any, tenant: str | None = None) -> Any:
        """One round with these events, committed; the answer is the last one's reply. Rejected is raised.

        On behalf of a tenant, if one is named.
        """
        round_ = Round(self.now)
        reply: Any = None
        for event in happened:
            command = event.command if isinstance(event, Submitted) else event
            reply = handle(self.state, command, round_, tenant)
        if self.places:
            share = (Offer("host", self.machine.total, 1, HOST),)
            offers = {name: self.offers.get(name, share) for name in self.state.environments}
            schedule(self.state, offers, round_)
        close(self.state, round_)
        self.store.commit(self.store.frozen(round_.changes))
        self.instructions = round_.instructions
        self.asked += round_.instructions
        self.streams += round_.changes.log_streams.values()
        return reply

    def later(self, duration_ms: int) -> TestWorld:
        """Time passes and is noticed."""
        self.now += duration_ms
        self.happens(events.TimePassed())
        return self

    def submits(self, *jobs: Submitted) -> TestWorld:
        """Jobs are submitted, each in a round of its own."""
        for job in jobs:
            self.happens(job)
        return self

    def declared(self, min_vcpus: int = 0, max_vcpus: int = 64) -> TestWorld:
        """An environment, a queue and a definition exist, and the environment has its instance."""
        name = EnvironmentName("environment")
        self.happens(
            events.CreateComputeEnvironment(ComputeEnvironment(name, Provisioning.EC2, min_vcpus, max_vcpus)),
            events.CreateJobQueue(JobQueue(QueueName("queue"), 1, (name,))),
            events.RegisterJobDefinition(a_definition()),
        )
        return self

    def with_environment(
        self,
        name: str = "spot",
        kind: Provisioning = Provisioning.SPOT,
        *,
        queue: str | None = None,
        priority: int = 1,
        **fields: Any,
    ) -> TestWorld:
        """One more environment, and a queue of the same name in front of it."""
        environment = ComputeEnvironment(
            EnvironmentName(name), kind, 0, fields.pop("max_vcpus", 64), **fields
        )
        self.happens(
            events.CreateComputeEnvironment(environment),
            events.CreateJobQueue(JobQueue(QueueName(queue or name), priority, (environment.name,))),
        )
        return self

    def ready(self) -> TestWorld:
        """Instances that were asked for are there: shares of the host, or machines of their own."""
        launches = [
            i for i in self.asked if isinstance(i, LaunchInstance) and i.instance in self.state.instances
        ]
        self.happens(*(events.InstanceReady(one.instance, self.machine_of(one)) for one in launches))
        return self

    def machine_of(self, launch: LaunchInstance) -> Machine:
        """The machine that an instance will be on."""
        if launch.offer.machine is not None:
            return self.machine
        size = launch.offer.resources
        kinds = launch.offer.gpus or (GpuDevice("", "simulated"),) * int(size.gpus)
        devices = tuple(replace(gpu, id=f"{launch.instance}-gpu{n}") for n, gpu in enumerate(kinds))
        return Machine(MachineId(f"m-{launch.instance}"), size, devices)

    def instance_of(self, job_id: str) -> str:
        """Where the newest attempt of a job is, or was."""
        return self.job(job_id).attempts[-1].instance

    def starts(self, *job_ids: str) -> TestWorld:
        """The processes of these jobs begin."""
        self.happens(*(events.AttemptStarted(self.token(job_id), self.now) for job_id in job_ids))
        return self

    def exits(self, job_id: str, code: int = 0, reason: str | None = None) -> TestWorld:
        """The process of a job ends."""
        self.happens(self.exit_of(job_id, code, reason))
        return self

    def exit_of(self, job_id: str, code: int = 0, reason: str | None = None) -> events.AttemptExited:
        """The report that the process of a job ended."""
        return events.AttemptExited(self.token(job_id), self.now, code, reason, self.now)

    def token(self, job_id: str) -> AttemptToken:
        """The token of a job's newest attempt."""
        attempts = self.store.jobs[JobId(job_id)].attempts
        return attempts[-1].token if attempts else attempt_token(JobId(job_id), 0)

    def asked_for(self, kind: type[Any]) -> list[Any]:
        """What of this kind the last round asked for."""
        return [one for one in self.instructions if isinstance(one, kind)]

    def job(self, job_id: str) -> Job:
        """A job as the store has it."""
        return self.store.jobs[JobId(job_id)]

    def state_of(self, job_id: str) -> JobState:
        """A job's state in the store; a child without a record has that of the rest."""
        if job_id in self.store.jobs:
            return self.job(job_id).state
        rest = self.job(job_id.partition(":")[0]).rest
        assert rest is not None
        return rest

    def states_of(self, array: str) -> list[JobState]:
        """The states of an array's children."""
        size = self.job(array).submission.array_size or 0
        return [self.state_of(f"{array}:{index}") for index in range(size)]

    def started(self) -> Iterator[str]:
        """The jobs whose start was asked for in the last round."""
        return (i.token.rpartition("#")[0] for i in self.instructions if isinstance(i, StartAttempt))

    def restarted(self) -> TestWorld:
        """The daemon dies and a new one begins from the store."""
        self.state = rebuild(self.store.load(), self.state.rules)
        return self

    def connected(self, running: tuple[str, ...] = (), **more: Any) -> TestWorld:
        """The agent of the host says what it knows; `running` are jobs."""
        starts = tuple(events.AttemptStarted(self.token(job_id), self.now) for job_id in running)
        self.happens(events.AgentConnected(self.machine, starts, **more))
        return self

    def picture(self) -> State:
        """A deep copy of the state, to compare with later."""
        return copy.deepcopy(self.state)


def a_world(machine: Machine | None = None, **rules: Any) -> TestWorld:
    """A world in which nothing exists."""
    return TestWorld(State(Rules(aws_texts=SageMakerTexts(), **rules)), machine=machine or a_machine())


def a_busy_world(machine: Machine | None = None, **rules: Any) -> TestWorld:
    """A world with an environment whose instance is ready, a queue and a definition."""
    world = a_world(machine, **rules).declared()
    world.submits(a_job("first")).ready()
    world.exits("first")
    return world
