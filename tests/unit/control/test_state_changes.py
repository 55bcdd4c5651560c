"""What is told: every state that a job comes to, as the job was then, and nothing where nobody listens."""

from __future__ import annotations

import msgspec

from tests.builders import TestWorld, a_busy_world, a_job, a_machine
from windfall.control import events
from windfall.control.outbox import Destination, EventKind, OutboxEvent
from windfall.jobs.aws_texts import EXITED
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING, SUBMITTED, SUCCEEDED, JobState

FILE = (Destination.FILE,)


def told(world: TestWorld, subject: str, kind: EventKind = EventKind.JOB) -> list[OutboxEvent]:
    return [it for it in world.store.outbox.values() if (it.subject, it.kind) == (subject, kind)]


def states(world: TestWorld, subject: str) -> list[JobState]:
    return [it.job.state for it in told(world, subject)]


def test_every_state_is_told_although_several_are_passed_in_one_round():
    world = a_busy_world(event_destinations=FILE).submits(a_job("one"))
    assert states(world, "one") == [SUBMITTED, RUNNABLE, STARTING]
    world.starts("one").exits("one")
    assert states(world, "one") == [SUBMITTED, RUNNABLE, STARTING, RUNNING, SUCCEEDED]


def test_each_event_has_the_job_as_it_was_then():
    world = a_busy_world(event_destinations=FILE).submits(a_job("one").retried(2))
    token = world.token("one")
    # The start, the end and the next try in one round.
    world.happens(
        events.AttemptStarted(token, world.now), events.AttemptExited(token, world.now, 1, "Oops", world.now)
    )
    first, waits, starting, running, again, second = (it.job for it in told(world, "one"))
    assert [job.state for job in (first, waits, starting, running, again, second)] == [
        SUBMITTED,
        RUNNABLE,
        STARTING,
        RUNNING,
        RUNNABLE,
        STARTING,
    ]
    assert [len(job.attempts) for job in (first, waits, starting, running, again, second)] == [
        0,
        0,
        1,
        1,
        1,
        2,
    ]
    assert (starting.started_at, running.started_at) == (None, world.now)
    assert (running.attempts[0].stopped_at, running.attempts[0].exit_code) == (None, None)
    assert (again.attempts[0].exit_code, again.status_reason) == (1, EXITED)
    assert again.stopped_at is None


def test_the_children_that_have_a_record_are_told_and_the_array_itself():
    world = a_busy_world(a_machine(vcpus=1), event_destinations=FILE).submits(a_job("many").array(3))
    assert states(world, "many") == [SUBMITTED, PENDING]
    assert states(world, "many:0") == [RUNNABLE, STARTING]
    assert states(world, "many:2") == [], "children at rest have nothing to tell"
    for index in range(3):
        world.exits(f"many:{index}", 1 if index else 0)
    assert states(world, "many")[-1] is FAILED
    assert told(world, "many")[-1].job.summary == {**world.job("many").summary}
    assert [states(world, f"many:{index}")[-1] for index in range(3)] == [SUCCEEDED, FAILED, FAILED]


def test_every_destination_gets_every_event_and_ids_are_the_same_for_both():
    world = a_busy_world(event_destinations=tuple(Destination)).submits(a_job("one"))
    ids = {it: [key[1] for key in world.store.outbox if key[0] == it] for it in Destination}
    assert ids[Destination.FILE] == ids[Destination.WEBHOOK]
    assert len(set(ids[Destination.FILE])) == len(ids[Destination.FILE])


def test_without_a_listener_no_job_notes_anything():
    world = a_busy_world().submits(a_job("one"))
    assert world.store.outbox == {}
    assert world.state.jobs[JobId("one")].moves is None


def test_after_a_restart_what_follows_is_told():
    world = a_busy_world(event_destinations=FILE).submits(a_job("one"))
    before = len(told(world, "one"))
    world.restarted().connected(running=("one",))
    world.exits("one")
    assert states(world, "one")[before:] == [RUNNING, SUCCEEDED]


def test_a_blocked_head_is_told_once_for_its_reason():
    world = a_busy_world(a_machine(vcpus=2), event_destinations=FILE).submits(a_job("huge").vcpus(32))
    for _ in range(4):
        world.later(6_000)
    (blocked,) = told(world, "huge", EventKind.QUEUE_BLOCKED)
    assert blocked.job.status_reason.startswith("MISCONFIGURATION:")
    assert blocked.job.state is RUNNABLE


def test_an_event_is_written_and_read_as_it_was():
    world = a_busy_world(event_destinations=FILE).submits(a_job("one").tagged(checkpoint="false"))
    for it in told(world, "one"):
        assert msgspec.json.decode(msgspec.json.encode(it), type=OutboxEvent) == it
        assert it.job.moves is None
    assert len({it.id for it in told(world, "one")}) == 3
