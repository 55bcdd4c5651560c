"""Random lives of a daemon without agents: what is derived is the same after a restart, refusals change nothing."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TestWorld, a_busy_world, a_job, a_machine
from tests.simulation.invariants import check_arrays, check_backlog, check_deadlines, check_occupancy
from tests.unit.control.trainings import a_training
from windfall.accounting.prices import Rates
from windfall.capacity.environments import Switch
from windfall.control import events
from windfall.control.limits import next_limit
from windfall.control.why import why
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.staging import Mark
from windfall.jobs.states import TERMINAL
from windfall.jobs.storage import StorageLayout

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            """single single array array after after_array each sequential starts starts exits exits fails lost
            cancel cancel_child terminate time instance_lost connected disable enable tag limit
            spot spot kept budget interrupt take_away noticed rebalance progressed training""".split()  # noqa: SIM905 (a list of one word to a line is no easier to read)
        ),
        st.integers(0, 40),
        st.integers(0, 4),
    ),
    max_size=40,
)


class Life:
    """Turns numbers into things that happen."""

    def __init__(self) -> None:
        self.world: TestWorld = a_busy_world(
            a_machine(vcpus=6, gpus=2),
            storage=StorageLayout("s3://bucket"),
            notice_s=5.0,
            rates=Rates(usd_gpu_hour=3600.0, usd_vcpu_hour=360.0),
        ).with_environment("spot")
        self.ids: list[str] = ["first"]

    def does(self, operation: str, number: int, choice: int) -> None:
        """One thing happens; a refusal must leave everything as it was."""
        event = self.event(operation, number, choice)
        before = copy.deepcopy(self.world.state)
        self.world.now += 700
        try:
            self.world.happens(event)
        except Rejected:
            assert self.world.state == before
        self.world.ready()

    def event(self, operation: str, number: int, choice: int) -> Any:
        job = self.submission(operation, number, choice)
        if job is not None:
            return job
        job_id = self.ids[number % len(self.ids)]
        child = JobId(f"{job_id}:{choice}")
        placed = list(self.world.state.attempts)
        token = placed[number % len(placed)] if placed else events.AttemptToken("nobody#1")
        now = self.world.now
        switch = Switch.DISABLED if operation == "disable" else Switch.ENABLED
        connected = events.AgentConnected(
            self.world.machine,
            tuple(events.AttemptStarted(t, now) for n, t in enumerate(placed) if n % (choice + 1) == 0),
        )
        instance = next(iter(self.world.state.instances), events.InstanceId("none"))
        return {
            "starts": events.AttemptStarted(token, now),
            "exits": events.AttemptExited(token, now, 0, None, now),
            "fails": events.AttemptExited(token, now, choice + 1, None, now),
            "lost": events.AttemptLost(token, now),
            "cancel": events.CancelJob(JobId(job_id), "x"),
            "cancel_child": events.CancelJob(child, "x"),
            "terminate": events.TerminateJob(JobId(job_id) if choice else child, "x"),
            "time": events.TimePassed(),
            "instance_lost": events.InstanceLost(instance),
            "connected": connected,
            "disable": events.UpdateJobQueue(QueueName("queue"), switch),
            "enable": events.UpdateJobQueue(QueueName("queue"), switch, choice),
            "tag": events.TagResource("job", job_id, {"n": str(number)}),
            "interrupt": events.InterruptJob(JobId(job_id) if choice else child, choice),
            "take_away": events.InterruptInstance(instance, choice),
            "noticed": events.InterruptionNoticed(instance, now + 1_000 * choice),
            "rebalance": events.RebalanceRecommended(instance),
            "progressed": events.AttemptProgressed(
                token,
                now,
                "saving" if choice % 2 else None,
                checkpoint=Mark("step", now, now - choice, 1, number),
            ),
        }[operation]

    def submission(self, operation: str, number: int, choice: int) -> Any:
        job_id = f"j{len(self.ids)}"
        other = self.ids[number % len(self.ids)]
        job = a_job(job_id).gpus(choice % 3).retried(1 + number % 3)
        made = {
            "single": job,
            "limit": job.limited_to(5),
            "spot": job.in_queue("spot"),
            "kept": job.in_queue("spot").tagged(checkpoint="true"),
            "budget": job.tagged(budget_usd=str(1 + choice)),
            "array": job.array(2 + choice),
            "after": job.after(other),
            "after_array": job.array(3).after(other, f"{other}:{choice}"),
            "each": job.array(3).after_each_of(other),
            "sequential": job.array(3).one_by_one(),
        }.get(operation)
        if operation == "training":
            self.ids.append(f"training-{job_id}")
            return a_training(job_id, gpus=choice % 2, run_s=2 + choice, wait_s=10 + number, attempts=2)
        if made is None:
            return None
        self.ids.append(job_id)
        command = made.command
        named = [d.job_id for d in command.depends_on if d.job_id is not None]
        return made.knowing(*self.world.store.finished(named))


def derived(world: TestWorld) -> dict[str, Any]:
    """All that memory works out from what the store has."""
    state = world.state
    waits = {
        job_id: (waits.whole, waits.n_to_n, waits.sequential)
        for job_id, waits in state.waits.items()
        if waits.whole or waits.n_to_n or waits.sequential
    }
    return {
        "jobs": state.jobs,
        "backlog": {
            (queue, shape): sorted((w.order, w.job_id, w.runnable_at, w.count) for w in group)
            for queue, groups in state.backlog.queues.items()
            for shape, group in groups.items()
        },
        "holds": {i: (use.used, use.holds) for i, use in state.occupancy.instances.items() if use.holds},
        "machines": {m: u for m, u in state.occupancy.machines.items() if u.used.vcpus},
        "waits": waits,
        "dependents": {
            awaited: sorted({d for d in dependents if d in waits})
            for awaited, dependents in state.dependents.items()
            if any(d in waits for d in dependents)
        },
        "children": {
            job_id: (table.states, table.recorded, table.counts, table.rest, table.rest_reason, table.rest_at)
            for job_id, table in state.children.items()
        },
        "attempts": {token: job.id for token, job in state.attempts.items()},
        "deadlines": sorted(
            (at, token)
            for at, token in state.deadlines
            if token in state.attempts and state.attempts[token].attempts[-1].stop_cause is None
        ),
        # One that is being stopped reaches none any more; its old entry is passed over when it is due.
        "limits": {
            job_id: at
            for job_id, at in state.limit_due.items()
            if next_limit(state, state.jobs[job_id]) is not None
        },
        "order": state.last_order,
        "declared": (state.environments, state.queues, state.definitions, state.instances, state.machines),
    }


@settings(max_examples=150)
@given(OPERATIONS)
def test_a_restarted_daemon_knows_what_the_old_one_knew(operations):
    life = Life()
    for operation in operations:
        life.does(*operation)
    known = copy.deepcopy(derived(life.world))
    life.world.restarted()
    assert derived(life.world) == known


@settings(max_examples=150)
@given(OPERATIONS)
def test_memory_is_sound_and_everything_live_has_a_reason(operations):
    life = Life()
    for operation in operations:
        life.does(*operation)
        for check in (check_occupancy, check_arrays, check_backlog, check_deadlines):
            check(life.world.state)
    for job_id in life.world.state.jobs:
        answer = why(life.world.state, job_id, {}, life.world.now)
        assert answer is not None
        assert all(code and text for code, text in answer.reasons)
        assert answer.reasons


@settings(max_examples=100)
@given(OPERATIONS)
def test_everything_ends_when_every_attempt_does(operations):
    life = Life()
    for operation in operations:
        life.does(*operation)
    world = life.world
    for _ in range(400):
        if not world.state.jobs:
            break
        ends = [events.AttemptExited(token, world.now, 0, None, world.now) for token in world.state.attempts]
        world.now += 6_000
        world.state.unsettled = True
        world.happens(events.TimePassed(), *ends)
        world.ready()
    assert not world.state.jobs, [job.story() for job in world.state.jobs.values()]
    assert all(job.state in TERMINAL for job in world.store.jobs.values())
    assert world.state.backlog.count == 0
