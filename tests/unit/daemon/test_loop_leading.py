"""The loop of one daemon of several: letters of the others, and what becomes of a round when another one leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.daemon.test_loop import World, run
from windfall.control.changes import Changes
from windfall.control.events import SubmitJob
from windfall.jobs.errors import NotFound
from windfall.jobs.ids import JobId, QueueName
from windfall.store.coordination import ForwardedCommand
from windfall.store.errors import Superseded
from windfall.store.forwarded_commands import decoded_reply


class LeasedStore:
    """Keeps the answers of every commit; refuses when another daemon leads."""

    def __init__(self) -> None:
        self.answers: list[dict[str, str]] = []
        self.superseded: Superseded | None = None

    def commit(self, changes: Changes) -> Sequence[str]:
        if self.superseded is not None:
            raise self.superseded
        self.answers.append(dict(changes.answers))
        return ()


class FakeLease:
    def __init__(self) -> None:
        self.is_sure, self.confirmed = True, 0

    def confirm(self) -> Sequence[str]:
        self.confirmed += 1
        return ()


class Led(World):
    """A world whose daemon leads by a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.lease = LeasedStore(), FakeLease()
        self.loop._store, self.loop._lease = self.kept, self.lease


def a_letter(number: int, queue: str = "q") -> ForwardedCommand:
    return ForwardedCommand(
        f"l-{number}", SubmitJob(JobId(f"by-letter-{number}"), "n", QueueName(queue), "work")
    )


def test_a_letter_is_done_once_and_answered_in_the_same_commit():
    async def story():
        async with Led() as world:
            world.loop.take_forwarded([a_letter(1), a_letter(2, queue="nowhere")])
            world.loop.take_forwarded([a_letter(1)])
            await world.submit("own")
            world.loop.take_forwarded([a_letter(1), a_letter(2, queue="nowhere")])
            await world.submit("own-too")
            answered = [answers for answers in world.kept.answers if answers]
            assert len(answered) == 1
            assert decoded_reply(answered[0]["l-1"]).id == "by-letter-1"
            assert isinstance(decoded_reply(answered[0]["l-2"]), NotFound)

    run(story)


def test_a_superseded_loop_ends_and_gives_back_what_was_not_written():
    async def story():
        async with Led() as world:
            world.kept.superseded = Superseded(committed=False)
            asked = asyncio.ensure_future(world.submit("late"))
            with pytest.raises(Superseded):
                await world.turning
            assert not asked.done()
            world.loop.abandon()
            with pytest.raises(Superseded):
                await asked

    run(story)


def test_what_was_written_although_nobody_said_so_is_answered():
    async def story():
        async with Led() as world:
            world.kept.superseded = Superseded(committed=True)
            asked = asyncio.ensure_future(world.submit("late"))
            with pytest.raises(Superseded):
                await world.turning
            assert (await asked).id == "late"

    run(story)


def test_a_loop_that_is_told_that_another_leads_begins_no_round():
    async def story():
        async with Led() as world:
            committed = len(world.kept.answers)
            world.loop.supersede()
            asked = asyncio.ensure_future(world.submit("late"))
            with pytest.raises(Superseded):
                await world.turning
            assert len(world.kept.answers) == committed
            world.loop.abandon()
            with pytest.raises(Superseded):
                await asked

    run(story)


def test_nothing_is_told_from_memory_before_the_lease_is_sure():
    async def story():
        async with Led() as world:
            await world.submit("a")
            await world.loop.inspect(lambda state, _, __: len(state.jobs))
            assert world.lease.confirmed == 0
            world.lease.is_sure = False
            # A commit proves it too, and there may be one in any round: an attempt has just ended.
            proofs = world.lease.confirmed + len(world.kept.answers)
            with pytest.raises(NotFound):
                await world.loop.execute(SubmitJob(JobId("b"), "n", QueueName("nowhere"), "work"))
            assert world.lease.confirmed + len(world.kept.answers) > proofs

    run(story)
