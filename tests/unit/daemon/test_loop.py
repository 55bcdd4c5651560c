"""The loop: durable before visible, one commit a round, and a store that fails for a while."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.builders import a_definition, a_machine
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import Instance, Offer
from windfall.control import events
from windfall.control.changes import Changes
from windfall.control.instructions import LaunchInstance, StartAttempt, TerminateInstance
from windfall.control.state import DAY_MS, State
from windfall.daemon.loop import ControlLoop
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, QueueName
from windfall.jobs.states import RUNNABLE
from windfall.store.errors import CommitFailed


class FakeStore:
    """Notes every commit; fails as often as it is told to."""

    def __init__(self, journal: list[str], failures: int = 0) -> None:
        self.journal, self.failures = journal, failures
        self.rounds: list[list[str]] = []

    def commit(self, changes: Changes) -> Sequence[str]:
        if self.failures:
            self.failures -= 1
            self.journal.append("commit failed")
            raise CommitFailed("disk full")
        self.journal.append("commit")
        self.rounds.append([str(job_id) for job_id in changes.jobs])
        return ["old-task"] if changes.purge else []


class FakeEngine:
    """Offers a host, and says ready as soon as it is asked."""

    name = "local"

    def __init__(self, journal: list[str]) -> None:
        self.journal = journal
        self.machine = a_machine()
        self.loop: ControlLoop

    def check(self, environment):
        if environment.max_vcpus == 13:
            raise Invalid("not that many")

    def adopt(self, holdings):
        self.journal.append(f"adopt {len(holdings.instances)}")

    def offers(self, _environment):
        return (Offer("local", self.machine.total, 1, self.machine.id),)

    def carry_out(self, instructions):
        for instruction in instructions:
            self.journal.append(type(instruction).__name__)
            if isinstance(instruction, LaunchInstance):
                self.loop.report(events.InstanceReady(instruction.instance, self.machine))
            if isinstance(instruction, StartAttempt):
                self.loop.report(events.AttemptExited(instruction.token, 5, 0, started_at=4))


class World:
    """A loop that turns over fakes."""

    def __init__(self, failures: int = 0, store: type[FakeStore] = FakeStore) -> None:
        self.journal: list[str] = []
        self.purged: list[str] = []
        self.store, self.engine = store(self.journal, failures), FakeEngine(self.journal)
        self.state = State()
        self.now = 1_000_000
        self.loop = ControlLoop(
            self.state,
            self.store,
            {"local": self.engine},
            lambda: self.now,
            self.purged.extend,
            lambda: (),
        )
        self.engine.loop = self.loop

    async def __aenter__(self) -> World:
        self.turning = asyncio.create_task(self.loop.run())
        name = EnvironmentName("e")
        await self.loop.execute(
            events.CreateComputeEnvironment(ComputeEnvironment(name, Provisioning.EC2, 0, 64))
        )
        await self.loop.execute(events.CreateJobQueue(JobQueue(QueueName("q"), 1, (name,))))
        await self.loop.execute(events.RegisterJobDefinition(a_definition()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.turning.cancel()
        await asyncio.gather(self.turning, return_exceptions=True)
        self.loop.close()

    def submit(self, job_id: str):
        return self.loop.execute(events.SubmitJob(JobId(job_id), job_id, QueueName("q"), "work"))


def run(story) -> None:
    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_caller_is_answered_after_the_commit_and_engines_act_after_it():
    async def story():
        async with World() as world:
            world.journal.clear()
            job = await world.submit("a")
            world.journal.append("answered")
            assert job.id == "a"
            assert world.journal.index("commit") < world.journal.index("answered")
            assert world.journal.index("commit") < world.journal.index("LaunchInstance")

    run(story)


def test_commands_that_wait_together_share_a_commit():
    async def story():
        async with World() as world:
            world.store.rounds.clear()
            await asyncio.gather(*(world.submit(f"job-{n}") for n in range(50)))
            assert [f"job-{n}" for n in range(50)] == world.store.rounds[0]

    run(story)


def test_a_refused_command_fails_alone():
    async def story():
        async with World() as world:
            wrong = world.loop.execute(events.SubmitJob(JobId("b"), "b", QueueName("none"), "work"))
            good, refused = await asyncio.gather(world.submit("a"), wrong, return_exceptions=True)
            assert good.id == "a"
            assert isinstance(refused, NotFound)

    run(story)


def test_a_store_that_fails_for_a_while_delays_and_loses_nothing():
    async def story():
        async with World() as world:
            world.journal.clear()
            world.store.rounds.clear()
            world.store.failures = 2
            job = await world.submit("a")
            assert job.id == "a"
            assert world.journal[:3] == ["commit failed", "commit failed", "commit"]
            assert world.store.rounds[0] == ["a"]

    run(story)


def test_anything_else_that_goes_wrong_ends_the_loop():
    async def story():
        async with World() as world:
            world.store.commit = None  # a fault of ours, not of the disk
            waiting = asyncio.create_task(world.submit("a"))
            with pytest.raises(TypeError):
                await world.turning
            waiting.cancel()

    run(story)


def test_a_question_is_answered_from_memory():
    async def story():
        async with World() as world:
            world.loop.placing = False
            await world.submit("a")
            why = await world.loop.why(JobId("a"))
            assert (why.job_id, why.state) == ("a", RUNNABLE)
            assert why.reasons
            assert "agent_away" not in dict(why.reasons)
            world.loop.away = lambda name: f"the agent of {name} is away"
            away = await world.loop.why(JobId("a"))
            assert away.reasons == [("agent_away", "the agent of local is away"), *why.reasons]
            assert await world.loop.why(JobId("nobody")) is None
            assert await world.loop.queue_snapshot(QueueName("none")) == []

    run(story)


def test_a_question_that_fails_is_its_callers_trouble_alone():
    def fault(state, offers, now):
        raise LookupError("a fault in a question")

    async def story():
        async with World() as world:
            with pytest.raises(LookupError):
                await world.loop.inspect(fault)
            assert (await world.submit("a")).id == "a"

    run(story)


def test_nothing_is_placed_while_going_down():
    async def story():
        async with World() as world:
            world.loop.placing = False
            world.journal.clear()
            await world.submit("a")
            assert "LaunchInstance" not in world.journal
            assert await world.loop.queue_snapshot(QueueName("q")) == [("a", 1_000_000)]

    run(story)


def test_an_environment_that_its_engine_cannot_serve_is_refused():
    async def story():
        async with World() as world:
            environment = ComputeEnvironment(EnvironmentName("odd"), Provisioning.EC2, 0, 13)
            with pytest.raises(Invalid, match="not that many"):
                await world.loop.execute(events.CreateComputeEnvironment(environment))
            assert "odd" not in world.state.environments

    run(story)


def test_engines_get_what_is_theirs_before_they_are_told_anything():
    async def story():
        async with World() as world:
            world.journal.clear()
            instance = Instance(InstanceId("i-1"), EnvironmentName("e"), "local", world.engine.machine.total)
            world.state.instances[instance.id] = instance
            world.loop.act_after_restart([TerminateInstance(instance.id)])
            assert world.journal == ["adopt 1", "TerminateInstance"]

    run(story)


def test_what_time_brings_is_looked_at_also_after_the_clock_was_set_back():
    async def story():
        async with World() as world:
            await world.submit("a")
            world.now -= 900_000
            machine = world.engine.machine.id
            world.state.gone_machines[machine] = world.now - 10 * DAY_MS
            await world.submit("b")
            assert machine not in world.state.gone_machines

    run(story)


class SlowStore(FakeStore):
    """A commit that takes as long as the test says; it notes the round at its beginning and at its end."""

    def __init__(self, journal: list[str], failures: int = 0) -> None:
        super().__init__(journal, failures)
        self.slow, self.begun, self.may_end = False, threading.Event(), threading.Event()
        self.seen: list[tuple[str, str]] = []

    def commit(self, changes: Changes) -> Sequence[str]:
        before = repr(changes)
        if self.slow:
            self.begun.set()
            assert self.may_end.wait(120)
        self.seen.append((before, repr(changes)))
        return super().commit(changes)


def test_a_round_does_not_change_while_a_thread_writes_it():
    """The changes hold the state's own objects: no round begins before the thread has written them."""
    world = World(store=SlowStore)

    async def story():
        async with world:
            world.store.slow = True
            first = asyncio.create_task(world.submit("a"))
            assert await asyncio.to_thread(world.store.begun.wait, 20)
            others = [
                asyncio.create_task(world.loop.execute(events.TerminateJob(JobId("a"), "no longer needed"))),
                asyncio.create_task(world.loop.inspect(lambda state, *_: len(state.jobs))),
            ]
            for _ in range(100):
                await asyncio.sleep(0)
            world.store.slow = False
            world.store.may_end.set()
            await asyncio.gather(first, *others)

    run(story)
    assert all(before == after for before, after in world.store.seen)
    assert len(world.store.seen) > 4
