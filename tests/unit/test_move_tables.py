"""Instances, ticks, service jobs and the resting children of arrays move along their tables, and in no other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.docs import parts
from windfall.capacity.machines import INSTANCE_MOVES, Instance, InstanceState
from windfall.hosting.endpoint import ENDPOINT_MOVES, REPLICA_MOVES
from windfall.jobs.arrays import REST_MOVES, ChildTable
from windfall.jobs.errors import IllegalMove
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.service_jobs import SERVICE_MOVES, ServiceJob, ServiceState
from windfall.jobs.states import FAILED, JOB_MOVES, PENDING, RUNNABLE, MoveTable
from windfall.schedules.schedule import TICK_MOVES, Tick, TickOutcome


class Kind:
    """Something that moves along a table."""

    def __init__(self, table: MoveTable[Any], states: Any, story: str) -> None:
        self.table, self.states, self.story = table, list(states), story


class InstanceKind(Kind):
    def made(self, state: Any) -> tuple[Callable[[Any], None], Callable[[], Any]]:
        instance = Instance(InstanceId("i-1"), EnvironmentName("e"), "m5.large", Resources(1, 64), state)
        return instance.move, lambda: instance.state


class TickKind(Kind):
    def made(self, state: Any) -> tuple[Callable[[Any], None], Callable[[], Any]]:
        tick = Tick("default/nightly", 5, 5, state)
        return tick.move, lambda: tick.outcome


class RestKind(Kind):
    def made(self, state: Any) -> tuple[Callable[[Any], None], Callable[[], Any]]:
        children = ChildTable.of(3, state)
        return children.move_rest, lambda: (children.rest, *{children.state(index) for index in range(3)})[1]


class ServiceJobKind(Kind):
    def made(self, state: Any) -> tuple[Callable[[Any], None], Callable[[], Any]]:
        job = ServiceJob(JobId("s-1"), "weekly", QueueName("q"), "{}", state)
        return job.move, lambda: job.state


KINDS = {
    "service job": ServiceJobKind(SERVICE_MOVES, ServiceState, "service job s-1 .weekly."),
    "instance": InstanceKind(INSTANCE_MOVES, InstanceState, "instance i-1 .m5.large of e."),
    "tick": TickKind(TICK_MOVES, TickOutcome, "the tick of schedule default/nightly at 5"),
    "rest": RestKind(REST_MOVES, [PENDING, RUNNABLE, FAILED], "children: 3"),
}
PAIRS = [
    (kind, old, new) for kind, it in KINDS.items() for old in it.states for new in it.states if old is not new
]


@pytest.mark.parametrize(
    ("kind", "old", "new"), [pair for pair in PAIRS if pair[1:] in KINDS[pair[0]].table.moves]
)
def test_a_legal_move_is_made(kind, old, new):
    move, state = KINDS[kind].made(old)
    move(new)
    assert state() is new


@pytest.mark.parametrize(
    ("kind", "old", "new"), [pair for pair in PAIRS if pair[1:] not in KINDS[pair[0]].table.moves]
)
def test_an_illegal_move_tells_the_story_and_changes_nothing(kind, old, new):
    move, state = KINDS[kind].made(old)
    with pytest.raises(
        IllegalMove, match=rf"{old} -> {new} is not in the table of moves; .*{KINDS[kind].story}"
    ):
        move(new)
    assert state() is old


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_can_be_reached_and_can_come_to_an_end(kind):
    table = KINDS[kind].table
    reached, left = set(table.begins), set(table.ends)
    for _ in KINDS[kind].states:
        reached |= {new for old, new in table.moves if old in reached}
        left |= {old for old, new in table.moves if new in left}
    assert reached == left == set(KINDS[kind].states)


@pytest.mark.parametrize(
    ("draw", "table"),
    [
        (parts.job_states, JOB_MOVES),
        (parts.array_rest, REST_MOVES),
        (parts.service_job_states, SERVICE_MOVES),
        (parts.instance_states, INSTANCE_MOVES),
        (parts.tick_outcomes, TICK_MOVES),
        (parts.endpoint_states, ENDPOINT_MOVES),
        (parts.replica_states, REPLICA_MOVES),
    ],
)
def test_a_diagram_has_every_move_once(draw, table):
    lines = [line.strip() for line in draw().splitlines()]
    for (old, new), cause in table.moves.items():
        assert sum(line.startswith(f"{old} --> {new}:") for line in lines) == 1, cause
    assert all(line.count(":") <= 1 for line in lines)
